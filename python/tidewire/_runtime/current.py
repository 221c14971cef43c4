"""Current actor of a coroutine handler. The binding reads these on each send."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from tidewire._binding import ActorRef

actor: ContextVar[ActorRef | None] = ContextVar("tidewire_actor", default=None)
"""The actor in whose handler this code runs."""

alone: ContextVar[bool] = ContextVar("tidewire_alone", default=False)
"""True if that actor handles one message at a time, so that a wait in its handler blocks the actor.
"""


def running_loop() -> AbstractEventLoop | None:
    """Return the running event loop of this thread, or None. This does not load asyncio."""
    asyncio = sys.modules.get("asyncio")
    return None if asyncio is None else asyncio._get_running_loop()
