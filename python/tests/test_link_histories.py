"""Random histories over links, each by its number and in a process of its own: ``make histories``
plays many more.

Their numbers take turns on asyncio, uvloop and plain threads, over TCP and over Unix sockets, with
``-X dev`` and without.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HISTORY = Path(__file__).with_name("link_history.py")
FIRST = int(os.environ.get("HISTORIES_FIRST", "0"))
MANY = int(os.environ.get("HISTORIES", "12"))
STEPS = os.environ.get("HISTORIES_STEPS", "60")
LOOPS = ["asyncio", "threads"] + ["uvloop"] * (importlib.util.find_spec("uvloop") is not None)


def way(seed: int) -> tuple[list[str], list[str]]:
    """Return the options of Python and the loop and place of a history: all of them within twelve
    numbers.
    """
    loop, place = LOOPS[seed % len(LOOPS)], ("tcp", "unix")[seed // 3 % 2]
    return (["-X", "dev"] if seed // 6 % 2 else []), [loop, place]


@pytest.mark.parametrize("seed", range(FIRST, FIRST + MANY))
@pytest.mark.timeout(120)
def test_a_random_history_ends_as_it_must(seed: int) -> None:
    options, chosen = way(seed)
    command = [sys.executable, *options, str(HISTORY), str(seed), STEPS, *chosen]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=110)
    replay = f"play it again with: python {' '.join([*options, HISTORY.name, str(seed), STEPS, *chosen])}"
    assert done.returncode == 0, f"{replay}\n{done.stderr[-6_000:]}"
    assert done.stdout == f"history {seed}: well\n", done.stdout
    # Futures that nobody awaited, and errors that nobody has seen, are reported on stderr.
    assert not done.stderr, f"{replay}\n{done.stderr[-6_000:]}"
