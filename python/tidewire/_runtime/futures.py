"""Operations in asyncio: their futures, a warning for unawaited operations, and waits that a
cancellation does not cut.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from tidewire._binding import Pending
from tidewire._runtime.current import running_loop

_T = TypeVar("_T")

TRACES = sys.flags.dev_mode or bool(os.environ.get("PYTHONASYNCIODEBUG"))
"""Whether it is noted where operations are made, as asyncio does for coroutines in its debug
mode.
"""

_FRAMES = 10
_FINISH_TIMEOUT_S = 1.0


async def finish(work: Coroutine[Any, Any, _T]) -> _T:
    """Run work that a cancellation must not cut, such as giving something back.

    A caller that is cancelled waits one second more for the end of the work, which goes on after
    that; then the cancellation is raised.
    """
    import asyncio

    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        _FINISHING.add(task)
        task.add_done_callback(_finished)
        await asyncio.wait([task], timeout=_FINISH_TIMEOUT_S)
        raise
    return task.result()


def start_task(work: Coroutine[Any, Any, Any]) -> None:
    """Run work in a task, which is kept until its end."""
    import asyncio

    task = asyncio.get_running_loop().create_task(work)
    _FINISHING.add(task)
    task.add_done_callback(_FINISHING.discard)


async def ended_within(work: Awaitable[Any], timeout: float | None) -> bool:
    """Wait for the end of work, and return whether it has ended in time; it is cancelled if not.

    A caller that is cancelled as the work ends is cancelled: ``asyncio.wait_for`` of Python 3.11
    returns the result in its place.
    """
    import asyncio

    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task], timeout=timeout)
    finally:
        if not task.done():
            task.cancel()
        elif not task.cancelled():
            # A caller that was cancelled does not read it.
            task.exception()
    if not task.done():
        return False
    task.result()
    return True


def _finished(task: Any) -> None:
    _FINISHING.discard(task)
    if not task.cancelled():
        # Nobody waits for its error any more.
        task.exception()


_FINISHING: set[Any] = set()
"""Work that goes on after its caller was cancelled: event loops hold tasks weakly."""


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


def never_awaited(title: str, made: traceback.StackSummary | None, depth: int = 2) -> None:
    """Warn that an operation was released, and nobody had awaited it. The warning shows the caller
    so many frames above this one.
    """
    text = f"{title} was never awaited"
    if running_loop() is None:
        service, dot, name = title.rpartition(".")
        form = f'node.client("{service}")' if dot else "node"
        text += f": use .sync from a plain function, as in {form}.sync.{name}(...)"
    if made is not None:
        text += f"\nIt was made at (most recent call last)\n{''.join(made.format()).rstrip()}"
    warnings.warn(text, RuntimeWarning, stacklevel=depth)
