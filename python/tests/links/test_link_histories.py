"""Random histories over links, each by its seed and in a process of its own: ``make histories``
gives them more seconds.

The seeds take turns on TCP and Unix sockets, with ``-X dev`` and without.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import link_history
import pytest
import random_budget

HISTORY = Path(link_history.__file__)
STEPS = os.environ.get("HISTORIES_STEPS", "60")
LOOPS = ["asyncio", "threads"] + ["uvloop"] * (importlib.util.find_spec("uvloop") is not None)
TIMEOUT_S = 110


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.timeout(random_budget.SECONDS + TIMEOUT_S + 10)
def test_a_random_history_ends_as_it_must(loop: str) -> None:
    for seed in random_budget.seeds(f"histories over links on {loop}"):
        # All four pairs are within four seeds.
        options, place = ["-X", "dev"] if seed // 2 % 2 else [], ("tcp", "unix")[seed % 2]
        command = [*options, str(HISTORY), str(seed), STEPS, loop, place]
        done = subprocess.run(
            [sys.executable, *command], check=False, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        replay = f"play it again with: python {' '.join(command)}"
        assert done.returncode == 0, f"{replay}\n{done.stderr[-6_000:]}"
        assert done.stdout == f"history {seed}: well\n", f"{replay}\n{done.stdout}"
        # Futures that nobody awaited, and errors that nobody has seen, are reported on stderr.
        assert not done.stderr, f"{replay}\n{done.stderr[-6_000:]}"
