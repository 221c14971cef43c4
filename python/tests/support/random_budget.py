"""Seeds of random suites: as many as a budget of seconds allows.

The seeds are the same in each run, so that a failure can be repeated by its seed:
``RANDOM_SECONDS=0 RANDOM_FIRST=17`` plays the seed 17 alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

SECONDS = float(os.environ.get("RANDOM_SECONDS", "5"))
"""Budget of one random test."""
FIRST = int(os.environ.get("RANDOM_FIRST", "0"))


def examples(count: int) -> int:
    """So many examples of a property, and more of them with a greater budget."""
    return round(count * max(1.0, SECONDS / 5))


def seeds(suite: str, seconds: float = SECONDS, first: int = FIRST) -> Iterator[int]:
    """Yield seeds from ``first`` on until the budget is used up, at least one, and print their
    number at the end.
    """
    began, seed = time.monotonic(), first
    while True:
        yield seed
        seed += 1
        used = time.monotonic() - began
        if used >= seconds:
            break
    print(f"{suite}: {seed - first} in {used:.1f} s, seeds {first} to {seed - 1}", flush=True)
