"""Checks of `tidewire doctor`: versions, configuration, and a short run of the engine."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import tidewire as tw

_OPTIONAL = ("numpy", "pandas", "polars", "pyarrow", "pydantic", "cloudpickle", "typer", "rich")


def examine(config: Path | None) -> dict[str, Any]:
    """Run all checks, and return a report as plain data, with the faults in ``problems``."""
    problems: list[str] = []
    report: dict[str, Any] = {
        "tidewire": tw.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "interpreter_lock": getattr(sys, "_is_gil_enabled", lambda: True)(),
        "packages": {name: _version(name) for name in _OPTIONAL},
        "configuration": None,
        "threads_max": {},
        "checks": {},
        "problems": problems,
    }
    try:
        node = tw.Node(name="doctor", config=config)
    except tw.ConfigError as error:
        problems += error.problems
        return report
    report["configuration"] = node._engine.config()
    rows = node.statistics()["dispatchers"].items()
    report["threads_max"] = {name: row["threads_max"] for name, row in rows if row["threads_max"]}
    with node:
        for name, check in _CHECKS.items():
            began = time.perf_counter()
            problem = _run(check, node)
            report["checks"][name] = round((time.perf_counter() - began) * 1e6)
            if problem:
                problems.append(f"{name}: {problem}")
    if node.ledger is None or not node.ledger.balanced:
        problems.append(f"stop: the ledger does not balance: {node.ledger}")
    return report


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _run(check: Callable[[tw.Node], None], node: tw.Node) -> str | None:
    try:
        check(node)
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return None


def _ask(node: tw.Node) -> None:
    double = node.spawn(lambda n: n * 2)
    if node.sync.ask(double, 21, timeout=5.0) != 42:
        raise AssertionError("an actor replied with a wrong value")


def _order(node: tw.Node) -> None:
    received: list[int] = []
    actor = node.spawn(received.append)
    for n in range(10_000):
        node.sync.send(actor, n)
    node.sync.stop(actor, timeout=5.0)
    if received != list(range(10_000)):
        raise AssertionError("messages were lost or out of order")


def _timer(node: tw.Node) -> None:
    timer = node.schedule(0.001, node.spawn(lambda _: None), "tick")
    if node.sync.outcome(timer) != "delivered":
        raise AssertionError("a timer was not delivered")


def _coroutines(node: tw.Node) -> None:
    async def triple(n: int) -> int:
        return n * 3

    if node.sync.ask(node.spawn(triple), 2, timeout=5.0) != 6:
        raise AssertionError("a coroutine replied with a wrong value")


_CHECKS: dict[str, Callable[[tw.Node], None]] = {
    "ask": _ask,
    "10,000 messages in order": _order,
    "timer": _timer,
    "coroutines": _coroutines,
}
