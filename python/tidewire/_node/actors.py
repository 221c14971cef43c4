"""Methods of a node for actors and timers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Unpack, overload

from tidewire import _handlers
from tidewire._binding import ActorRef, Timer
from tidewire._limits import CONCURRENCY
from tidewire._node.base import Base
from tidewire.errors import InvalidArgument, NoSuchTarget
from tidewire.supervision import Mailbox, Supervision, whole

if TYPE_CHECKING:
    from tidewire._binding import Context
    from tidewire._typed import Receives, ReceivesInContext, SpawnOptions

_M = TypeVar("_M", bound=Any)
_R = TypeVar("_R")

_LOOP = "asyncio"
"""Name of the dispatcher that runs on the node's event loop."""


class Options(NamedTuple):
    """Options of a new actor; see ``Actors.spawn``."""

    name: str | None = None
    mailbox: int | Mailbox | None = None
    dispatcher: str = "default"
    concurrency: int = 1
    supervision: Supervision | None = None

    def check(self) -> None:
        """Check the options.

        Raises:
            InvalidArgument: if an option is not allowed; the error names it.
        """
        if self.name is not None and not isinstance(self.name, str):
            raise InvalidArgument(f"name: {self.name!r} is not allowed: give a string, or None")
        if not isinstance(self.dispatcher, str):
            raise InvalidArgument(f"dispatcher: {self.dispatcher!r} is not allowed: give the name of a dispatcher")
        whole("concurrency", self.concurrency, CONCURRENCY)
        if self.supervision is not None and not isinstance(self.supervision, Supervision):
            raise InvalidArgument(f"supervision: {self.supervision!r} is not allowed: give a tw.Supervision")


