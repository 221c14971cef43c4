"""The clerk and its team, ``examples/clerk``, played short at both homes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

MAIN = Path(__file__).resolve().parents[2] / "examples/clerk/main.py"


@pytest.mark.parametrize("home", ["folder", "nats"])
def test_a_team_that_is_killed_in_its_conversation_ends_with_the_same_answers(home: str) -> None:
    ran = subprocess.run(
        [sys.executable, MAIN, "--home", home, "--claims", "24"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if ran.stderr.splitlines()[-1:] and ran.stderr.splitlines()[-1].startswith("nats-server:"):
        pytest.skip(ran.stderr.splitlines()[-1])
    assert ran.returncode == 0, ran.stdout + ran.stderr
    killed = re.findall(r"the counter is at answer (\d+) of 24: its .* killed with SIGKILL", ran.stdout)
    assert killed == ["6", "12", "18"], ran.stdout
    assert "all 24 answers are those of a plain loop" in ran.stdout
