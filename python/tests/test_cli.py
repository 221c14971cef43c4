"""The command `tidewire`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import tidewire as tw

PACKAGE = Path(__file__).resolve().parents[1]


def tidewire(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidewire", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, cwd=PACKAGE, env={**os.environ, **environment}
    )


def test_the_version_is_the_packages() -> None:
    assert tidewire("--version").stdout == f"tidewire {tw.__version__}\n"


def test_doctor_finds_nothing_on_a_sound_installation() -> None:
    ran = tidewire("doctor", "--json")
    report = json.loads(ran.stdout)
    assert (ran.returncode, report["problems"]) == (0, []), ran.stdout
    assert set(report["checks"]) == {"ask", "10,000 messages in order", "timer", "coroutines"}
    assert "mailbox_capacity = 10000" in report["configuration"]


def test_doctor_names_what_is_wrong_with_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("mailbox_capacityy = 5\n")
    ran = tidewire("doctor", "--config", str(file), TIDEWIRE_SPIN_US="-1")
    assert ran.returncode == 1
    words = " ".join(ran.stdout.split())
    assert "did you mean mailbox_capacity?" in words
    assert "TIDEWIRE_SPIN_US" in words


def test_an_unknown_command_is_wrong_usage() -> None:
    ran = tidewire("fly")
    assert ran.returncode == 2
    assert "fly" in ran.stderr


def test_help_shows_examples() -> None:
    assert "Example: tidewire doctor" in " ".join(tidewire("doctor", "--help").stdout.split())
    assert "tidewire bench engine --only A1,A2" in tidewire("bench", "engine", "--help").stdout


def test_help_says_where_limits_of_tokens_go() -> None:
    told = " ".join(tidewire("up", "--help").stdout.replace("│", " ").split())
    assert "What a token allows, and its limits, go in tables hub.tokens of the --config file" in told


def test_the_command_without_a_checkout_says_where_benchmarks_are(tmp_path: Path) -> None:
    ran = tidewire("bench", "engine", "--smoke", TIDEWIRE_BENCH=str(tmp_path))
    assert ran.returncode == 2
    assert "a part of the repository, not of the installed package" in ran.stderr
    assert "TIDEWIRE_BENCH" in ran.stderr
