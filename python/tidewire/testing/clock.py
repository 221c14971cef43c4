"""Virtual time for tests: the real runtime, whose deadlines pass without real waits."""

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
# Time between two samples of the threads, and between samples without a deadline.
_SAMPLE_S, _IDLE_S = 0.000_5, 0.005
# A deadline that is overdue for longer is ignored: its thread waits for another event.
_OVERDUE_MAX_S = 0.01
_NEVER_S = 5 * 365 * 86_400.0  # a wait without a timeout is one of ten years
_BUSY = ("R", "D")

_ahead = 0.0
"""Lead of the monotonic clock of this process over real time, in seconds. It never decreases."""


class Clock:
    """Virtual clock of a test. It runs in real time while a thread of this process, or of its
    children, is running. Once all threads sleep, it jumps to the next deadline.

    It includes the deadlines of nodes of this process: timers, timeouts, retries, lifetimes,
    schedules, and the ack waits and leases of data folders. It also includes asyncio event loops
    and ``time.sleep``. ``time.time()`` and ``time.monotonic()`` return its time. Other processes,
    NATS, databases, heartbeats of links and other waits with a timeout use real time.

    Raises:
        RuntimeError: outside of Linux, as it reads the states of threads in ``/proc``.
    """

    def __init__(self) -> None:
        if not os.path.isdir("/proc/self/task"):
            raise RuntimeError("tidewire_clock needs Linux: /proc tells which threads sleep")
        self._start = 0.0
        self._day_ahead = 0.0
        self._stopped = threading.Event()
        self._loops: WeakSet[Any] = WeakSet()
        self._sleepers: dict[threading.Event, float] = {}
        self._thread = threading.Thread(target=self._run, name="tidewire-clock", daemon=True)

    @property
    def elapsed(self) -> float:
        """Seconds of this clock since its start."""
        return _monotonic() - self._start

    def __enter__(self) -> Clock:
        time.monotonic, time.time, time.sleep = _monotonic, self._time, self._sleep
        loops = self._loops

        def call_at(loop: Any, when: float, *args: Any, **options: Any) -> asyncio.TimerHandle:
            loops.add(loop)
            return _call_at(loop, when, *args, **options)

        asyncio.BaseEventLoop.call_at = call_at  # type: ignore[method-assign,assignment]
        _replace({_real_monotonic: _monotonic, _real_time: self._time, _real_sleep: self._sleep})
        self._start = _monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
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
        """Replacement of ``time.sleep``."""
        deadline, event = _monotonic() + seconds, threading.Event()
        if seconds <= 0:
            _real_sleep(seconds)
        self._sleepers[event] = deadline
        while (left_s := deadline - _monotonic()) > 0 and not self._stopped.is_set():
            event.wait(left_s)
            event.clear()
        del self._sleepers[event]

    def _run(self) -> None:
        own_id = threading.get_native_id()
        while not self._stopped.is_set():
            previous = _sleeping_threads(own_id)
            _real_sleep(_SAMPLE_S)
            # The pause lets a thread run that waited for the interpreter lock.
            if previous is None or previous != _sleeping_threads(own_id) or not self._jump():
                self._stopped.wait(_IDLE_S if previous else 2 * _SAMPLE_S)

    def _jump(self) -> bool:
        """Set the clock to the next deadline. Return False if there is none."""
        global _ahead
        left_s = sorted(self._left_s())
        if not left_s or left_s[0] <= 0:
            return False
        # Set before the first thread wakes, so that all clocks show the new time.
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
        """Return the seconds until each deadline; 0 for one that passes now."""
        now = _monotonic()
        timers = [timer for loop in list(self._loops) if loop.is_running() for timer in list(loop._scheduled)]
        deadlines_s = [*(timer.when() for timer in timers if not timer.cancelled()), *self._sleepers.values()]
        left_s = [*deadlines(), *(at - now for at in deadlines_s)]
        return [max(left, 0.0) for left in left_s if -_OVERDUE_MAX_S < left < _NEVER_S]


def _monotonic() -> float:
    return _real_monotonic() + _ahead


def _replace(functions: dict[Callable[..., Any], Callable[..., Any]]) -> None:
    """Replace the clock functions that modules of this package have imported."""
    for name, module in list(sys.modules.items()):
        if name.startswith("tidewire.") and name != __name__:
            for attribute, value in list(vars(module).items()):
                if attribute in ("monotonic", "time", "sleep") and value in functions:
                    setattr(module, attribute, functions[value])


def _sleeping_threads(own_id: int) -> list[tuple[int, str]] | None:
    """Return the threads of this process and its children with their context switches, or None if
    one of them is running.
    """
    sleeping: list[tuple[int, str]] = []
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
                    fields = dict(line.split(":\t", 1) for line in status if ":\t" in line)
                    processes.extend(map(int, children.read().split()))
            except OSError:
                continue
            if int(thread) == own_id:
                continue
            if fields["State"][0] in _BUSY:
                return None
            sleeping.append((int(thread), fields["voluntary_ctxt_switches"] + fields["nonvoluntary_ctxt_switches"]))
    return sleeping
