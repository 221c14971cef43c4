"""Quiescence of a node: its actors, agents, services and pools are idle."""

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
    """Checks whether a node is idle, and returns the next wait if not.

    The parts are checked one after the other, so that one check proves nothing. Two consecutive
    checks with the same result prove that all were idle in between.
    """

    def __init__(self, node: Node, timeout: float | None) -> None:
        self._node = node
        self._timeout = timeout
        self._until = None if timeout is None else monotonic() + timeout
        self._last_marks: _Marks | None = None

    def next_wait(self) -> Pending | None:
        """Return the wait before the next check, or None if the node is idle.

        Raises:
            TimeoutError: if the deadline has passed, or comes before the next retry; the error
                names the busy parts.
        """
        engine = self._node._engine
        while True:
            mark, tasks = engine.mark, {}
            if mark is None:
                return engine.idle(self._remaining_s())
            retry = self._next_retry()
            if retry is not None:
                return self._retry_wait(retry)
            for pool in self._node._live_pools():
                core = pool._core
                # Read before the check, to miss no change.
                seen = core.rests.count
                accepted = core.accepted_if_idle()
                if accepted is None:
                    return engine.changed(core.rests, seen, self._remaining_s())
                tasks[pool.name] = accepted
            for one in list(self._node._waits_for):
                seen = one.rests.count
                if not one.is_idle():
                    return engine.changed(one.rests, seen, self._remaining_s())
            found = mark, tasks
            if found == self._last_marks:
                return None
            self._last_marks = found

    def _next_retry(self) -> PendingRetry | None:
        """Return the next retry of an agent."""
        directory = self._node._agents
        agent_states = (
            [] if directory is None else [agent._registered_state for agent in list(directory.by_id.values())]
        )
        waiting = [
            retry
            for agent_state in agent_states
            for retry in list(agent_state.pending_retries.values())
            if retry.timer.waiting
        ]
        return min(waiting, key=lambda retry: retry.due, default=None)

    def _retry_wait(self, retry: PendingRetry) -> Pending:
        if self._until is not None and retry.due > self._until:
            raise self._timeout_error()
        remaining_s = retry.due - monotonic()
        return self._node._engine.changed(ChangeCounter(), 0, remaining_s) if remaining_s > 0 else retry.timer.outcome()

    def _remaining_s(self) -> float | None:
        if self._until is None:
            return None
        remaining_s = self._until - monotonic()
        if remaining_s <= 0:
            raise self._timeout_error()
        return remaining_s

    def _timeout_error(self) -> TimeoutError:
        agents = [] if (retry := self._next_retry()) is None else [f"message {retry.message.id}, which is tried again"]
        busy = shortened([*busy_names(self._node), *agents])
        return TimeoutError(f"{self._node!r} is not idle after {self._timeout:g} s: {busy} still at work")


def busy_names(node: Node) -> list[str]:
    """Return the names of the busy actors and pools of a node."""
    actors = [f"{row['name'] or 'actor'} (#{row['id']})" for row in node._engine.busy()]
    waiting_for = [one.title for one in node._waits_for if not one.is_idle()]
    return [
        *actors,
        *waiting_for,
        *(f"pool {pool.name!r}" for pool in node._live_pools() if pool._core.accepted_if_idle() is None),
    ]


def names_on_stopped_loop(node: Node) -> list[str]:
    """Return the names of busy actors on a stopped loop, if nothing else is busy."""
    loop = node._loop
    if loop is None or loop.is_running() or any(pool._core.accepted_if_idle() is None for pool in node._live_pools()):
        return []
    rows = node._engine.busy()
    if any(row["dispatcher"] != _ON_LOOP for row in rows):
        return []
    return [f"{row['name'] or 'actor'} (#{row['id']})" for row in rows]


def shortened(names: list[str]) -> str:
    """Return the first few names as text."""
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return f"{', '.join(names[:_NAMED_MAX])}{more}"


@contextlib.contextmanager
def log_waiting(node: Node, until: float | None, reason: str, after_s: float) -> Iterator[None]:
    """Log the reason for the wait of a stop that takes long."""
    remaining_s = None if until is None else until - monotonic()
    if remaining_s is not None and remaining_s <= after_s:
        yield
        return

    def log_reason() -> None:
        names = busy_names(node)
        if names:
            limit = "" if until is None else f" up to {max(0.0, until - monotonic()):.1f} s"
            loop = node._loop
            cause = "" if loop is None or loop.is_running() else _NOT_RUNNING
            text = f"%(node)s: waits{limit} for %(waits_for)s: %(names)s{cause}"
            log.warning("node.stop_waits", text, node=node.name, waits_for=reason, names=shortened(names))

    # Not a timer of the loop, which a handler may block.
    timer = threading.Timer(after_s, log_reason)
    timer.daemon = True
    # At interpreter exit no thread can start, and nothing is logged.
    with contextlib.suppress(RuntimeError):
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if timer.ident is not None:
            timer.join()


def check(node: Node, timeout: float | None) -> None:
    """Refuse a wait that would never end.

    Raises:
        AskCycle: if a handler of the node would wait for itself.
        InvalidArgument: if the timeout is not allowed, or the node was not started.
    """
    check_seconds("timeout", timeout)
    if not node._started:
        raise InvalidArgument(f"{node!r} handles nothing: enter its block, or call start(), before you wait for it")
    refuse_self_wait(node)


def refuse_self_wait(node: Node) -> None:
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


def wait_steps(node: Node, timeout: float | None) -> Steps[None]:
    """Wait until the node is idle."""
    next_wait = IdleWatch(node, timeout).next_wait
    while (pending := next_wait()) is not None:
        yield pending
