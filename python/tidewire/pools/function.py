"""Function of a pool: its name, its transfer to a worker, and its call."""

from __future__ import annotations

import contextlib
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import partial
from importlib import import_module
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple

from tidewire._tracing.process_spans import spans_of_worker
from tidewire.errors import InvalidArgument
from tidewire.pools.processes import main_module
from tidewire.pools.processes.pickler import dumps_of

_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_COROUTINE = 0x80
"""The flag of code that makes coroutines, ``inspect.CO_COROUTINE``."""
_PICKLE_HINT = (
    "define it at the top level of a module, give an import path such as 'package.module:name', or use pickler='cloudpickle' "
    "(pip install cloudpickle) or kind='thread'"
)


class PerWorker(ABC):
    """Factory of the function of each worker. Each worker calls it once."""

    @abstractmethod
    def __call__(self, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> tuple[Callable[..., Any], Callable[[], None]]:
        """Return the function of this worker, and a function to call at its end. ``run`` runs a
        coroutine to completion.
        """


class FunctionRef(NamedTuple):
    """Reference to a function for a worker process: an import path, or a pickle."""

    name: str
    path: str | None
    pickled: bytes | None


def spec_for_process(function: Callable[..., Any] | str, pickler: str) -> FunctionRef:
    """Return the reference to a function for a worker process.

    Raises:
        InvalidArgument: if it is no function, no import path, or can't be pickled.
    """
    if isinstance(function, str):
        return FunctionRef(function, _check_path(function), None)
    return FunctionRef(_name(_check_callable(function)), None, _pickled(function, pickler))


def load(spec: FunctionRef) -> Callable[..., Any]:
    """Load the function in a worker process. Raises the errors of its imports."""
    if spec.path is not None:
        return resolve(spec.path)
    assert spec.pickled is not None
    function: Callable[..., Any] = main_module.loads(spec.pickled)
    return function


def for_thread(function: Callable[..., Any] | str) -> Callable[..., Any]:
    """Return the function of a pool of threads.

    Raises:
        InvalidArgument: if it is no function, or can't be imported.
    """
    if not isinstance(function, str):
        return _check_callable(function)
    try:
        return resolve(_check_path(function))
    except InvalidArgument:
        raise
    except Exception as error:
        raise InvalidArgument(f"function: {function!r} can't be imported: {type(error).__name__}: {error}") from error


def resolve(path: str) -> Callable[..., Any]:
    """Import ``package.module:name``. Raises the errors of the import."""
    module, _, names = path.partition(":")
    found: Any = import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    return _check_callable(found)


def is_agent(target: object) -> bool:
    """Return True for a class of agents, a ``functools.partial`` of one, or an agent. The check
    does not import the module of agents.
    """
    origin = target.func if isinstance(target, partial) else target
    kind = origin if isinstance(origin, type) else type(origin)
    has_handlers = any(hasattr(value, "__tidewire_handles__") for base in kind.__mro__ for value in vars(base).values())
    return has_handlers or hasattr(kind, "receive") or hasattr(kind, "_agent_state_")


def name_of(function: Callable[..., Any] | str) -> str:
    """Return the display name of a function."""
    return function if isinstance(function, str) else _name(function)


class Interrupted(Exception):
    """A coroutine was cancelled by :meth:`Caller.interrupt`."""


class Caller:
    """Caller of the function in one worker, which runs coroutines to completion. It is made on the
    thread that calls. ``cancelled`` returns True if the running task is cancelled. ``traced`` is
    the name of spans; the headers of the parent are then the first argument.

    Raises:
        BaseException: the error of a ``PerWorker`` factory.
    """

    def __init__(self, function: Callable[..., Any], cancelled: Callable[[], bool], traced: str | None = None) -> None:
        self.function = function
        self.traced = traced
        self._cancelled = cancelled
        self._loop: Any = None
        self._running: Any = None
        self._cancelled_task: Any = None
        self._is_interrupted = False
        self._end: Callable[[], None] | None = None
        self.call: Callable[..., Any]
        if isinstance(function, PerWorker):
            self.call, self._end = function(self._run)
            return
        self.call = self._run_async if _is_async(function) else function
        if traced is not None:
            spans, call = spans_of_worker(), self.call
            self.call = lambda headers, *args, **kwargs: spans.consumer(traced, headers, call)(*args, **kwargs)

    def _run_async(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(self.function(*args, **kwargs))

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        import asyncio

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        self._running = self._loop.create_task(coroutine)
        self._cancel()
        try:
            return self._loop.run_until_complete(self._running)
        except asyncio.CancelledError:
            if self._is_interrupted:
                raise Interrupted from None
            raise
        finally:
            self._running = self._cancelled_task = None

    def interrupt(self) -> None:
        """Cancel the running coroutine and all later ones. Any thread may call."""
        self._is_interrupted, self._cancelled_task = True, None
        self.cancel_current()

    def cancel_current(self) -> None:
        """Cancel the running coroutine, once, if its task is cancelled. Any thread may call."""
        if self._loop is not None:
            # The loop may be closed.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        # A second cancellation would interrupt the cleanup of the coroutine.
        if self._running is not self._cancelled_task and (self._is_interrupted or self._cancelled()):
            self._cancelled_task = self._running
            self._running.cancel()

    def close(self) -> None:
        """End the function of a factory, and close the event loop."""
        if self._end is not None:
            self._end()
        if self._loop is not None:
            self._loop.close()


def _is_async(function: Callable[..., Any]) -> bool:
    if isinstance(function, BuiltinFunctionType):
        return False
    if type(function) is FunctionType and not vars(function):
        return bool(function.__code__.co_flags & _COROUTINE)
    # Imported only for other callables, so that worker processes start sooner.
    import inspect

    calls = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(calls)


def checked_results(results: Any, count: int) -> list[Any]:
    """Check and return the results of a batch.

    Raises:
        TypeError: if it returned no list.
        ValueError: if the list has another length.
    """
    if not isinstance(results, (list, tuple)):
        raise TypeError(f"a function with batch must return a list of results, not {type(results).__name__}")
    if len(results) != count:
        raise ValueError(
            f"a function with batch must return one result per task: {len(results)} results for {count} tasks"
        )
    return list(results)


def _check_callable(function: Any) -> Callable[..., Any]:
    if not callable(function):
        raise InvalidArgument(f"function: {function!r} is not allowed: give a function or 'package.module:name'")
    checked: Callable[..., Any] = function
    return checked


def _check_path(path: str) -> str:
    if _PATH.fullmatch(path) is None:
        raise InvalidArgument(f"function: {path!r} is no import path: write 'package.module:name'")
    return path


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__


def _pickled(function: Callable[..., Any], pickler: str) -> bytes:
    dumps = dumps_of(pickler)
    try:
        pickled = dumps(function)
    except Exception as error:
        raise InvalidArgument(
            f"function: {_name(function)} can't be pickled for a worker process ({error}): {_PICKLE_HINT}"
        ) from error
    by_name = pickler == "pickle" and main_module.references_main(pickled)
    if by_name and not main_module.can_be_imported(sys.modules["__main__"]):
        raise InvalidArgument(
            f"function: {_name(function)} is defined in a program that has no file, which a worker process can't import: "
            f"{_PICKLE_HINT}"
        )
    return pickled
