"""Agent of one worker of a pool: made in the worker, it handles messages to the pool's agent."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NoReturn

from tidewire import _handlers
from tidewire._log import log
from tidewire.agents import handlers
from tidewire.agents.agent import Agent
from tidewire.agents.handlers import Handler, Table
from tidewire.agents.intake import call_handler, unhandled
from tidewire.agents.message import EXPIRES, Message
from tidewire.errors import InvalidArgument, MessageExpired
from tidewire.pools import function as functions

if TYPE_CHECKING:
    from tidewire.agents.agent_state import AgentState

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Fields = tuple[Any, ...]


class Maker(functions.PerWorker):
    """Makes the agent of each worker. It is pickled for processes, where there is no agent state.

    Attributes:
        target: A class, a ``functools.partial`` of one, a function that takes payloads, or an
            import path of a class or function.
        agent_state: State of the pool's agent, through which an agent in a thread sends. None in a
            process.
    """

    def __init__(
        self, target: Any, known: tuple[str, str, frozenset[str]], agent_state: AgentState | None = None
    ) -> None:
        self.target = target
        self.known = known
        self.agent_state = agent_state
        self.__qualname__ = title_of(target)

    def __call__(self, run: Run) -> tuple[Callable[..., Any], Callable[[], None]]:
        worker = AgentWorker(self._made(), run)
        worker.start()
        return worker.handle, worker.close

    def _made(self) -> Any:
        target = functions.resolve(self.target) if isinstance(self.target, str) else self.target
        made = target() if functions.is_agent(target) else target
        if isinstance(made, Agent):
            made.id, made.type, made.capabilities = self.known
            made._agent_state_ = self.agent_state if self.agent_state is not None else _DetachedState(self.known[0])  # type: ignore[assignment]
        return made

    def __reduce__(self) -> Any:
        return Maker, (self.target, self.known)


class AgentWorker:
    """Handles messages with one instance."""

    def __init__(self, made: Any, run: Run) -> None:
        self._table: Table = handlers.table_of(made)
        self._run = run
        self._started = getattr(made, "started", None)
        self._stopped = getattr(made, "stopped", None)

    def start(self) -> None:
        """Run the start hook. Raises whatever it raises."""
        self._hook(self._started)

    def close(self) -> None:
        """Run the stop hook. Its errors are logged: nobody waits for it."""
        try:
            self._hook(self._stopped)
        except Exception as error:  # noqa: BLE001
            log.error(
                "pool.stop_hook_failed", "stopped failed in a worker of a pool: %(error)s", exc_info=error, error=error
            )

    def handle(self, payload: Any, given: Message | Fields | None = None) -> Any:
        """Handle a message: given itself, as its fields, or as nothing but a payload."""
        message = given if isinstance(given, Message) else _message(payload, given)
        if message.expired:
            raise MessageExpired(f"message {message.id}: not handled within {message.ttl} s of its creation")
        handler = self._table.find(message) or Handler(unhandled, False, True, False)
        value = call_handler(handler, message)
        if isinstance(value, CoroutineType):
            value = self._run(value)
        answer = message.context
        return answer.value(value) if isinstance(answer, _Answer) else value

    def _hook(self, hook: Any) -> None:
        if callable(hook):
            value = hook()
            if isinstance(value, CoroutineType):
                self._run(value)


def probe(target: Any) -> Any:
    """Return what tells the handlers of a class: an instance whose ``__init__`` was not called, as
    only workers make real ones.

    Raises:
        InvalidArgument: if it is one object, which several workers can't share, or a hook takes
            more than a worker has.
    """
    if isinstance(target, str):
        target = functions.for_thread(target)
    if not functions.is_agent(target):
        return target
    kind = getattr(target, "func", target)
    if not isinstance(kind, type):
        title = type(target).__name__
        raise InvalidArgument(
            f"function: {target!r} is one agent, and each worker makes its own: give the class, {title}, "
            f"or functools.partial({title}, ...)"
        )
    try:
        made: Any = kind.__new__(kind)  # type: ignore[call-overload]
    except TypeError as error:
        raise InvalidArgument(
            f"function: {kind.__qualname__}.__new__ takes arguments ({error}): move them to __init__"
        ) from error
    for name in ("started", "stopped"):
        hook = getattr(made, name, None)
        if callable(hook):
            _handlers._count_positional(hook, f"function: {kind.__qualname__}.{name}", (0, 0))
    return made


def fields(message: Message) -> Fields:
    """Return a message as it goes to a process, without its payload."""
    known = (message.kind, message.sender, message.created, message.recipients, message.topic, message.priority)
    more = (message.ttl, message.headers, message.delivery, message.correlation_id, message.reply_to)
    return (*known, *more, message.flags & EXPIRES, message.expires, None, None, None, message.id)


def title_of(target: Any) -> str:
    """Return what people call the target of a pool."""
    return functions.name_of(getattr(target, "func", target))


def _message(payload: Any, given: Fields | None) -> Message:
    if given is None:
        return Message(payload, "request", context=_Answer())
    message = Message(payload, *given)
    message.context = _Answer()
    return message


class _Answer:
    """The place of a process for what ``Message.respond`` is given."""

    cancelled = False

    def __init__(self) -> None:
        self._given: list[Any] = []

    def reply(self, value: Any) -> bool:
        if self._given:
            raise InvalidArgument("reply: this message has been replied to already")
        self._given.append(value)
        return True

    def value(self, returned: Any) -> Any:
        return self._given[0] if self._given else returned


class _DetachedState:
    """In place of the agent state in a process, which has no node."""

    started = True
    durable = None
    failed_in_row = 0

    def __init__(self, id: str) -> None:
        self.id = id
        self.ref = _NoRef(id)

    def __getattr__(self, name: str) -> NoReturn:
        raise _no_node(self.id)


class _NoRef:
    alive = True
    outstanding = 1

    def __init__(self, id: str) -> None:
        self._id = id

    def __getattr__(self, name: str) -> NoReturn:
        raise _no_node(self._id)


def _no_node(id: str) -> InvalidArgument:
    return InvalidArgument(
        f"agent {id!r}: this instance is in a worker process, which has no node to send or look by: "
        "return the value, and let who gets it send, or make the pool with kind='thread'"
    )
