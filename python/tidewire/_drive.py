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


def handles(task: object) -> bool:
    """Return whether a task is one that handles messages of an actor."""
    return task in _running


async def _run(intake: Intake, actor: ActorRef, alone: bool) -> None:
    _current.actor.set(actor)
    _current.alone.set(alone)
    going = True
    try:
        while going:
            try:
                for call in intake:
                    value = await call
                    if value is not None:
                        intake.returned(value)
                going = False
            # Whatever a handler raises concerns its message and its actor, never the loop. The CancelledError of this
            # very task ends it, once the message is accounted for.
            except BaseException as error:  # noqa: BLE001
                going = intake.failed(error) and not isinstance(error, asyncio.CancelledError)
    finally:
        intake.over()
