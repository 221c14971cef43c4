"""Random histories over links, each by its number and in a process of its own: ``make histories`` plays many more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HISTORY = Path(__file__).with_name("link_history.py")
FIRST = int(os.environ.get("HISTORIES_FIRST", "0"))
MANY = int(os.environ.get("HISTORIES", "12"))
STEPS = os.environ.get("HISTORIES_STEPS", "60")


@pytest.mark.parametrize("seed", range(FIRST, FIRST + MANY))
@pytest.mark.timeout(120)
def test_a_random_history_ends_as_it_must(seed: int) -> None:
    command = [sys.executable, str(HISTORY), str(seed), STEPS]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=110)
    replay = f"play it again with: python {HISTORY.name} {seed} {STEPS}"
    assert done.returncode == 0, f"{replay}\n{done.stderr[-6_000:]}"
    assert done.stdout == f"history {seed}: well\n", done.stdout
    # What nobody has waited for, and errors that nobody has seen, are said there.
    assert not done.stderr, f"{replay}\n{done.stderr[-6_000:]}"
