"""Runs the handlers of coroutine actors: one task for each burst of messages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tidewire import _current

if TYPE_CHECKING:
    from tidewire._binding import ActorRef, Intake

# Tasks are kept from being collected while they run: the loop itself holds them only weakly.
_running: set[asyncio.Task[None]] = set()


def start(intake: Intake, actor: ActorRef, alone: bool) -> None:
    """Start a task that handles messages of one actor until none is left."""
    task = asyncio.get_running_loop().create_task(_run(intake, actor, alone))
    _running.add(task)
    task.add_done_callback(_running.discard)


async def _run(intake: Intake, actor: ActorRef, alone: bool) -> None:
    _current.actor.set(actor)
    _current.alone.set(alone)
    next_call, returned = intake.next_call, intake.returned
    try:
        while True:
            try:
                call = next_call()
                if call is None:
                    return
                returned(await call)
            # Whatever a handler raises concerns its message and its actor, never the loop: CancelledError of a
            # cancelled task included, which then ends below.
            except BaseException as error:
                if not intake.failed(error) or isinstance(error, asyncio.CancelledError):
                    return
    finally:
        intake.over()
