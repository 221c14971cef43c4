"""State transactions of durable agents (the sends of one handler run and its new state), and
durable sends of other agents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidewire import _limits
from tidewire.agents import form, inbox_store
from tidewire.errors import InvalidArgument, LimitExceeded, PayloadTooLarge

if TYPE_CHECKING:
    from tidewire.agents.agent_state import AgentState
    from tidewire.agents.durable import Durable
    from tidewire.agents.message import Message


@dataclass
class StateTransaction:
    """One handler run of a durable agent. Its sends are stored together with the new state."""

    durable: Durable
    term: int
    arrival: Arrival | None
    sends: list[tuple[str, bytes]] = field(default_factory=list)


@dataclass
class Arrival:
    """A message from the inbox while the actor handles it.

    Attributes:
        sequence: Sequence of the message in the inbox.
        error: Exception of its handler.
    """

    sequence: int
    error: BaseException | None = None


current: ContextVar[StateTransaction | None] = ContextVar("tidewire_agent_turn", default=None)
BEGIN = object()
"""First message to the actor each time that the agent becomes active."""


class DurableSend:
    """A durable send. Awaiting it returns once the message is stored; in a handler of an agent with
    state, at once.
    """

    __slots__ = ("_loop", "_post")

    def __init__(self, agent_state: AgentState, post: Callable[[], Awaitable[None]] | None) -> None:
        self._post, self._loop = post, agent_state.node._loop

    def __await__(self) -> Any:
        if self._post is not None:
            yield from self._post().__await__()

    def wait(self) -> None:
        """Block until the message is stored."""
        if self._post is not None:
            post: Any = self._post()
            assert self._loop is not None
            asyncio.run_coroutine_threadsafe(post, self._loop).result()


def send(agent_state: AgentState, ids: list[str], messages: list[Message]) -> DurableSend:
    """Send durable messages: in a handler of an agent with state as part of its transaction, else
    at once.

    Raises:
        LimitExceeded: if a handler sends too many messages.
        PayloadTooLarge: if a message is too large.
        InvalidArgument: if a message can't be encoded, or the node has no storage backend.
    """
    encoded = [(to, form.to_msgpack(message), message) for to, message in zip(ids, messages, strict=True)]
    bytes_max = _limits.AGENT_STATE_BYTES.default
    for to, data, _ in encoded:
        if len(data) > bytes_max:
            raise PayloadTooLarge(
                f"payload: the message to {to!r} takes {len(data):,} bytes, and {bytes_max:,} are allowed"
            )
    agent_state.sent += len(encoded)
    transaction = current.get()
    if transaction is not None and transaction.durable is agent_state.durable and transaction.durable.mode == "state":
        if len(transaction.sends) + len(encoded) > _limits.AGENT_OUTBOX.default:
            raise LimitExceeded(f"agent_outbox: a handler sends at most {_limits.AGENT_OUTBOX.default:,} messages")
        transaction.sends.extend((to, data) for to, data, _ in encoded)
        return DurableSend(agent_state, None)
    store = agent_state.node._inbox_store()
    agent_state.node._ensure_loop()

    async def post() -> None:
        for to, data, message in encoded:
            await store.post(to, data, f"{message.id}.{inbox_store.token(to)}")

    return DurableSend(agent_state, post)


def state_of(target: Any, id: str) -> tuple[Callable[[bytes], Any], bytes]:
    """Return the decoder of a state, and the encoded initial state.

    Raises:
        InvalidArgument: if the object has no state, or its state can't be encoded.
    """
    from tidewire.services.contract.conversion import UNFIT, converter
    from tidewire.values import decode

    if getattr(target, "state", None) is None:
        raise InvalidArgument(
            'durable: "state" is for objects with a `state`, such as a dataclass: set it before the agent is registered, or give durable="inbox"'
        )
    kind = type(target.state)
    exact, convert = converter(kind)

    def load(data: bytes) -> Any:
        value = decode(data)
        if convert is None or value.__class__ is exact:
            return value
        try:
            return convert(value)
        except UNFIT as error:
            raise InvalidArgument(
                f"agent {id!r}: its state does not fit {kind.__qualname__}: {error}: give new fields a default, or take another id"
            ) from error

    initial = encode_state(target.state)
    load(initial)
    return load, initial


def encode_state(state: Any) -> bytes:
    from tidewire.values import encode

    return encode(state)
