"""Cancellation of a coroutine at each of its waits."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any

PATIENCE = 6.0
STEPS_MAX = 100
SHARED = {"CommandWorker._fetch", "CoroutineLoop"}
"""Tasks that callers share: they wait for the next caller, some of them only for seconds."""

Story = AsyncGenerator[Coroutine[Any, Any, Any], bool]
"""One attempt: prepares, yields the coroutine to cancel, and gets whether it was cancelled. The rest
checks that nothing is held, and that the same call succeeds.
"""


class _Counted:
    """A coroutine that cancels its own task at its wait number ``at``, counted from 1.

    Args:
        work: The coroutine.
        at: Which wait.
        arrived: True if the cancellation comes together with the result of the wait; False if it
            comes while there is none.
    """

    def __init__(self, work: Coroutine[Any, Any, Any], at: int, arrived: bool) -> None:
        self.work, self._at, self._arrived = work, at, arrived
        self.task: asyncio.Task[Any] | None = None
        self.waits = 0
        self.is_cancelled = False

    def cancel(self, _: object = None) -> None:
        """Cancel the task, if it has not ended."""
        assert self.task is not None
        self.is_cancelled = self.task.cancel() or self.is_cancelled

    def _cancel_soon(self) -> None:
        if self._arrived:
            # An operation wakes the task as soon as the loop sees its result: the result comes
            # while the loop sees nothing.
            time.sleep(0.005)
        self.cancel()

    def __await__(self) -> Generator[Any, Any, Any]:
        go_on: Callable[[Any], Any] = self.work.send
        given: Any = None
        while True:
            try:
                waits = go_on(given)
            except StopIteration as end:
                return end.value
            self.waits += 1
            if self.waits == self._at:
                if self._arrived and isinstance(waits, asyncio.Future):
                    # This callback runs before the one that wakes the task.
                    waits.add_done_callback(self.cancel)
                else:
                    asyncio.get_running_loop().call_soon(self._cancel_soon)
            # An operation gives back a result that is unread when it dies: keep none.
            handed, waits = [waits], None
            try:
                go_on, given = self.work.send, (yield handed.pop())
            except BaseException as error:  # noqa: BLE001 - the coroutine gets it
                go_on, given = self.work.throw, error


async def cancel_each_wait(story: Callable[[str], Story], rounds: int = 0) -> None:
    """Play a story once for each wait of its coroutine, and cancel the coroutine there: while it
    waits, and as the result arrives.

    Args:
        story: Called with a name that no other attempt has.
        rounds: Cancels it after so many rounds of the loop too, whichever wait that is.
    """
    loop = asyncio.get_running_loop()
    faults: list[str] = []
    earlier = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: faults.append(repr(context)))
    try:
        # The first attempt begins all that stays.
        await _attempt(story, "first", -1, "wait")
        await asyncio.sleep(0)
        stays = Counter(map(_name, _others()))
        for when, most in ("wait", STEPS_MAX), ("result", STEPS_MAX), ("round", rounds):
            for at in range(most):
                place = f"cancelled at {when} {at}"
                try:
                    counted = await asyncio.wait_for(_attempt(story, f"{when}-{at}", at, when), PATIENCE)
                    await _ended(stays)
                except (Exception, asyncio.CancelledError) as error:
                    raise AssertionError(f"{place}: {error!r}") from error
                assert not faults, f"{place}: {faults}"
                if not counted.is_cancelled:
                    break
                assert at < STEPS_MAX - 1, "too many waits"
        gc.collect()
        await asyncio.sleep(0)
        assert not faults, faults
    finally:
        loop.set_exception_handler(earlier)


async def _attempt(story: Callable[[str], Story], name: str, at: int, when: str) -> _Counted:
    played = story(name)
    counted = _Counted(await anext(played), 0 if when == "round" else at, when == "result")
    task = counted.task = asyncio.ensure_future(_awaited(counted))
    if when == "round":
        for _ in range(at):
            await asyncio.sleep(0)
    if when == "round" or at == 0:
        counted.cancel()
    done, _ = await asyncio.wait({task}, timeout=PATIENCE)
    if not done:
        # Its stack shows where it hangs.
        frames = [str(frame) for frame in task.get_stack()]
        task.cancel()
        raise AssertionError(f"it does not end: {frames}")
    if counted.is_cancelled:
        assert task.cancelled(), f"its cancellation was swallowed: {task!r}"
    else:
        await task
    # It may not have begun.
    counted.work.close()
    try:
        await played.asend(counted.is_cancelled)
    except StopAsyncIteration:
        return counted
    raise AssertionError("a story yields one coroutine")


async def _awaited(counted: _Counted) -> Any:
    return await counted


def _others() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task() and _name(task) not in SHARED]


def _name(task: asyncio.Task[Any]) -> str:
    work = task.get_coro()
    return getattr(work, "__qualname__", type(work).__name__)


async def _ended(stays: Counter[str]) -> None:
    """Wait for the end of what an attempt has begun. A task that stays may be replaced by another
    one of its kind.
    """
    while left := Counter(map(_name, _others())) - stays:
        mine = [task for task in _others() if _name(task) in left]
        done, _ = await asyncio.wait(mine, timeout=PATIENCE / 2, return_when=asyncio.FIRST_COMPLETED)
        assert done, f"tasks that are left: {mine}"
