"""Operations in asyncio: futures for their waiters, and a warning for operations that nobody
awaits.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from typing import Any

from tidewire._binding import Pending

TRACES = sys.flags.dev_mode or bool(os.environ.get("PYTHONASYNCIODEBUG"))
"""Whether it is noted where operations are made, as asyncio does for coroutines in its debug
mode.
"""

_FRAMES = 10


class Begun(Pending[Any]):
    """An operation that asyncio has taken for a future. No task can be made of it any more, and
    ``asyncio.wait`` takes it.
    """

    __slots__ = ()

    # Without it this is no coroutine.
    send = None  # type: ignore[assignment]

    def throw(  # type: ignore[override]
        self, error: Any, value: BaseException | None = None, traceback: object = None
    ) -> Any:
        """Raise an error in the waiter; as with the futures of asyncio, the operation goes on."""
        del traceback
        raise error if value is None else value

    def close(self) -> None:
        """Nobody waits here any more; the operation goes on."""


def made_at() -> traceback.StackSummary:
    """Return where the program is."""
    return traceback.extract_stack(sys._getframe(1), _FRAMES)


def is_shown_by_asyncio(depth: int = 1) -> bool:
    """Return whether the caller so many frames above this one makes the text of a task."""
    return sys._getframe(depth).f_globals.get("__name__") == "asyncio.base_tasks"


def never_awaited(title: str, made: traceback.StackSummary | None) -> None:
    """Warn that an operation was released, and nobody had awaited it."""
    text = f"{title} was never awaited"
    if made is not None:
        text += f"\nIt was made at (most recent call last)\n{''.join(made.format()).rstrip()}"
    warnings.warn(text, RuntimeWarning, stacklevel=2)
