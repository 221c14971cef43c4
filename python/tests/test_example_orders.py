"""The orders, ``examples/orders``, played short at both homes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

MAIN = Path(__file__).resolve().parents[2] / "examples/orders/main.py"


@pytest.mark.parametrize("home", ["folder", "nats"])
def test_each_order_is_billed_once_although_workers_are_killed(home: str) -> None:
    ran = subprocess.run(
        [sys.executable, MAIN, "--home", home, "--orders", "240"],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    if ran.stderr.splitlines()[-1:] and ran.stderr.splitlines()[-1].startswith("nats-server:"):
        pytest.skip(ran.stderr.splitlines()[-1])
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for wanted in (
        "one of three workers is killed with SIGKILL",
        r"the other is active after \d+\.\d+ s: fence \d+, then fence \d+",
        r"orders are dead letters, such as: LookupError: order \d+: 'sextant' has no price",
        r"command rebuild-owed: +\d+% \d+ of 240 bills",
        "what 40 customers owe was rebuilt",
        "each of 240 orders billed once, by idempotency key",
    ):
        assert re.search(wanted, ran.stdout), (wanted, ran.stdout)
    older, newer = map(int, re.findall(r"fence (\d+)", ran.stdout))
    assert older < newer
