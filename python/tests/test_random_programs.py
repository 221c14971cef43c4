"""A few of the random programs, each in a process of its own; ``make random`` runs many."""

from __future__ import annotations

import importlib.util

import pytest
from random_programs import LOOPS, run_all


@pytest.mark.parametrize("loop", LOOPS)
def test_random_programs(loop: str) -> None:
    if loop == "uvloop" and importlib.util.find_spec("uvloop") is None:
        pytest.skip("uvloop is not installed here")
    wrong = run_all(range(1, 9), [loop], True, 2)
    assert not wrong, "\n".join(wrong)
