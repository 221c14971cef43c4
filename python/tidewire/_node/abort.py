"""Abort of a node after an error: awaiting handlers are cancelled, and others have a short grace
time.
"""

from __future__ import annotations

import asyncio
import contextlib
from time import monotonic
from typing import TYPE_CHECKING

from tidewire._node import idle
from tidewire._node.ledger import Ledger
from tidewire._runtime import drive, steps

if TYPE_CHECKING:
    from tidewire._binding import Pending
    from tidewire._runtime.steps import Steps
    from tidewire.node import Node

_LOG_AFTER_S = 0.1


# Strong references: a loop refers to its tasks weakly.
_tasks: set[asyncio.Task[None]] = set()


async def abort(node: Node) -> None:
    """Stop a node soon. Queued work does not begin. A cancelled caller, as by a scope of anyio,
    does not interrupt it.
    """

    async def end() -> None:
        await steps.awaited(abort_steps(node))

    task = asyncio.ensure_future(end())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    await asyncio.shield(task)


def abort_steps(node: Node) -> Steps[None]:
    """Return the steps of an abort."""
    limit = limit_s(node)
    until = monotonic() + limit
    readers = node._end_readers()
    pending = _begin(node, until)
    if pending is None:
        return
    with idle.log_waiting(node, until, "what can't be cancelled", _LOG_AFTER_S):
        # All are ending by now: handlers and tasks of pools may wait for each other.
        ledgers = []
        for pool in node._live_pools():
            ledgers.append((yield from pool._ending(False, _remaining_s(until))))
        ledgers.insert(0, (yield pending))
        if limit:
            yield from node._settle(readers, until)
        if node._connection is not None:
            yield from node._connection.draining(until)
    node._end_stop(ledgers)


def limit_s(node: Node) -> float:
    """Return the grace time of an abort in seconds: 0 if it must end at once."""
    return 0.0 if node._ends_now else node._engine.abort_timeout()


def _begin(node: Node, until: float) -> Pending[Ledger] | None:
    node._begin_goodbye()
    pending = node._begin_stop(_remaining_s(until), drain=False)
    if isinstance(pending, Ledger):
        return None
    # An abort with no grace time allows none at the end of the program either.
    node._ends_now = True
    # First: an interrupted handler replies to its caller.
    for hook in node._at_abort:
        hook()
    for pool in node._live_pools():
        pool._interrupt(_remaining_s(until))
    _cancel_handlers(node)
    return pending


def _cancel_handlers(node: Node) -> None:
    loop = node._loop
    if loop is None or loop.is_closed():
        return
    # The loop may close meanwhile, and with it all its tasks.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(drive.cancel, node._self)


def _remaining_s(until: float) -> float:
    return max(0.0, until - monotonic())
