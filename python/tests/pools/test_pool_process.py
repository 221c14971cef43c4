"""Pools of processes: results, capacity, scaling and batches."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pool_functions as functions
import pytest
import tidewire as tw
from pool_support import PATIENCE, at, process_pool, program
from tidewire.pools import Batch, Scale

# Results


def test_any_value_arrives_as_what_it_was() -> None:
    values = [0, "", None, [], False, 1.5, 2**70, "ü" * 5_000, b"x" * 100_000, {"a": (1, [2])}, os.urandom(20_000_000)]
    with process_pool(functions.arguments, 1) as pool:
        for value in values:
            assert pool.sync.submit(value, named=value) == ((value,), {"named": value})
            assert type(pool.sync.submit(value)[0][0]) is type(value)


def test_an_import_path_a_coroutine_function_and_an_object_can_be_called() -> None:
    for function, expected in (("math:sqrt", 3.0), (functions.later, 10), (functions.Adder(5), 14)):
        with process_pool(function, 1) as pool:
            assert pool.sync.submit(9) == expected


def test_tasks_never_share_an_object() -> None:
    with process_pool(functions.mutate, 1) as pool:
        shared: list[int] = []
        assert list(pool.sync.map([shared] * 100)) == [[0]] * 100
        assert shared == []


# Cancelling and capacity


async def test_a_thousand_cancelled_tasks_leave_nothing_pending(gate: str) -> None:
    async with process_pool(functions.wait_if_path, 1, capacity=800) as pool:
        first = pool.submit(gate)
        futures = [pool.submit(n) for n in range(1_000)]
        entered = await at(gate)
        for future in futures:
            future.cancel()
        statistics = await pool.until(lambda now: now["in_workers"] == 1, PATIENCE)
        assert (statistics["waiting"], statistics["waiting_for_room"]) == (0, 0)
        os.close(entered)
        assert await first == gate
    ledger = pool.ledger
    assert ledger is not None and ledger.balanced
    assert (ledger.handled, ledger.dead_lettered) == (1, ledger.accepted - 1)


@pytest.mark.promise("P12.5")
async def test_a_full_pool_makes_submits_wait_or_fail(gate: str) -> None:
    async with process_pool(functions.wait_if_path, 1, capacity=2, overflow="fail") as pool:
        first = pool.submit(gate)
        entered = await at(gate)
        others = [pool.submit(1), pool.submit(2)]
        with pytest.raises(tw.LimitExceeded, match="capacity: 2 tasks wait"):
            pool.submit(3)
        os.close(entered)
        assert await asyncio.gather(first, *others) == [gate, 1, 2]
    async with process_pool(functions.increment, 1, capacity=2) as pool:
        assert await asyncio.gather(*[pool.submit(n) for n in range(100)]) == list(range(1, 101))


async def test_tasks_cancelled_behind_a_long_one_in_the_same_worker_are_not_begun(gate: str) -> None:
    async with process_pool(functions.wait_if_path, 1) as pool:
        for _ in range(20):
            await asyncio.gather(*[pool.submit(n) for n in range(1_000)])
        first = pool.submit(gate)
        futures = [pool.submit(n) for n in range(200)]
        entered = await at(gate)
        for future in futures:
            future.cancel()
        await pool.until(lambda now: now["in_workers"] == 1, PATIENCE)
        os.close(entered)
        assert await first == gate
    assert pool.ledger == tw.Ledger(20_201, 20_001, 0, 200, reason="stopped")


# Scaling and batches


@pytest.mark.promise("P12.14", "P12.15", "P12.16")
async def test_a_burst_adds_workers_and_calm_removes_them(gate: str) -> None:
    scale = Scale(1, 3, target_wait_ms=20, idle_ms=100)
    async with process_pool(functions.work, scale) as pool:
        burst = asyncio.gather(*[pool.submit(5_000) for _ in range(400)])
        await pool.until(lambda now: len(now["workers"]) == 3, PATIENCE)
        await burst
        await pool.until(lambda now: len(now["workers"]) == 1, PATIENCE)
        decisions = [(one["before"], one["workers"]) for one in pool.statistics()["decisions"]]
        assert decisions[:2] == [(1, 2), (2, 3)]
        assert decisions[-1][1] == 1
        assert await pool.submit(1) == 1
        assert pool.statistics()["restarts"] == 0


@pytest.mark.promise("P12.17")
async def test_a_function_with_batch_gets_what_is_queued() -> None:
    async with process_pool(functions.sizes, 1, batch=Batch(size_max=50, budget_ms=60_000)) as pool:
        assert await pool.submit(0) == 1
        seen = await asyncio.gather(*[pool.submit(n) for n in range(500)])
        assert max(seen) == 50
        assert pool.statistics()["batches"] < 100
    async with process_pool(functions.double_all, batch=Batch()) as pool:
        assert [n async for n in pool.map(range(1_000))] == list(range(0, 2_000, 2))


async def test_of_a_batch_that_kills_its_worker_only_the_guilty_task_is_quarantined() -> None:
    async with process_pool(functions.die_in_batch, 1, batch=Batch(20), max_deliveries=3) as pool:
        ended = await asyncio.gather(*[pool.submit(n) for n in [1, 2, -1, 3, 4]], return_exceptions=True)
        assert [type(one) for one in ended] == [int, int, tw.TaskQuarantined, int, int]


def test_a_worker_process_loads_little_before_its_function() -> None:
    code = "import sys, tidewire.pools.processes.worker; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    heavy = {
        "asyncio",
        "inspect",
        "tempfile",
        "traceback",
        "tidewire._tidewire",
        "tidewire.node",
        "tidewire.pools.pool",
    }
    assert not heavy & set(loaded.stdout.split())


# Functions without a module

NOTEBOOK = """
import dataclasses, tidewire as tw

