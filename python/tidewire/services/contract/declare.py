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
    """Base class of services: ``class Pricing(tw.Service)``, or with options ``(tw.Service,
    name="pricing")``.

    Clients call methods with ``@tw.method``, methods with ``@tw.on`` handle events, and
    ``@tw.command`` declares commands. The class is checked at its definition.

    ``name`` is the name of the service; the default is the name of the class, as in ``order_book``
    for ``OrderBook``. ``visibility`` sets the allowed callers: "node", "private" (the default) or
    "public".

    Raises:
        InvalidArgument: when the class is defined, if it is invalid; the message names all
            problems.
    """

    __tidewire_only_marked__ = True

    def __init_subclass__(cls, *, name: str | None = None, visibility: str | None = None, **others: Any) -> None:
        super().__init_subclass__(**others)
        setattr(cls, _DECLARED, of_class(cls, name, visibility, depth=3))

    if TYPE_CHECKING:
        # Members of clients, which type checkers treat as the class. Served objects have neither.
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
    """Declare any class as a service, like the base class ``tw.Service``.

    Without any ``@tw.method`` all public methods are served: those without a leading underscore.

    Raises:
        InvalidArgument: if the class is invalid; the message names all problems.
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
    """Mark a method of a service as callable. Generators, plain or async, are streams.

    Args:
        function: The method.
        name: Name for callers; the default is its name.
        idempotent: True if a call may be retried after an unknown outcome.
        timeout: Default timeout of a call in seconds.
        visibility: Allowed callers, if fewer than those of the service: "node", "private" or
            "public".
        safe: True if it changes nothing: an HTTP GET may call it, and it is idempotent.
        prompt: True if it returns messages for a language model: a text, an image, or a list of
            these and of dicts with ``role`` and ``content``. MCP clients list it as a prompt.
        cost: Name of the parameter whose number or length determines the duration of a call.
            Clients with the policy "lowest_latency" use it.

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
    """Mark a method of a service as a command: long-running work that clients start, and that
    survives the process of its worker.

    ``run = await node.client(Billing).reindex.start(7)`` starts it and returns a ``tw.CommandRun``.
    One instance of the service runs it; another takes over if that process is lost. A parameter
    annotated as ``tw.Progress`` reports its progress.

    Args:
        function: The method. A coroutine is interrupted when its command is cancelled; a plain
            function when it reports its progress.
        name: Name for callers; the default is its name.
        timeout: Timeout of one attempt in seconds; None for no limit.
        retries: Number of retries after an error, a timeout or a lost worker, with a backoff from
            0.5 to 60 seconds.
        exclusive: ``"key"``: one command per key of the caller runs at a time.
        concurrency: Most commands that one instance runs at once.
        keep: Seconds for which its result or its error is stored.

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
    """Mark a method of a service as an event handler: ``@tw.on("orders.*")``. Its argument is the
    message.

    With ``durable`` it handles the events of a stream, each at least once. A return acknowledges
    the event; an error redelivers it after ``backoff``. After ``max_deliver`` deliveries it becomes
    a dead letter with the error and its traceback. A parameter annotated as ``tw.Event`` receives
    the event itself.

    Args:
        subject: A pattern of subjects.
        queue: Queue group whose members share the events; without one each instance of the service
            receives all. Not with ``durable``.
        durable: The name of the consumer: letters, digits, ``_`` and ``-``, at most 64. All
            instances of the service share its events.
        options: Options of durable handlers. ``stream``: its name, if several streams store these
            subjects. ``concurrency``: most events that one instance handles at once, 1 by default.
            ``mode``, ``start``, ``ack_wait``, ``max_deliver``, ``backoff``, ``order`` and
            ``max_in_flight`` are those of ``Stream.consumer``; a handler that runs longer than
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
    # A wrapper shares the list of marks with the wrapped function: copy it, to leave that
    # unchanged.
    marks = list(getattr(inner, MARKS, ()))
    setattr(inner, MARKS, marks)
    return marks
