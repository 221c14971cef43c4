"""A task that takes processor time: real work, calibrated in the worker that does it.

This file uses nothing but the standard library, so that peers can use it without loading Tidewire.
"""

from __future__ import annotations

import os
from threading import get_native_id
from time import thread_time_ns

ROUNDS = 7
ROUND_STEPS = 20_000

_steps_of_process: tuple[int, float] = (0, 0.0)


def burn(task_us: int) -> int:
    """Computes for ``task_us`` microseconds of processor time; 0 does nothing. Returns the thread that did it."""
    if task_us:
        turn(int(task_us * steps_per_us(os.getpid())))
    return get_native_id()


def steps_per_us(pid: int) -> float:
    """The speed of this process, measured once in it: a process that was forked measures again."""
    global _steps_of_process
    if _steps_of_process[0] != pid:
        _steps_of_process = pid, calibrate()
    return _steps_of_process[1]


def calibrate() -> float:
    """Steps in a microsecond of processor time, in the best of some rounds: the others were disturbed."""
    return max(ROUND_STEPS * 1e3 / timed() for _ in range(ROUNDS))


def timed() -> int:
    """Nanoseconds of processor time that one round takes."""
    start = thread_time_ns()
    turn(ROUND_STEPS)
    return max(1, thread_time_ns() - start)


def turn(steps: int) -> int:
    """A linear congruential generator, so that no step can be left out."""
    state = 1
    for _ in range(steps):
        state = (state * 1_103_515_245 + 12_345) & 0x7FFF_FFFF
    return state
