"""Driver of coroutine actors: a task that goes from one message to the next."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tidewire._runtime import current

if TYPE_CHECKING:
    from tidewire._binding import ActorRef, CoroutineLoop

# Tasks are kept from being collected while they run: the loop itself holds them only weakly.
_running: set[asyncio.Task[None]] = set()


def start(intake: CoroutineLoop) -> None:
    """Start a task that handles messages of one actor until none is left."""
    task: asyncio.Task[None] = asyncio.get_running_loop().create_task(intake)
    _running.add(task)


def handles(task: object) -> bool:
    """Return whether a task is one that handles messages of an actor."""
    return task in _running


def cancel(node: object) -> None:
    """Cancel the handlers of a node that are under way. On the loop that they run on; ``node`` is
    what its actors know it by.
    """
    for task in list(_running):
        intake: Any = task.get_coro()
        if intake.node is node:
            task.cancel()


def over(task: asyncio.Task[None]) -> None:
    """Release a task that is at its end."""
    # A callback of the task would cost one more round of the loop.
    _running.discard(task)


def begin(actor: ActorRef, alone: bool) -> asyncio.Task[None] | None:
    """Note which actor the task that runs belongs to, and return the task."""
    current.actor.set(actor)
    current.alone.set(alone)
    return asyncio.current_task()
