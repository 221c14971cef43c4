"""Durations of test files, with processor time beside wall time: hooks that conftest.py gives to
pytest.
"""

from __future__ import annotations

import resource
import sys
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[3] / "tools"))

import durations

_WORK, _COSTS, _CALIBRATION = pytest.StashKey[float](), defaultdict[str, list[float]](lambda: [0, 0.0, 0.0]), [0.0]


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        _CALIBRATION[0] = durations.calibrate()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the processor time of a phase: that of this process and of the child processes that it
    has waited for.
    """
    report = yield
    now = sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, _WHOSE))
    report.work_s = now - item.session.stash.get(_WORK, now)
    item.session.stash[_WORK] = now
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    cost = _COSTS[report.nodeid.partition("::")[0]]
    cost[0] += report.when == "call"
    cost[1] += report.duration
    cost[2] += getattr(report, "work_s", 0.0)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput") or not _COSTS:
        return
    costs = [durations.Cost(name, int(tests), wall, work) for name, (tests, wall, work) in _COSTS.items()]
    whole = not any(
        (session.config.option.keyword, session.config.option.markexpr, session.config.args_source.name == "ARGS")
    )
    print()
    if durations.conclude("python", costs, _CALIBRATION[0], whole=whole) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


_WHOSE: tuple[Any, ...] = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
