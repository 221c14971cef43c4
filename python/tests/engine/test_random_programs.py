"""Random programs, each in a process of its own; ``make random`` gives them more seconds."""

from __future__ import annotations

import importlib.util

import pytest
import random_budget
from random_programs import LOOPS, WATCHDOG_S, run_all


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.timeout(random_budget.SECONDS + 2 * WATCHDOG_S)
def test_random_programs(loop: str) -> None:
    if loop == "uvloop" and importlib.util.find_spec("uvloop") is None:
        pytest.skip("uvloop is not installed here")
    wrong = run_all(random_budget.seeds(f"random programs on {loop}"), [loop], True, 2)
    assert not wrong, "\n".join(wrong)