@dataclasses.dataclass
class Point:
    x: int

class Wrong(Exception):
    pass

step = 5

def moved(point):
    if point.x < 0:
        raise Wrong(point.x)
    return Point(point.x + step)

with tw.Pool(moved, 1, "process", **options) as pool:
    found = pool.sync.submit(Point(1))
    assert found == Point(6) and type(found) is Point, found
    assert pool.sync.submit(point=Point(2)) == Point(7)
    try:
        pool.sync.submit(Point(-1))
    except Wrong as error:
        assert error.args == (-1,), error
with tw.Pool(lambda points: [lambda: step + p.x for p in points], 1, "process", tw.Batch(10), **options) as pool:
    assert pool.sync.submit(Point(1))() == 6
with tw.Pool("operator:neg", 1, "process", **options) as pool:
    assert pool.sync.submit(2**100) == -2**100
with tw.Pool("copy:copy", 1, "process", **options) as pool:
    found = pool.sync.submit(Point(1))
    assert found == Point(1) and type(found) is Point, found
print("done")
"""


def piped(code: str) -> subprocess.CompletedProcess[str]:
    """Run a program without a file, as a notebook has none."""
    command = [sys.executable, "-"]
    return subprocess.run(command, input=code, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.parametrize("options", [{}, {"pickler": "cloudpickle"}], ids=["by itself", "chosen"])
def test_functions_of_a_notebook_run_in_processes_by_value(options: dict[str, str]) -> None:
    pytest.importorskip("cloudpickle")
    ran = piped(f"options = {options}\n{NOTEBOOK}")
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr


def test_a_notebook_without_cloudpickle_learns_what_to_install() -> None:
    ran = piped("""
import sys
sys.modules["cloudpickle"] = None
import tidewire as tw

def double(x):
    return 2 * x

tw.Pool(double, 1, "process")
""")
    assert "function: double is defined in a program that has no file" in ran.stderr, ran
    assert "pip install cloudpickle" in ran.stderr


async def test_agents_of_a_notebook_too() -> None:
    pytest.importorskip("cloudpickle")
    factor = 3

    class Scaling:
        def receive(self, number: int) -> int:
            return number * factor

    async with tw.Node() as node:
        pool = node.pool(Scaling, 1, "process", pickler="cloudpickle")
        assert await pool.submit(4) == 12


def test_a_pickler_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(tw.InvalidArgument, match=r"pickler: 'cloudpickle' can't be imported.*pip install cloudpickle"):
        tw.Pool(lambda n: n, 1, "process", pickler="cloudpickle")
    with pytest.raises(
        tw.InvalidArgument, match="pickler: 'dill' is not allowed: use one of 'auto', 'pickle', 'cloudpickle'"
    ):
        tw.Pool(functions.increment, 1, "process", pickler="dill")  # type: ignore[arg-type]
    with pytest.raises(tw.InvalidArgument, match="use pickler='cloudpickle'"):
        tw.Pool(lambda n: n, 1, "process", pickler="pickle")


NESTED = """
import tidewire as tw

def double(x):
    return 2 * x

def outer(x):
    with tw.Pool(double, 1, "process") as pool:
        return pool.sync.submit(x) + 1

if __name__ == "__main__":
    with tw.Pool(outer, 1, "process") as pool:
        assert pool.sync.submit(20) == 41
    print("done")
"""


def test_a_function_of_the_main_program_runs_in_the_pool_of_a_worker(tmp_path: Path) -> None:
    ran = program(NESTED, tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr
