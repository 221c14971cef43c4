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
"""Whether that actor handles one message at a time, so that waiting in its handler makes it wait as
a whole.
"""


def running_loop() -> AbstractEventLoop | None:
    """Return the event loop that runs on this thread, or None. A program without asyncio does not
    load it for this.
    """
    asyncio = sys.modules.get("asyncio")
    return None if asyncio is None else asyncio._get_running_loop()
