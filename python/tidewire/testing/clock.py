"""Virtual time for tests: the real runtime, whose deadlines come without a wait."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from tidewire._binding import advance_clock, deadlines, restore_time_of_day

_real_monotonic, _real_time, _real_sleep = time.monotonic, time.time, time.sleep
_call_at = asyncio.BaseEventLoop.call_at
# Between two looks at the threads, and while there is nothing to do.
_LOOK_S, _REST_S = 0.000_5, 0.005
# A thread that has slept for so long beyond its deadline waits for something else.
_LATE_S = 0.01
_NEVER_S = 5 * 365 * 86_400.0  # a wait without a timeout is one of ten years
_BUSY = ("R", "D")

_ahead = 0.0
"""How far the monotonic clock of this process is ahead. It never goes back."""


class Clock:
    """The clock of a test. Time passes as usual while a thread of this process, or of its children,
    works. Once all of them sleep, the clock jumps to the next deadline.

    Deadlines are those of nodes of this process (timers, timeouts, retries, lifetimes, schedules,
    and the ack waits and leases of data folders), of event loops of asyncio, and of ``time.sleep``.
    ``time.time()`` and ``time.monotonic()`` show this clock. Other processes, NATS, databases,
    heartbeats of links and other waits with a timeout keep the real time.

    Raises:
        RuntimeError: without Linux, whose ``/proc`` tells which threads sleep.
    """

    def __init__(self) -> None:
        if not os.path.isdir("/proc/self/task"):
            raise RuntimeError("tidewire_clock needs Linux: /proc tells which threads sleep")
        self._began = 0.0
        self._day_ahead = 0.0
        self._ended = threading.Event()
        self._loops: WeakSet[Any] = WeakSet()
        self._sleepers: dict[threading.Event, float] = {}
        self._thread = threading.Thread(target=self._run, name="tidewire-clock", daemon=True)

    @property
    def elapsed(self) -> float:
        """Seconds of this clock since the test began."""
        return _monotonic() - self._began

    def __enter__(self) -> Clock:
        time.monotonic, time.time, time.sleep = _monotonic, self._time, self._sleep
        loops = self._loops

        def call_at(loop: Any, when: float, *args: Any, **options: Any) -> asyncio.TimerHandle:
            loops.add(loop)
            return _call_at(loop, when, *args, **options)

        asyncio.BaseEventLoop.call_at = call_at  # type: ignore[method-assign,assignment]
        _replace({_real_monotonic: _monotonic, _real_time: self._time, _real_sleep: self._sleep})
        self._began = _monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        time.time, time.sleep = _real_time, _real_sleep
        asyncio.BaseEventLoop.call_at = _call_at  # type: ignore[method-assign]
        _replace({self._time: _real_time, self._sleep: _real_sleep})
        restore_time_of_day()
        for event in list(self._sleepers):
            event.set()

    def _time(self) -> float:
        return _real_time() + self._day_ahead

    def _sleep(self, seconds: Any) -> None:
        """Stand in for ``time.sleep``."""
        until, event = _monotonic() + seconds, threading.Event()
        if seconds <= 0:
            _real_sleep(seconds)
        self._sleepers[event] = until
        while (left_s := until - _monotonic()) > 0 and not self._ended.is_set():
            event.wait(left_s)
            event.clear()
        del self._sleepers[event]

    def _run(self) -> None:
        own = threading.get_native_id()
        while not self._ended.is_set():
            before = _asleep(own)
            _real_sleep(_LOOK_S)
            # A thread that waits for the interpreter has had its turn meanwhile.
            if before is None or before != _asleep(own) or not self._jump():
                self._ended.wait(_REST_S if before else 2 * _LOOK_S)

    def _jump(self) -> bool:
        """Set the clock to the next deadline. Return whether there is one."""
        global _ahead
        left_s = sorted(self._left_s())
        if not left_s or left_s[0] <= 0:
            return False
        # The first thread that wakes has to see the new time everywhere.
        _ahead += left_s[0]
        self._day_ahead += left_s[0]
        advance_clock(left_s[0])
        for event in list(self._sleepers):
            event.set()
        for loop in list(self._loops):
            if loop.is_running():
                loop.call_soon_threadsafe(lambda: None)
        return True

    def _left_s(self) -> list[float]:
        """Return the seconds until each deadline; 0 for one that comes at this moment."""
        now = _monotonic()
        timers = [timer for loop in list(self._loops) if loop.is_running() for timer in list(loop._scheduled)]
        until = [*(timer.when() for timer in timers if not timer.cancelled()), *self._sleepers.values()]
        left_s = [*deadlines(), *(at - now for at in until)]
        return [max(left, 0.0) for left in left_s if -_LATE_S < left < _NEVER_S]


def _monotonic() -> float:
    return _real_monotonic() + _ahead


def _replace(functions: dict[Callable[..., Any], Callable[..., Any]]) -> None:
    """Replace functions of the clock that modules of this package have imported."""
    for name, module in list(sys.modules.items()):
        if name.startswith("tidewire.") and name != __name__:
            for known, value in list(vars(module).items()):
                if known in ("monotonic", "time", "sleep") and value in functions:
                    setattr(module, known, functions[value])


def _asleep(own: int) -> list[tuple[int, str]] | None:
    """Return the threads of this process and its children, with how often each has run; None if
    one of them works.
    """
    found: list[tuple[int, str]] = []
    processes = [os.getpid()]
    while processes:
        process = processes.pop()
        try:
            threads = os.listdir(f"/proc/{process}/task")
        except OSError:
            continue
        for thread in threads:
            folder = f"/proc/{process}/task/{thread}"
            try:
                with open(f"{folder}/status") as status, open(f"{folder}/children") as children:
                    told = dict(line.split(":\t", 1) for line in status if ":\t" in line)
                    processes.extend(map(int, children.read().split()))
            except OSError:
                continue
            if int(thread) == own:
                continue
            if told["State"][0] in _BUSY:
                return None
            found.append((int(thread), told["voluntary_ctxt_switches"] + told["nonvoluntary_ctxt_switches"]))
    return found
