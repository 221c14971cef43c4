"""Driver of coroutine actors: a task that handles one message after the other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tidewire._runtime import current

if TYPE_CHECKING:
    from tidewire._binding import ActorRef, CoroutineLoop

# Strong references: a loop refers to its tasks weakly.
_running: set[asyncio.Task[None]] = set()


def start(coroutine: CoroutineLoop) -> None:
    """Start a task that handles messages of one actor until none is left."""
    task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine)
    _running.add(task)


def handles(task: object) -> bool:
    """Return True if a task handles messages of an actor."""
    return task in _running


def cancel(node: object) -> None:
    """Cancel the running handlers of a node. Call it on their loop; ``node`` is the weak reference
    of its actors.
    """
    for task in list(_running):
        coroutine: Any = task.get_coro()
        if coroutine.node is node:
            task.cancel()


def over(task: asyncio.Task[None]) -> None:
    """Release a task at its end."""
    # A callback of the task would cost another round of the loop.
    _running.discard(task)


def begin(actor: ActorRef, alone: bool) -> asyncio.Task[None] | None:
    """Set the actor of the current task, and return the task."""
    current.actor.set(actor)
    current.alone.set(alone)
    return asyncio.current_task()
