"""Operations in asyncio: their futures, a warning for unawaited operations, and waits that survive
a cancellation.
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
"""True to record the stack of new operations, like the debug mode of asyncio for coroutines."""

_FRAMES = 10
_FINISH_TIMEOUT_S = 1.0


async def finish(work: Coroutine[Any, Any, _T]) -> _T:
    """Run work that a cancellation must not interrupt, such as a release.

    A cancelled caller waits at most one more second for the work, which continues after that. Then
    the cancellation is raised.
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
    """Run work in a task with a strong reference until its end."""
    import asyncio

    task = asyncio.get_running_loop().create_task(work)
    _FINISHING.add(task)
    task.add_done_callback(_FINISHING.discard)


async def ended_within(work: Awaitable[Any], timeout: float | None) -> bool:
    """Wait for the end of work, and return True if it has ended in time. Otherwise cancel it.

    A caller that is cancelled as the work ends stays cancelled: ``asyncio.wait_for`` of Python 3.11
    returns the result instead.
    """
    import asyncio

    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task], timeout=timeout)
    finally:
        if not task.done():
            task.cancel()
        elif not task.cancelled():
            # A cancelled caller does not retrieve it.
            task.exception()
    if not task.done():
        return False
    task.result()
    return True


def _finished(task: Any) -> None:
    _FINISHING.discard(task)
    if not task.cancelled():
        # The caller has left: retrieve the error.
        task.exception()


_FINISHING: set[Any] = set()
"""Work that outlives its cancelled caller: event loops refer to tasks weakly."""


class Begun(Pending[Any]):
    """An operation that asyncio treats as a future: ``asyncio.wait`` accepts it, ``create_task``
    does not.
    """

    __slots__ = ()

    # Without ``send`` this is no coroutine.
    send = None  # type: ignore[assignment]

    def throw(  # type: ignore[override]
        self, error: Any, value: BaseException | None = None, traceback: object = None
    ) -> Any:
        """Raise an error in the waiter. The operation continues, as with the futures of asyncio."""
        del traceback
        raise error if value is None else value

    def close(self) -> None:
        """Stop waiting. The operation continues."""


def made_at() -> traceback.StackSummary:
    """Return the stack of the caller."""
    return traceback.extract_stack(sys._getframe(1), _FRAMES)


def is_shown_by_asyncio(depth: int = 1) -> bool:
    """Return True if the caller, ``depth`` frames up, formats a task."""
    return sys._getframe(depth).f_globals.get("__name__") == "asyncio.base_tasks"


def never_awaited(title: str, made: traceback.StackSummary | None, depth: int = 2) -> None:
    """Warn that an operation was never awaited, at the caller ``depth`` frames up."""
    text = f"{title} was never awaited"
    if running_loop() is None:
        service, dot, name = title.rpartition(".")
        form = f'node.client("{service}")' if dot else "node"
        text += f": use .sync from a plain function, as in {form}.sync.{name}(...)"
    if made is not None:
        text += f"\nIt was made at (most recent call last)\n{''.join(made.format()).rstrip()}"
    warnings.warn(text, RuntimeWarning, stacklevel=depth)
