"""A task that takes processor time: a number of steps, the same for every contender.

This file uses nothing but the standard library, so that peers can use it without loading Tidewire.
"""

from __future__ import annotations

from functools import cache
from threading import get_native_id
from time import thread_time_ns

ROUNDS = 25
ROUND_STEPS = 20_000


def burn(steps: int) -> int:
    """Computes so many steps; 0 does nothing. Returns the thread that did it."""
    if steps:
        turn(steps)
    return get_native_id()


@cache
def steps_per_us() -> float:
    """Steps in a microsecond of processor time here, in the best of some rounds: the others were
    disturbed.
    """
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
