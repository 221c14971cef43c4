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
    """The live agents of a node, at ``node.agents``. Iterating gives them in the order in which
    they were registered.
    """

    def __init__(self, tell: Callable[[], object], lost: Callable[[str], TidewireError | None]) -> None:
        # Called when an agent has come or gone.
        self._tell = tell
        # Returns the error in place of NoSuchTarget while other nodes can't be reached.
        self._lost = lost
        self.by_id: _Agents = {}
        self.agent_states: dict[str | Iterable[str] | None, AgentState] = {}
        self._groups: dict[tuple[str, str], _Agents] = {}
        self._listed: dict[tuple[str, str], tuple[Agent, ...]] = {}
        self._keys: dict[str, list[tuple[str, str]]] = {}
        self._turns = itertools.count()
        self._letters_seen = 0
        # Receipts that are waited for, and the task that tells of letters as long as there are
        # some.
        self._followers = 0
        self._following: asyncio.Task[None] | None = None
        self._lock = threading.Lock()

    def get(self, id: str) -> Agent | None:
        """Return the live agent with this id, or None."""
        _check_name("id", id)
        agent = self.by_id.get(id)
        return agent if agent is not None and _lives(agent) else None

    def list(self, *, type: str | None = None, capability: str | None = None) -> list[Agent]:
        """Return the live agents, or those of a type and with a capability; none of other nodes
        while the link to the hub is lost.
        """
        for field, value in (("type", type), ("capability", capability)):
            _check_name(field, value)
        with self._lock:
            chosen: Iterable[Agent] = tuple(self.by_id.values())
        if type is not None:
            chosen = self._group("type", type)
        if capability is not None:
            chosen = [agent for agent in chosen if capability in agent.capabilities]
        return [agent for agent in chosen if _lives(agent) and not agent._is_lost]

    def choose(self, type: str | None, capability: str | None) -> Agent:
        """Return the one of a type or with a capability that has the least outstanding work; of
        equal ones, in turn.

        Of more than 64 the best of 16 is taken, which move on from call to call.

        Raises:
            NoSuchTarget: if there is none.
        """
        group = self._group(*(("type", type) if type is not None else ("capability", str(capability))))
        if type is not None and capability is not None:
            group = tuple(agent for agent in group if capability in agent.capabilities)
        best = self._least(group)
        if best is None:
            wanted = " and ".join(
                f"{k}={v!r}" for k, v in (("type", type), ("capability", capability)) if v is not None
            )
            what = f"no live agent has {wanted}"
            raise self._lost(what) or NoSuchTarget(f"{what}: {self._known()}")
        return best

    def find(self, id: str) -> Agent:
        """Return the live agent with this id.

        Raises:
            NoSuchTarget: if there is none.
        """
        agent = self.get(id)
        if agent is None:
            what = f"to: no live agent has the id {id!r}"
            raise self._lost(what) or NoSuchTarget(f"{what}: {self._known()}")
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
            # Kept, as the attributes of an agent are the user's to change.
            self._keys[agent.id] = _keys(agent)
            for key in self._keys[agent.id]:
                self._groups.setdefault(key, {})[agent.id] = agent
                self._listed.pop(key, None)
        self._tell()

    def remove(self, agent_state: AgentState) -> None:
        """Forget the agent of a state, if it is the one registered under its id."""
        with self._lock:
            if self.agent_states.get(agent_state.id) is agent_state:
                self._drop(agent_state.id)
        self._tell()

    def look_at_letters(self, node: Node) -> None:
        """Settle the receipts of messages that became dead letters without a handler."""
        with self._lock:
            fresh = node._engine.dead_letters(self._letters_seen)
            self._letters_seen = max((letter["number"] for letter in fresh), default=self._letters_seen)
        for letter in fresh:
            message = letter["message"]
            if isinstance(message, Message) and message.flags & HAS_RECEIPT and letter["reason"] != "expired":
                message.receipt.mark("failed")
                if (agent_state := self.agent_states.get(message.receipt.recipient)) is not None:
                    agent_state.receipts.discard(message.receipt)

    @contextmanager
    def followed(self, node: Node) -> Iterator[None]:
        """Meanwhile the loop of the node settles the receipts of messages as they become dead
        letters.
        """
        with self._lock:
            self._followers += 1
            begins = self._followers == 1
        if begins and node._loop is not None:
            # A loop that is closed tells nobody.
            with suppress(RuntimeError):
                node._loop.call_soon_threadsafe(self._follow, node)
        try:
            yield
        finally:
            with self._lock:
                self._followers -= 1
                ends = not self._followers
            if ends:
                self._tell()

    def _follow(self, node: Node) -> None:
        if self._following is None or self._following.done():
            self._following = asyncio.get_running_loop().create_task(self._follow_changes(node._engine, node))

    async def _follow_changes(self, engine: Engine, node: Node) -> None:
        while self._followers:
            seen = engine.change_counter.count
            self.look_at_letters(node)
            if self._followers:
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
            self._listed.pop(key, None)

    def _group(self, what: str, name: str) -> tuple[Agent, ...]:
        key = (what, name)
        listed = self._listed.get(key)
        if listed is None:
            with self._lock:
                listed = tuple(self._groups.get(key, {}).values())
                if listed:
                    self._listed[key] = listed
        return listed

    def _least(self, group: tuple[Agent, ...]) -> Agent | None:
        count = len(group)
        if count == 0:
            return None
        start = next(self._turns) % count
        looks = count if count <= _EXACT_MAX else _SAMPLE
        best, least = None, 0
        for at in itertools.chain(range(looks), range(looks, count)):
            if at >= looks and best is not None:
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


def _lives(agent: Agent) -> bool:
    """True if an agent is alive. The directory forgets an agent that ended without its hook,
    because its start failed or it was abandoned.
    """
    agent_state = agent._registered_state
    if agent_state.ref.alive:
        return True
    if agent_state.ended:
        agent_state.close()
    return False


def _keys(agent: Agent) -> list[tuple[str, str]]:
    typed = [("type", agent.type)] if agent.type else []
    return [*typed, *(("capability", capability) for capability in agent.capabilities)]
