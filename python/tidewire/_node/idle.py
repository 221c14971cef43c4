"""Quiescence of a node: the moment in which its actors, agents and pools have nothing to do."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING

from tidewire._binding import ChangeCounter
from tidewire._log import log
from tidewire._numbers import check_seconds
from tidewire.errors import AskCycle, InvalidArgument

if TYPE_CHECKING:
    from tidewire._binding import Mark, Pending
    from tidewire._runtime.steps import Steps
    from tidewire.agents.agent_state import PendingRetry
    from tidewire.node import Node

_NAMED_MAX = 5
_ON_LOOP = "asyncio"
_NOT_RUNNING = "; the event loop of the node does not run, so that its coroutines can't end"
_Marks = tuple["Mark", dict[str, int]]


class IdleWatch:
    """Looks whether a node has anything to do, and says for what to wait if it has.

    The parts are looked at one after the other, so that one look says nothing. All had nothing to
    do between two looks, one behind the other, that found the same.
    """

    def __init__(self, node: Node, timeout: float | None) -> None:
        self._node = node
        self._timeout = timeout
        self._until = None if timeout is None else monotonic() + timeout
        self._before: _Marks | None = None

    def look(self) -> Pending | None:
        """Return what to wait for before the next look, or None if there is nothing to do.

        Raises:
            TimeoutError: if the time is up, or something is to be tried again only later; it names
                what there is to do.
        """
        engine = self._node._engine
        while True:
            mark, tasks = engine.mark, {}
            if mark is None:
                return engine.idle(self._left_s())
            later = self._later()
            if later is not None:
                return self._waits(later)
            for pool in self._node._live_pools():
                core = pool._core
                # Before the look: what changes meanwhile is looked at again.
                seen = core.rests.count
                accepted = core.accepted_if_idle()
                if accepted is None:
                    return engine.changed(core.rests, seen, self._left_s())
                tasks[pool.name] = accepted
            for one in list(self._node._waits_for):
                seen = one.rests.count
                if not one.is_idle():
                    return engine.changed(one.rests, seen, self._left_s())
            found = mark, tasks
            if found == self._before:
                return None
            self._before = found

    def _later(self) -> PendingRetry | None:
        """Return the next message that an agent tries again."""
        directory = self._node._agents
        agent_states = (
            [] if directory is None else [agent._registered_state for agent in list(directory.by_id.values())]
        )
        waiting = [
            later
            for agent_state in agent_states
            for later in list(agent_state.pending_retries.values())
            if later.timer.waiting
        ]
        return min(waiting, key=lambda later: later.due, default=None)

    def _waits(self, later: PendingRetry) -> Pending:
        if self._until is not None and later.due > self._until:
            raise self._late()
        left_s = later.due - monotonic()
        return self._node._engine.changed(ChangeCounter(), 0, left_s) if left_s > 0 else later.timer.outcome()

    def _left_s(self) -> float | None:
        if self._until is None:
            return None
        left_s = self._until - monotonic()
        if left_s <= 0:
            raise self._late()
        return left_s

    def _late(self) -> TimeoutError:
        agents = [] if (later := self._later()) is None else [f"message {later.message.id}, which is tried again"]
        busy = shortened([*at_work(self._node), *agents])
        return TimeoutError(f"{self._node!r} is not idle after {self._timeout:g} s: {busy} still at work")


def at_work(node: Node) -> list[str]:
    """Return what errors call the actors and pools of a node that have something to do."""
    actors = [f"{row['name'] or 'actor'} (#{row['id']})" for row in node._engine.busy()]
    waited = [one.title for one in node._waits_for if not one.is_idle()]
    return [
        *actors,
        *waited,
        *(f"pool {pool.name!r}" for pool in node._live_pools() if pool._core.accepted_if_idle() is None),
    ]


def stranded(node: Node) -> list[str]:
    """Return the names of actors whose loop does not run, if nothing else has anything to do."""
    loop = node._loop
    if loop is None or loop.is_running() or any(pool._core.accepted_if_idle() is None for pool in node._live_pools()):
        return []
    rows = node._engine.busy()
    if any(row["dispatcher"] != _ON_LOOP for row in rows):
        return []
    return [f"{row['name'] or 'actor'} (#{row['id']})" for row in rows]


def shortened(names: list[str]) -> str:
    """Return names as text, of many the first few."""
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return f"{', '.join(names[:_NAMED_MAX])}{more}"


@contextlib.contextmanager
def log_waiting(node: Node, until: float | None, what: str, after_s: float) -> Iterator[None]:
    """Log for whom a node waits at its end, if that takes long enough for a person to wonder."""
    left_s = None if until is None else until - monotonic()
    if left_s is not None and left_s <= after_s:
        yield
        return

    def tell() -> None:
        names = at_work(node)
        if names:
            most = "" if until is None else f" up to {max(0.0, until - monotonic()):.1f} s"
            loop = node._loop
            cause = "" if loop is None or loop.is_running() else _NOT_RUNNING
            text = f"%(node)s: waits{most} for %(waits_for)s: %(names)s{cause}"
            log.warning("node.stop_waits", text, node=node.name, waits_for=what, names=shortened(names))

    # Not a timer of the loop: a handler may block that.
    timer = threading.Timer(after_s, tell)
    timer.daemon = True
    # While the interpreter ends there are no new threads, and nothing is said.
    with contextlib.suppress(RuntimeError):
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if timer.ident is not None:
            timer.join()


def check(node: Node, timeout: float | None) -> None:
    """Refuse to wait where that never ends.

    Raises:
        AskCycle: if a handler of the node would wait for itself.
        InvalidArgument: if the timeout is not allowed, or the node was not started, so that nothing
            is handled.
    """
    check_seconds("timeout", timeout)
    if not node._started:
        raise InvalidArgument(f"{node!r} handles nothing: enter its block, or call start(), before you wait for it")
    refuse_own(node)


def refuse_own(node: Node) -> None:
    """Refuse a handler that would wait for itself.

    Raises:
        AskCycle: if this code runs in the handler of an actor of the node.
    """
    actor = node._engine.handling()
    if actor is not None:
        title = actor.name or f"#{actor.id}"
        raise AskCycle(
            f"the handler of actor {title} would wait for itself to end: wait for the node in a task or thread of its own",
            path=[title, title],
        )


def quiet(node: Node, timeout: float | None) -> Steps[None]:
    """Wait until the node has nothing to do."""
    look = IdleWatch(node, timeout).look
    while (pending := look()) is not None:
        yield pending
