"""Computations of the worker processes: plain functions of plain values."""

from __future__ import annotations

import os
import random
from statistics import fmean

LATE_MINUTES = 30


def spread(delays: list[int], resamples: int, seed: int) -> tuple[float, float]:
    """Return the bounds between which the mean lies in 95 of 100 resamples of the delays."""
    draw = random.Random(seed)
    means = sorted(fmean(draw.choices(delays, k=len(delays))) for _ in range(resamples))
    return means[int(resamples * 0.025)], means[int(resamples * 0.975) - 1]


def late_share(delays: list[int]) -> float:
    """Return the share of arrivals that were later than half an hour."""
    return sum(delay > LATE_MINUTES for delay in delays) / len(delays)


def taxi_times(origin: str) -> float:
    """Crash, as a compiled library with a bug would: the process is gone, and no exception says
    why.
    """
    os._exit(11)
