"""The run that every contender makes: hits in a quarter circle by a linear congruential generator,
seeded with the run's index.
"""

from __future__ import annotations

STEPS = {"tiny": 83, "ms": 4_120}
UNIT = 2.0**-64


def hits(seed: int, steps: int) -> int:
    """How many of ``steps`` points, two draws of 64 bits each, lie in the quarter circle."""
    state, found = seed, 0
    for _ in range(steps):
        state = (state * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        x = state * UNIT
        state = (state * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        y = state * UNIT
        if x * x + y * y < 1.0:
            found += 1
    return found


def lines(first: int, count: int, steps: int) -> bytes:
    """The results of consecutive runs, as COPY takes them: run, hits, area."""
    rows = []
    for run in range(first, first + count):
        found = hits(run, steps)
        rows.append(f"{run}\t{found}\t{4.0 * found / steps}\n")
    return "".join(rows).encode()
