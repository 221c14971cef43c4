"""Turns of durable agents: the messages of one handler run, and the new state; and durable sends of
other agents.
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
    """One run of a handler of an agent with state: its messages go out with the new state."""

    durable: Durable
    holding: int
    arrival: Arrival | None
    sends: list[tuple[str, bytes]] = field(default_factory=list)


@dataclass
class Arrival:
    """A message from the inbox on its way through the actor.

    Attributes:
        sequence: Its place in the inbox.
        error: The exception of its handler.
    """

    sequence: int
    error: BaseException | None = None


turn: ContextVar[StateTransaction | None] = ContextVar("tidewire_agent_turn", default=None)
BEGIN = object()
"""What the actor is given first, each time that the agent begins."""


class DurableSend:
    """A durable send: awaiting it gives None once the message is stored, or, in a handler of an
    agent with state, at once.
    """

    __slots__ = ("_loop", "_post")

    def __init__(self, agent_state: AgentState, post: Callable[[], Awaitable[None]] | None) -> None:
        self._post, self._loop = post, agent_state.node._loop

    def __await__(self) -> Any:
        if self._post is not None:
            yield from self._post().__await__()

    def wait(self) -> None:
        """Block until it is stored."""
        if self._post is not None:
            post: Any = self._post()
            assert self._loop is not None
            asyncio.run_coroutine_threadsafe(post, self._loop).result()


def send(agent_state: AgentState, ids: list[str], messages: list[Message]) -> DurableSend:
    """Send messages that outlive processes: with the state of the agent whose handler this is, or
    now.

    Raises:
        LimitExceeded: if a handler sends too many.
        PayloadTooLarge: if one is too long.
        InvalidArgument: if one can't be written, or the node has no place for streams.
    """
    written = [(to, form.to_msgpack(message), message) for to, message in zip(ids, messages, strict=True)]
    most = _limits.AGENT_STATE_BYTES.default
    for to, data, _ in written:
        if len(data) > most:
            raise PayloadTooLarge(f"payload: the message to {to!r} takes {len(data):,} bytes, and {most:,} are allowed")
    agent_state.sent += len(written)
    current = turn.get()
    if current is not None and current.durable is agent_state.durable and current.durable.mode == "state":
        if len(current.sends) + len(written) > _limits.AGENT_OUTBOX.default:
            raise LimitExceeded(f"agent_outbox: a handler sends at most {_limits.AGENT_OUTBOX.default:,} messages")
        current.sends.extend((to, data) for to, data, _ in written)
        return DurableSend(agent_state, None)
    store = agent_state.node._inbox_store()
    agent_state.node._ensure_loop()

    async def post() -> None:
        for to, data, message in written:
            await store.post(to, data, f"{message.id}.{inbox_store.token(to)}")

    return DurableSend(agent_state, post)


def state_of(target: Any, id: str) -> tuple[Callable[[bytes], Any], bytes]:
    """Return what reads a state, and the one that the agent begins with.

    Raises:
        InvalidArgument: if it has none, or one that can't be written.
    """
    from tidewire.services.contract.conversion import UNFIT, converter
    from tidewire.values import decode

    if getattr(target, "state", None) is None:
        raise InvalidArgument(
            'durable: "state" is for objects with a `state`, such as a dataclass: set it before the agent is registered, or say durable="inbox"'
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

    initial = encoded(target.state)
    load(initial)
    return load, initial


def encoded(state: Any) -> bytes:
    from tidewire.values import encode

    return encode(state)
