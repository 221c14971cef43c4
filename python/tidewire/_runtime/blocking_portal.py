"""Blocking forms of asynchronous objects, for plain threads."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from functools import wraps
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from tidewire._runtime import steps
from tidewire._runtime.current import running_loop
from tidewire.errors import InvalidArgument

if TYPE_CHECKING:
    from tidewire.node import Node

_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")
_Form_co = TypeVar("_Form_co", covariant=True)


def refuse_loop(title: str, instead: str = "await the same call without .sync") -> None:
    """Refuse to block the thread of an event loop.

    Raises:
        InvalidArgument: if a loop runs on this thread.
    """
    if running_loop() is not None:
        raise InvalidArgument(f"{title} would block this thread's event loop: {instead}")


def run(node: Node, call: Coroutine[Any, Any, _R]) -> _R:
    """Run a coroutine on the node's loop, and block this thread until it is done."""
    try:
        refuse_loop(call.__name__)  # type: ignore[attr-defined]
        node._ensure_loop()
    except BaseException:
        call.close()
        raise
    loop_call = LoopCall(node, call)
    try:
        return loop_call.wait()
    except KeyboardInterrupt:
        loop_call.future.cancel()
        raise


class LoopCall(Generic[_R]):
    """A coroutine on the node's loop, awaitable on any loop and by threads."""

    def __init__(self, node: Node, call: Coroutine[Any, Any, _R]) -> None:
        import asyncio

        assert node._loop is not None
        self.future = asyncio.run_coroutine_threadsafe(call, node._loop)

    def __await__(self) -> Generator[Any, Any, _R]:
        import asyncio

        return asyncio.wrap_future(self.future).__await__()

    def wait(self) -> _R:
        """Block this thread until it is done."""
        return self.future.result()


class HasBlockingForm(Protocol[_Form_co]):
    """An object with a blocking form."""

    @property
    def _form(self) -> Callable[[Any, Node], _Form_co]: ...


class Blocking(Generic[_T]):
    """Base class of blocking forms. Arguments, results and errors of a method are those of the
    awaitable method of the same name.
    """

    def __init_subclass__(cls, form_of: type | None = None) -> None:
        if form_of is not None:
            form_of._form = cls  # type: ignore[attr-defined]

    def __init__(self, of: _T, node: Any = None) -> None:
        self._of = of
        self._node: Node = node

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Annotated attributes are the same in both forms.
            if name in type(self).__annotations__:
                return getattr(self._of, name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<blocking {self._of!r}>"

    def _may_block(self, title: str) -> None:
        """Refuse a call that would never end."""
        refuse_loop(title)


def blocking(method: Callable[Concatenate[Any, _P], Awaitable[_R]], by: str = "") -> Callable[Concatenate[Any, _P], _R]:
    """Return the blocking form of a method, for a class of blocking forms. ``by`` names an
    equivalent method that returns steps, for objects without a loop.
    """
    title, name = method.__name__, by or method.__name__

    @wraps(method)
    def call(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        self._may_block(title)
        pending: Any = getattr(self._of, name)(*args, **kwargs)
        kind = pending.__class__
        value: _R
        if kind is CoroutineType:
            value = run(self._node, pending)
        else:
            value = steps.blocking(pending) if kind is GeneratorType else pending.wait()
        return value

    return call


def blocking_form(
    method: Callable[Concatenate[Any, _P], Awaitable[HasBlockingForm[_T]]],
) -> Callable[Concatenate[Any, _P], _T]:
    """Return the blocking form of a method, whose result is in its blocking form, too."""
    call = blocking(method)

    @wraps(method)
    def call_blocking(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        of = call(self, *args, **kwargs)
        return of._form(of, self._node)

    found = inspect.signature(method)
    call_blocking.__signature__ = found.replace(return_annotation=f"Sync{found.return_annotation}")  # type: ignore[attr-defined]
    return call_blocking


def blocking_items(
    method: Callable[Concatenate[Any, _P], AsyncIterator[_R]],
) -> Callable[Concatenate[Any, _P], Iterator[_R]]:
    """Return the blocking form of a method that yields items. It fetches whole pages."""
    name = method.__name__

    @wraps(method)
    def items(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> Iterator[_R]:
        found = getattr(self._of, name)(*args, **kwargs)

        async def next_items() -> list[_R]:
            page: list[_R] = []
            async for item in found:
                page.append(item)
                if not getattr(found, "_page", None):
                    break
            return page

        while page := run(self._node, next_items()):
            yield from page

    return items
