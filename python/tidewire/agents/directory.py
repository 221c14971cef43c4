"""Directory of agents: by id, by type and by capability."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tidewire.agents.message import HAS_RECEIPT, Message
from tidewire.errors import InvalidArgument, NameTaken, NoSuchTarget, TidewireError

if TYPE_CHECKING:
    from tidewire._binding import Engine
    from tidewire.agents.agent import Agent
    from tidewire.agents.agent_state import AgentState
    from tidewire.node import Node

_EXACT_MAX = 64
_SAMPLE = 16
_LISTED_MAX = 10

_Agents = dict[str, "Agent"]


class Directory:
    """The live agents of a node, at ``node.agents``. Iteration follows the order of their
    registration.
    """

    def __init__(self, notify: Callable[[], object], unreachable_error: Callable[[str], TidewireError | None]) -> None:
        # Called after each addition and removal of an agent.
        self._notify = notify
        # Returns the error in place of NoSuchTarget while other nodes are unreachable.
        self._unreachable_error = unreachable_error
        self.by_id: _Agents = {}
        self.agent_states: dict[str | Iterable[str] | None, AgentState] = {}
        self._groups: dict[tuple[str, str], _Agents] = {}
        self._group_cache: dict[tuple[str, str], tuple[Agent, ...]] = {}
        self._keys: dict[str, list[tuple[str, str]]] = {}
        self._next_start = itertools.count()
        self._letters_seen = 0
        # Number of awaited receipts, and the task that settles them while there are any.
        self._open_receipts = 0
        self._settling_task: asyncio.Task[None] | None = None
        self._lock = threading.Lock()

    def get(self, id: str) -> Agent | None:
        """Return the live agent with this id, or None."""
        _check_name("id", id)
        agent = self.by_id.get(id)
        return agent if agent is not None and _is_alive(agent) else None

    def list(self, *, type: str | None = None, capability: str | None = None) -> list[Agent]:
        """Return the live agents, optionally only those with a type and a capability. Agents of
        other nodes are left out while the link to the hub is lost.
        """
        for field, value in (("type", type), ("capability", capability)):
            _check_name(field, value)
        with self._lock:
            chosen: Iterable[Agent] = tuple(self.by_id.values())
        if type is not None:
            chosen = self._group("type", type)
        if capability is not None:
            chosen = [agent for agent in chosen if capability in agent.capabilities]
        return [agent for agent in chosen if _is_alive(agent) and not agent._is_lost]

    def choose(self, type: str | None, capability: str | None) -> Agent:
        """Return the agent with the least outstanding work among those with a type or capability.
        Ties are resolved round-robin.

        With more than 64 candidates it compares only 16 of them, which rotate between calls.

        Raises:
            NoSuchTarget: if there is none.
        """
        group = self._group(*(("type", type) if type is not None else ("capability", str(capability))))
        if type is not None and capability is not None:
            group = tuple(agent for agent in group if capability in agent.capabilities)
        best = self._least(group)
        if best is None:
            criteria = " and ".join(
                f"{k}={v!r}" for k, v in (("type", type), ("capability", capability)) if v is not None
            )
            problem = f"no live agent has {criteria}"
            raise self._unreachable_error(problem) or NoSuchTarget(f"{problem}: {self._known()}")
        return best

    def find(self, id: str) -> Agent:
        """Return the live agent with this id.

        Raises:
            NoSuchTarget: if there is none.
        """
        agent = self.get(id)
        if agent is None:
            problem = f"to: no live agent has the id {id!r}"
            raise self._unreachable_error(problem) or NoSuchTarget(f"{problem}: {self._known()}")
        return agent

    def add(self, agent: Agent) -> None:
        """Register an agent.

        Raises:
            NameTaken: if a live agent has its id.
        """
        with self._lock:
            agent_state = self.agent_states.get(agent.id)
            if agent_state is not None and agent_state.ref.alive:
                raise NameTaken(f"id: a live agent is called {agent.id!r} already: choose another id, or stop that one")
            if agent_state is not None:
                self._drop(agent.id)
            self.by_id[agent.id] = agent
            self.agent_states[agent.id] = agent._registered_state
            # A copy, as user code may change the attributes of an agent.
            self._keys[agent.id] = _keys(agent)
            for key in self._keys[agent.id]:
                self._groups.setdefault(key, {})[agent.id] = agent
                self._group_cache.pop(key, None)
        self._notify()

    def remove(self, agent_state: AgentState) -> None:
        """Remove the agent of a state, if it is the registered one of its id."""
        with self._lock:
            if self.agent_states.get(agent_state.id) is agent_state:
                self._drop(agent_state.id)
        self._notify()

    def settle_dead_letters(self, node: Node) -> None:
        """Settle the receipts of messages that became dead letters before a handler ran."""
        with self._lock:
            letters = node._engine.dead_letters(self._letters_seen)
            self._letters_seen = max((letter["number"] for letter in letters), default=self._letters_seen)
        for letter in letters:
            message = letter["message"]
            if isinstance(message, Message) and message.flags & HAS_RECEIPT and letter["reason"] != "expired":
                message.receipt.mark("failed")
                if (agent_state := self.agent_states.get(message.receipt.recipient)) is not None:
                    agent_state.receipts.discard(message.receipt)

    @contextmanager
    def settling_dead_letters(self, node: Node) -> Iterator[None]:
        """Settle receipts of dead letters on the loop of the node while this context is open."""
        with self._lock:
            self._open_receipts += 1
            is_first = self._open_receipts == 1
        if is_first and node._loop is not None:
            # The loop may be closed.
            with suppress(RuntimeError):
                node._loop.call_soon_threadsafe(self._start_settling, node)
        try:
            yield
        finally:
            with self._lock:
                self._open_receipts -= 1
                is_last = not self._open_receipts
            if is_last:
                self._notify()

    def _start_settling(self, node: Node) -> None:
        if self._settling_task is None or self._settling_task.done():
            self._settling_task = asyncio.get_running_loop().create_task(self._settle_on_changes(node._engine, node))

    async def _settle_on_changes(self, engine: Engine, node: Node) -> None:
        while self._open_receipts:
            seen = engine.change_counter.count
            self.settle_dead_letters(node)
            if self._open_receipts:
                await engine.changed(engine.change_counter, seen, None)

    def __iter__(self) -> Iterator[Agent]:
        return iter(self.list())

    def __len__(self) -> int:
        return len(self.list())

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and self.get(id) is not None

    def __repr__(self) -> str:
        return f"<Directory of {len(self)} agents>"

    def _drop(self, id: str) -> None:
        del self.by_id[id], self.agent_states[id]
        for key in self._keys.pop(id):
            group = self._groups.get(key, {})
            group.pop(id, None)
            if not group:
                self._groups.pop(key, None)
            self._group_cache.pop(key, None)

    def _group(self, field: str, name: str) -> tuple[Agent, ...]:
        key = (field, name)
        cached = self._group_cache.get(key)
        if cached is None:
            with self._lock:
                cached = tuple(self._groups.get(key, {}).values())
                if cached:
                    self._group_cache[key] = cached
        return cached

    def _least(self, group: tuple[Agent, ...]) -> Agent | None:
        count = len(group)
        if count == 0:
            return None
        start = next(self._next_start) % count
        sample = count if count <= _EXACT_MAX else _SAMPLE
        best, least = None, 0
        for at in itertools.chain(range(sample), range(sample, count)):
            if at >= sample and best is not None:
                break
            agent = group[(start + at) % count]
            work = agent.ref.outstanding
            if (best is None or work < least) and agent.ref.alive:
                best, least = agent, work
                if work == 0:
                    break
        return best

    def _known(self) -> str:
        with self._lock:
            ids = list(itertools.islice(self.by_id, _LISTED_MAX))
        if not ids:
            return "none is registered: make one with node.agent(...)"
        more = len(self.by_id) - len(ids)
        return f"registered are {', '.join(map(repr, ids))}{f' and {more:,} more' if more else ''}"


def _check_name(field: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise InvalidArgument(f"{field}: {value!r} is not allowed: give a string")


def _is_alive(agent: Agent) -> bool:
    """Return True if an agent is alive. Close one that ended without its stop hook: its start
    failed, or it was abandoned.
    """
    agent_state = agent._registered_state
    if agent_state.ref.alive:
        return True
    if agent_state.ended:
        agent_state.close()
    return False


def _keys(agent: Agent) -> list[tuple[str, str]]:
    types = [("type", agent.type)] if agent.type else []
    return [*types, *(("capability", capability) for capability in agent.capabilities)]
