"""Finds agents by id, by type and by capability."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tidewire.errors import NameTaken, NoSuchTarget

if TYPE_CHECKING:
    from tidewire.agents.agent import Agent
    from tidewire.agents.desk import Desk

_EXACT_MAX = 64
_SAMPLE = 16
_LISTED_MAX = 10

_Agents = dict[str, "Agent"]


class Directory:
    """The live agents of a node, at ``node.agents``. Iterating gives them in the order in which they were registered."""

    def __init__(self) -> None:
        self.by_id: _Agents = {}
        self.desks: dict[str | Iterable[str] | None, Desk] = {}
        self._groups: dict[tuple[str, str], _Agents] = {}
        self._listed: dict[tuple[str, str], tuple[Agent, ...]] = {}
        self._turns = itertools.count()
        self._lock = threading.Lock()

    def get(self, id: str) -> Agent | None:
        """Return the live agent with this id, or None."""
        agent = self.by_id.get(id)
        return agent if agent is not None and agent.ref.alive else None

    def list(self, *, type: str | None = None, capability: str | None = None) -> list[Agent]:
        """Return the live agents, or those of a type and with a capability."""
        chosen: Iterable[Agent] = tuple(self.by_id.values())
        if type is not None:
            chosen = self._group("type", type)
        if capability is not None:
            chosen = [agent for agent in chosen if capability in agent.capabilities]
        return [agent for agent in chosen if agent.ref.alive]

    def choose(self, type: str | None, capability: str | None) -> Agent:
        """Return the one of a type or with a capability that has the least outstanding work; of equal ones, in turn.

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
            raise NoSuchTarget(f"no live agent has {wanted}: {self._known()}")
        return best

    def find(self, id: str) -> Agent:
        """Return the live agent with this id.

        Raises:
            NoSuchTarget: if there is none.
        """
        agent = self.get(id)
        if agent is None:
            raise NoSuchTarget(f"to: no live agent has the id {id!r}: {self._known()}")
        return agent

    def add(self, agent: Agent) -> None:
        """Register an agent.

        Raises:
            NameTaken: if a live agent has its id.
        """
        with self._lock:
            before = self.by_id.get(agent.id)
            if before is not None and before.ref.alive:
                raise NameTaken(f"id: a live agent is called {agent.id!r} already: choose another id, or stop that one")
            if before is not None:
                self._drop(before)
            self.by_id[agent.id] = agent
            self.desks[agent.id] = agent._desk
            for key in _keys(agent):
                self._groups.setdefault(key, {})[agent.id] = agent
                self._listed.pop(key, None)

    def remove(self, desk: Desk) -> None:
        """Forget the agent of a desk, if it is the one registered under its id."""
        with self._lock:
            agent = self.by_id.get(desk.id)
            if agent is not None and agent._desk is desk:
                self._drop(agent)

    def __iter__(self) -> Iterator[Agent]:
        return iter(self.list())

    def __len__(self) -> int:
        return len(self.list())

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and self.get(id) is not None

    def __repr__(self) -> str:
        return f"<Directory of {len(self)} agents>"

    def _drop(self, agent: Agent) -> None:
        del self.by_id[agent.id], self.desks[agent.id]
        for key in _keys(agent):
            group = self._groups.get(key, {})
            group.pop(agent.id, None)
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
        ids = list(itertools.islice(self.by_id, _LISTED_MAX))
        if not ids:
            return "none is registered: make one with node.agent(...)"
        more = len(self.by_id) - len(ids)
        return f"registered are {', '.join(map(repr, ids))}{f' and {more:,} more' if more else ''}"


def _keys(agent: Agent) -> list[tuple[str, str]]:
    typed = [("type", agent.type)] if agent.type else []
    return [*typed, *(("capability", capability) for capability in agent.capabilities)]
