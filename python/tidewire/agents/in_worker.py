"""Agent of one pool worker, which handles messages to the agent of the pool."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NoReturn

from tidewire import _handlers
from tidewire._log import log
from tidewire.agents import handlers
from tidewire.agents.agent import Agent
from tidewire.agents.handlers import Handler, Table
from tidewire.agents.message import EXPIRES, Message
from tidewire.agents.receiver import call_handler, unhandled
from tidewire.errors import InvalidArgument, MessageExpired
from tidewire.pools import function as functions

if TYPE_CHECKING:
    from tidewire.agents.agent_state import AgentState

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Fields = tuple[Any, ...]


class Maker(functions.PerWorker):
    """Factory of the agent of each worker. It is pickled for processes, without the agent state.

    Attributes:
        target: A class, a ``functools.partial`` of one, a function that takes payloads, or an
            import path of a class or function.
        agent_state: State of the pool's agent, through which an agent in a thread sends. None in a
            process.
    """

    def __init__(
        self, target: Any, identity: tuple[str, str, frozenset[str]], agent_state: AgentState | None = None
    ) -> None:
        self.target = target
        self.identity = identity
        self.agent_state = agent_state
        self.__qualname__ = title_of(target)

    def __call__(self, run: Run) -> tuple[Callable[..., Any], Callable[[], None]]:
        worker = AgentWorker(self._make(), run)
        worker.start()
        return worker.handle, worker.close

    def _make(self) -> Any:
        target = functions.resolve(self.target) if isinstance(self.target, str) else self.target
        agent = target() if functions.is_agent(target) else target
        if isinstance(agent, Agent):
            agent.id, agent.type, agent.capabilities = self.identity
            state: Any = _DetachedState(agent.id) if self.agent_state is None else self.agent_state
            agent._agent_state_ = state
        return agent

    def __reduce__(self) -> Any:
        return Maker, (self.target, self.identity)


class AgentWorker:
    """Message handling of one instance in a worker."""

    def __init__(self, agent: Any, run: Run) -> None:
        self._table: Table = handlers.table_of(agent)
        self._run = run
        self._started = getattr(agent, "started", None)
        self._stopped = getattr(agent, "stopped", None)

    def start(self) -> None:
        """Run the start hook. Raises the errors of the hook."""
        self._hook(self._started)

    def close(self) -> None:
        """Run the stop hook. Its errors are logged, as no caller waits for it."""
        try:
            self._hook(self._stopped)
        except Exception as error:  # noqa: BLE001
            log.error(
                "pool.stop_hook_failed", "stopped failed in a worker of a pool: %(error)s", exc_info=error, error=error
            )

    def handle(self, payload: Any, message_data: Message | Fields | None = None) -> Any:
        """Handle a message, the fields of one, or a bare payload."""
        message = message_data if isinstance(message_data, Message) else _message(payload, message_data)
        if message.expired:
            raise MessageExpired(f"message {message.id}: not handled within {message.ttl} s of its creation")
        handler = self._table.find(message) or Handler(unhandled, False, True, False)
        value = call_handler(handler, message)
        if isinstance(value, CoroutineType):
            value = self._run(value)
        reply = message.context
        return reply.value(value) if isinstance(reply, _ReplySlot) else value

    def _hook(self, hook: Any) -> None:
        if callable(hook):
            value = hook()
            if isinstance(value, CoroutineType):
                self._run(value)


def probe(target: Any) -> Any:
    """Return an instance for the lookup of handlers, made without ``__init__``: only workers make
    complete instances.

    Raises:
        InvalidArgument: if the target is one object, which several workers can't share, or a hook
            has parameters.
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
        agent: Any = kind.__new__(kind)  # type: ignore[call-overload]
    except TypeError as error:
        raise InvalidArgument(
            f"function: {kind.__qualname__}.__new__ takes arguments ({error}): move them to __init__"
        ) from error
    for name in ("started", "stopped"):
        hook = getattr(agent, name, None)
        if callable(hook):
            _handlers._count_positional(hook, f"function: {kind.__qualname__}.{name}", (0, 0))
    return agent


def fields(message: Message) -> Fields:
    """Return the fields of a message for a process, without its payload."""
    head = (message.kind, message.sender, message.created, message.recipients, message.topic, message.priority)
    rest = (message.ttl, message.headers, message.delivery, message.correlation_id, message.reply_to)
    return (*head, *rest, message.flags & EXPIRES, message.expires, None, None, None, message.id)


def title_of(target: Any) -> str:
    """Return the display name of the target of a pool."""
    return functions.name_of(getattr(target, "func", target))


def _message(payload: Any, message_data: Fields | None) -> Message:
    if message_data is None:
        return Message(payload, "request", context=_ReplySlot())
    message = Message(payload, *message_data)
    message.context = _ReplySlot()
    return message


class _ReplySlot:
    """Reply of ``Message.respond`` in a worker process."""

    cancelled = False

    def __init__(self) -> None:
        self._replies: list[Any] = []

    def reply(self, value: Any) -> bool:
        if self._replies:
            raise InvalidArgument("reply: this message has been replied to already")
        self._replies.append(value)
        return True

    def value(self, returned: Any) -> Any:
        return self._replies[0] if self._replies else returned


class _DetachedState:
    """Stub of the agent state in a worker process, which has no node."""

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
