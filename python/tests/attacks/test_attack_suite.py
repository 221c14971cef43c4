"""The suite of attacks finds what it looks for."""

from __future__ import annotations

import os
import signal
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

if not sys.platform.startswith("linux"):
    pytest.skip("the suite reads the memory of a hub from /proc", allow_module_level=True)

from attacks import field
from attacks.target import Target

STILL_S = 0.4


def stand_still(target: Target) -> list[str]:
    """Have the hub do nothing for as long as a short attack takes."""
    os.kill(target.pid, signal.SIGSTOP)
    time.sleep(STILL_S)
    os.kill(target.pid, signal.SIGCONT)
    return []


def grow(_: Target) -> list[str]:
    """Find something that is not as it should be."""
    return ["there is a forged service"]


@pytest.mark.parametrize(
    ("look", "memory_mib", "says"),
    [(stand_still, 1_000, "a call above"), (grow, 1_000, "a forged service"), (None, -1_000, "memory above")],
    ids=["still", "problem", "memory"],
)
def test_a_hub_that_does_not_hold_is_found_by_a_short_run(
    monkeypatch: pytest.MonkeyPatch, look: Any, memory_mib: float, says: str
) -> None:
    monkeypatch.setattr(field, "TRIES", 1)
    # Its attacker does next to nothing.
    case: Any = SimpleNamespace(__name__="attacks.cases.resources.slow_reader", MEMORY_MIB=memory_mib, ITEM=0)
    if look is not None:
        case.look = look
    with field.Ground(0.2, STILL_S, is_short=True) as ground:
        outcome = ground.tried(case)
    assert any(says in problem for problem in outcome.broken), outcome