class Actors(Base):
    """Actors and timers of a node."""

    # A handler with a context may send a reply that it does not return.

    @overload
    def spawn(
        self, target: type[ReceivesInContext[_M, Coroutine[Any, Any, None] | None]], *args: Any, **kwargs: Any
    ) -> ActorRef[_M, Any]: ...

    @overload
    def spawn(
        self,
        target: type[Receives[_M, Coroutine[Any, Any, _R]] | ReceivesInContext[_M, Coroutine[Any, Any, _R]]],
        *args: Any,
        **kwargs: Any,
    ) -> ActorRef[_M, _R]: ...

    @overload
    def spawn(
        self, target: type[Receives[_M, _R] | ReceivesInContext[_M, _R]], *args: Any, **kwargs: Any
    ) -> ActorRef[_M, _R]: ...

    @overload
    def spawn(self, target: type[Any], *args: Any, **kwargs: Any) -> ActorRef: ...

    @overload
    def spawn(
        self, target: Callable[[_M, Context], Coroutine[Any, Any, None] | None], **options: Unpack[SpawnOptions]
    ) -> ActorRef[_M, Any]: ...

    @overload
    def spawn(
        self,
        target: Callable[[_M], Coroutine[Any, Any, _R]] | Callable[[_M, Context], Coroutine[Any, Any, _R]],
        **options: Unpack[SpawnOptions],
    ) -> ActorRef[_M, _R]: ...

    @overload
    def spawn(
        self, target: Callable[[_M], _R] | Callable[[_M, Context], _R], **options: Unpack[SpawnOptions]
    ) -> ActorRef[_M, _R]: ...

    @overload
    def spawn(self, target: Any, **options: Unpack[SpawnOptions]) -> ActorRef: ...

    def spawn(
        self,
        target: Any,
        *args: Any,
        name: str | None = None,
        mailbox: int | Mailbox | None = None,
        dispatcher: str = "default",
        concurrency: int = 1,
        supervision: Supervision | None = None,
        **kwargs: Any,
    ) -> ActorRef:
        """Create an actor.

        Args:
            target: ``def f(message)``, ``def f(message, ctx)``, the same with ``async def``, or a
                class with ``receive(self, message[, ctx])`` and optionally ``started``, ``stopped``
                and ``handle_batch(self, messages)``. ``handle_batch`` receives all queued messages
                as one list; asks go to ``receive``, one by one. If it raises, all messages of the
                list have failed. Each is redelivered while ``max_deliveries`` allows, in the same
                order, or else becomes a dead letter with the error. ``on_failure`` applies once for
                the list.
            *args: Positional arguments for the class.
            name: A unique name for ``lookup``.
            mailbox: A capacity, or a ``tw.Mailbox``; the default is the configuration's
                ``mailbox_capacity``.
            dispatcher: Name of the dispatcher that runs it. Coroutines run on the node's event
                loop.
            concurrency: Most messages that a coroutine actor handles at once.
            supervision: Reaction to failures; the default is "resume".
            **kwargs: Keyword arguments for the class.

        Raises:
            InvalidArgument: if the target can't be an actor, or an option is out of range.
            NameTaken: if a live actor has this name; no actor is created.
            UnknownDispatcher: if there is no such dispatcher; the message lists the existing ones.
            NodeStopped: if the node has been stopped.
        """
        return self._spawn(None, target, args, kwargs, Options(name, mailbox, dispatcher, concurrency, supervision))

    def lookup(self, name: str) -> ActorRef | None:
        """Return the live actor with this name, or None."""
        return self._engine.lookup(name)

    def tell(self, name: str | Iterable[str], message: Any, priority: str = "normal") -> None:
        """Send a message to the actor with this name, or to each of several.

        Raises:
            InvalidArgument: if a name is not a string, or there is no such priority.
            NoSuchTarget: if no live actor has one of the names; no message is sent then.
            MailboxFull: if a mailbox is full and its policy is not to drop.
        """
        if not isinstance(name, (str, Iterable)):
            raise InvalidArgument(f"name: {name!r} is not allowed: give the name of an actor, or a list of names")
        names = [name] if isinstance(name, str) else list(name)
        refs = {actor_name: self.lookup(actor_name) for actor_name in names}
        missing = [actor_name for actor_name, ref in refs.items() if ref is None]
        if missing:
            raise NoSuchTarget(
                f"name: no live actor is called {', '.join(map(repr, missing))}: spawn it, or look at node.statistics()"
            )
        for ref in refs.values():
            assert ref is not None
            ref.tell(message, priority)

    def schedule(
        self, delay: float, ref: ActorRef, message: Any, every: float | None = None, priority: str = "normal"
    ) -> Timer:
        """Send a message to an actor after ``delay`` seconds, and then, with ``every``, at that
        interval.

        Raises:
            InvalidArgument: if a time is negative or not a number.
        """
        self._check()
        if not isinstance(ref, ActorRef):
            raise InvalidArgument(f"ref: {ref!r} is not an actor: give the result of node.spawn() or node.lookup(name)")
        return self._engine.schedule(delay, ref, message, every, priority)

    def _spawn_child(
        self, parent: ActorRef, target: Any, args: tuple[Any, ...], options: dict[str, Any] | None
    ) -> ActorRef:
        kwargs = dict(options or {})
        option_values = {key: kwargs.pop(key) for key in Options._fields if key in kwargs}
        return self._spawn(parent, target, args, kwargs, Options(**option_values))

    def _spawn(
        self, parent: ActorRef | None, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options
    ) -> ActorRef:
        def plan() -> _handlers.Plan:
            if hasattr(target, "receive"):
                _handlers.check_restart(getattr(options.supervision, "on_failure", None), target, "target")
            return _handlers.plan(target, args, kwargs)

        return self._spawn_plan(plan, options, parent)

    def _spawn_plan(
        self, make: Callable[[], _handlers.Plan], options: Options, parent: ActorRef | None = None
    ) -> ActorRef:
        return self._spawner(make, options, parent)(name=options.name)

    def _spawner(
        self, make: Callable[[], _handlers.Plan], options: Options, parent: ActorRef | None
    ) -> Callable[..., ActorRef]:
        """Return a function that spawns actors of one plan, each with the argument ``name``."""
        self._check()
        # Check the options first: a refused actor's class is not called.
        options.check()
        _, mailbox, dispatcher, concurrency, supervision = options
        mailbox_options = mailbox if isinstance(mailbox, Mailbox) else None if mailbox is None else Mailbox(mailbox)
        plan = make()
        _check_plan(plan, dispatcher, concurrency)
        if plan.coroutine or dispatcher == _LOOP:
            self._ensure_loop()
        return functools.partial(
            self._engine.spawn,
            plan,
            self._self,
            parent,
            capacity=None if mailbox_options is None else mailbox_options.capacity,
            overflow=None if mailbox_options is None else mailbox_options.overflow,
            dispatcher=dispatcher,
            concurrency=concurrency,
            supervision=supervision,
        )


def _check_plan(plan: _handlers.Plan, dispatcher: str, concurrency: int) -> None:
    if concurrency > 1 and not plan.coroutine:
        raise InvalidArgument(
            f"concurrency: {concurrency} needs coroutines: make the handler `async def`, or leave concurrency at 1"
        )
    if plan.batch is not None and dispatcher == _LOOP:
        raise InvalidArgument(
            f"dispatcher: {dispatcher!r} is the event loop, and handle_batch runs on threads: choose another dispatcher"
        )
