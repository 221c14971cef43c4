"""Declaration of services: ``class Pricing(tw.Service)``, ``@tw.service``, ``@tw.method``,
``@tw.on`` and ``@tw.command``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, overload

from tidewire.errors import InvalidArgument
from tidewire.services.contract.command import CommandMark
from tidewire.services.contract.declaration import MARKS, of_class
from tidewire.services.contract.durable import DurableMark
from tidewire.services.contract.methods import EventMark, MethodMark
from tidewire.services.contract.names import short
from tidewire.values.plans import DECLARED as _DECLARED

if TYPE_CHECKING:
    from typing import Concatenate, ParamSpec, Self, Unpack

    from tidewire._typed import Command, CommandMarker, Marker, Method, Unlike
    from tidewire.services.contract.durable import DurableOptions
    from tidewire.services.instances.context import CallContext

    _P = ParamSpec("_P")

_R = TypeVar("_R")
_F = TypeVar("_F", bound=Callable[..., Any])
_C = TypeVar("_C", bound=type)


class Service:
    """The base of services that are classes: ``class Pricing(tw.Service)``, or with options
    ``(tw.Service, name="pricing")``.

    Methods marked by ``@tw.method`` can be called, those marked by ``@tw.on`` handle events. The
    class is looked at when it is made.

    ``name`` is the name of the service; the default is the name of the class, as in ``order_book``
    for ``OrderBook``. ``visibility`` is "node", "private" (the default) or "public": who may call.

    Raises:
        InvalidArgument: when the class is made, if anything is wrong with it; the message names all
            problems.
    """

    __tidewire_only_marked__ = True

    def __init_subclass__(cls, *, name: str | None = None, visibility: str | None = None, **others: Any) -> None:
        super().__init_subclass__(**others)
        setattr(cls, _DECLARED, of_class(cls, name, visibility, depth=3))

    if TYPE_CHECKING:
        # Members of the clients of a service; type checkers see clients as the class. The objects
        # that are served have neither.
        sync: ClassVar[Any]

        @overload
        @classmethod
        def with_(cls, *, policy: Literal["all"], **options: Any) -> Any: ...

        @overload
        @classmethod
        def with_(
            cls,
            *,
            timeout: float | None = None,
            priority: str | None = None,
            instance: str | None = None,
            policy: Any = None,
            headers: Mapping[str, str] | None = None,
        ) -> type[Self]: ...

        @classmethod
        def with_(cls, **options: Any) -> Any: ...


@overload
def service(declared: _C, /) -> _C: ...


@overload
def service(*, name: str | None = None, visibility: str | None = None) -> Callable[[_C], _C]: ...


def service(declared: Any = None, /, *, name: str | None = None, visibility: str | None = None) -> Any:
    """Declare any class as a service, as deriving it from ``tw.Service`` does.

    Without any ``@tw.method`` all its methods whose names begin without an underscore are served.

    Raises:
        InvalidArgument: if anything is wrong with the class; the message names all problems.
    """

    def mark(declared: _C) -> _C:
        if not isinstance(declared, type):
            raise InvalidArgument(
                f"service: {short(declared)} is not allowed: decorate a class; serve() takes functions"
            )
        setattr(declared, _DECLARED, of_class(declared, name, visibility, depth=4 if direct else 3))
        return declared

    direct = declared is not None
    return mark(declared) if direct else mark


@overload
def method(function: Callable[Concatenate[Any, Unlike, _P], Any], /) -> Any: ...


@overload
def method(function: Callable[Concatenate[Any, CallContext, _P], _R], /) -> Method[_P, _R]: ...


@overload
def method(function: Callable[Concatenate[Any, _P], _R], /) -> Method[_P, _R]: ...


@overload
def method(
    *,
    name: str | None = None,
    idempotent: bool = False,
    timeout: float | None = None,
    visibility: str | None = None,
    safe: bool = False,
    prompt: bool = False,
    cost: str | None = None,
) -> Marker: ...


def method(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    idempotent: bool = False,
    timeout: float | None = None,
    visibility: str | None = None,
    safe: bool = False,
    prompt: bool = False,
    cost: str | None = None,
) -> Any:
    """Mark a method of a service as one that can be called. Generators, plain or async, are
    streams.

    Args:
        function: The method.
        name: Name for callers; the default is its name.
        idempotent: True if it may be called again after an unknown outcome.
        timeout: Seconds that a call may take where the caller says nothing.
        visibility: Allowed callers, if fewer than those of the service: "node", "private" or
            "public".
        safe: True if it changes nothing: a GET of HTTP may call it, and it is idempotent.
        prompt: True if it returns messages for a language model: a text, a picture, or a list of
            them and of dicts with ``role`` and ``content``. MCP clients get it as a prompt.
        cost: The name of a parameter that the time of a call depends on, by its number or its
            length. Clients with this class and the policy "lowest_latency" learn from it.

    Raises:
        InvalidArgument: if the marked object is not a function. Other errors are raised when
            the class is made.
    """

    def mark(function: Any) -> Any:
        _marks_for(function, "method").append(MethodMark(name, idempotent, timeout, visibility, safe, prompt, cost))
        return function

    return mark if function is None else mark(function)


@overload
def command(function: Callable[Concatenate[Any, _P], _R], /) -> Command[_P, _R]: ...


@overload
def command(
    *,
    name: str | None = None,
    timeout: float | None = 3_600.0,
    retries: int = 3,
    exclusive: Literal["key"] | None = None,
    concurrency: int = 1,
    keep: float = 86_400.0,
) -> CommandMarker: ...


def command(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    timeout: float | None = 3_600.0,
    retries: int = 3,
    exclusive: str | None = None,
    concurrency: int = 1,
    keep: float = 86_400.0,
) -> Any:
    """Mark a method of a service as a command: long work that is started and not called, and
    survives the process that does it.

    ``run = await node.client(Billing).reindex.start(7)`` starts it; see ``tw.CommandRun`` for what
    the caller can do then. One of those who serve it does it; if its process is lost, another does.
    A parameter annotated as ``tw.Progress`` gets what reports its progress.

    Args:
        function: The method. A coroutine is interrupted when its command is cancelled; a plain
            function when it reports its progress.
        name: Name for callers; the default is its name.
        timeout: Seconds that one attempt may take; None for as long as it takes.
        retries: How often it is tried again, after pauses that grow from 0.5 to 60 seconds, if it
            raises, takes too long, or its worker is lost.
        exclusive: ``"key"``: of the commands with one key, as its caller says it, one runs at a
            time.
        concurrency: How many of them one instance does at once.
        keep: Seconds for which its result, or its error, is kept.

    Raises:
        InvalidArgument: if the marked object is not a function. Other errors are raised when
            the class is made.
    """

    def mark(function: Any) -> Any:
        _marks_for(function, "command").append(CommandMark(name, timeout, retries, exclusive, concurrency, keep))
        return function

    return mark if function is None else mark(function)


def on(
    subject: str, *, queue: str | None = None, durable: str | None = None, **options: Unpack[DurableOptions]
) -> Callable[[_F], _F]:
    """Mark a method of a service as the handler of events: ``@tw.on("orders.*")``. It takes the
    message.

    With ``durable`` it handles the events of a stream, each at least once: returning acks, raising
    makes the event come again after ``backoff``, and after ``max_deliver`` deliveries it is a dead
    letter with the error and its traceback. A parameter annotated as ``tw.Event`` gets the event
    itself.

    Args:
        subject: A pattern of subjects.
        queue: A group whose members share the events; without one each instance of the service gets
            all. Not with ``durable``.
        durable: The name of the consumer: letters, digits, ``_`` and ``-``, at most 64. All who
            serve it share its events.
        options: Of durable handlers. ``stream``: its name, if several take such subjects.
            ``concurrency``: how many events one instance handles at once, 1 if nothing is said.
            ``mode``, ``start``, ``ack_wait``, ``max_deliver``, ``backoff``, ``order`` and
            ``max_in_flight`` are those of ``Stream.consumer``; a handler that takes longer than
            ``ack_wait`` calls ``event.working()``.

    Raises:
        InvalidArgument: if the marked object is not a function. Other errors are raised when
            the class is made.
    """
    if callable(subject):
        raise InvalidArgument("subject: nothing was given: write @tw.on('orders.*')")

    def mark(function: _F) -> _F:
        _marks_for(function, "on").append(EventMark(subject, queue, DurableMark.of(durable, options)))
        return function

    return mark


def _marks_for(function: Any, decorator: str) -> list[Any]:
    inner = function.__func__ if isinstance(function, (staticmethod, classmethod)) else function
    if not inspect.isfunction(inner) and not isinstance(inner, functools.partial):
        raise InvalidArgument(
            f"{decorator}: {short(function)} can't be marked: put @tw.{decorator} on a function, below @property and the like"
        )
    # A function that wraps a marked one has got its marks, as the same list: its own must not reach
    # the other.
    marks = list(getattr(inner, MARKS, ()))
    setattr(inner, MARKS, marks)
    return marks
