"""Maps travel as ranges of tasks: each item has one outcome, whatever happens to its range."""

from __future__ import annotations

import asyncio
import functools
import os
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pool_functions as functions
import pytest
import tidewire as tw
from pool_support import PATIENCE, process_pool
from tidewire.pools import Pool, Restarts, Task

KINDS = pytest.mark.parametrize("kind", ["thread", "process"])
ERRORS = {"raise": ZeroDivisionError, "hang": tw.TaskTimeout, "die": tw.TaskQuarantined}
REASONS = {"raise": "failed", "hang": "timeout", "die": "quarantined"}


def outcomes_of(pool: Pool, items: list[Any]) -> list[Any]:
    """Return the results and the types of the errors. A map ends with its first error, and the next
    map begins behind it.
    """
    outcomes: list[Any] = []
    while len(outcomes) < len(items):
        try:
            for result in pool.sync.map(items[len(outcomes) :]):
                outcomes.append(result)  # noqa: PERF402
        except Exception as error:  # noqa: BLE001
            outcomes.append(type(error))
    return outcomes


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.promise("P12.1", "P12.2", "P12.7", "P12.8", "P12.9", "P12.10", "P12.23")
def test_random_deeds_in_processes_have_one_outcome_for_each_item(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    items = [(n, "") for n in range(600)]
    for n in chance.sample(range(600), 8):
        items[n] = (n, chance.choice(["raise", "hang", "die", "die once"]))
    dead: list[tuple[Task, str]] = []
    with process_pool(
        functools.partial(functions.deed, str(tmp_path)),
        2,
        task_timeout=0.3,
        on_cancel="kill",
        restarts=Restarts(1_000, backoff_ms=1, backoff_max_ms=1),
        on_dead=lambda task, reason, _: dead.append((task, reason)),
    ) as pool:
        # Workers learn that the tasks are short.
        assert list(pool.sync.map([(n, "") for n in range(1_000, 2_000)])) == list(range(1_000, 2_000))
        assert outcomes_of(pool, items) == [ERRORS.get(way, n) for n, way in items]
        redelivered = pool.sync.until(lambda now: not now["in_workers"] + now["waiting"], PATIENCE)["redelivered"]
    assert pool.ledger is not None and pool.ledger.balanced and not pool.ledger.returned
    given_up = {(task.args[0], reason) for task, reason in dead if reason != "cancelled"}
    assert given_up == {((n, way), REASONS[way]) for n, way in items if way in REASONS}
    # Only the task at which workers ended counts deliveries.
    assert all(task.deliveries == 2 for task, reason in dead if reason == "quarantined")
    assert all(task.args[0][1] == "die" for task, reason in dead if task.deliveries and reason != "cancelled")
    calls = {n: os.path.getsize(tmp_path / str(n)) for n, _ in items}
    assert min(calls.values()) >= 1
    assert all(calls[n] >= 2 for n, way in items if way.startswith("die"))
    # A map that ends early may have begun items of the next one.
    errors = sum(way in ERRORS for _, way in items)
    assert max(calls.values()) <= 1 + errors + redelivered


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.promise("P12.1", "P12.2", "P12.10", "P12.23")
def test_random_deeds_in_threads_have_one_outcome_for_each_item(seed: int) -> None:
    chance = random.Random(seed)
    items = [(n, "") for n in range(20_000)]
    for n in chance.sample(range(20_000), 8):
        items[n] = (n, chance.choice(["raise", "hang"]))
    calls: Counter[int] = Counter()
    dead: list[tuple[Task, str]] = []
    over = threading.Event()

    def deed(item: tuple[int, str]) -> int:
        n, way = item
        calls[n] += 1
        if way == "hang":
            over.wait(PATIENCE)
        return n // (way != "raise")

    with Pool(deed, 2, task_timeout=0.1, on_dead=lambda task, reason, _: dead.append((task, reason))) as pool:
        assert outcomes_of(pool, items) == [ERRORS.get(way, n) for n, way in items]
        over.set()
    assert pool.ledger is not None and pool.ledger.balanced and not pool.ledger.returned
    assert {(task.args[0], reason) for task, reason in dead if reason != "cancelled"} == {
        ((n, way), REASONS[way]) for n, way in items if way
    }
    errors = sum(bool(way) for _, way in items)
    assert min(calls[n] for n, _ in items) >= 1 and max(calls.values()) <= 1 + errors


@pytest.mark.promise("P12.27")
def test_threads_take_over_what_waits_behind_a_long_item_of_a_range() -> None:
    last = threading.Event()

    def work(n: int) -> int:
        if n == 20_000:
            assert last.wait(PATIENCE)
        if n == 20_999:
            last.set()
        return n

    with Pool(work, 2) as pool:
        # The long item waits for the last one, which lies behind it.
        assert list(pool.sync.map(range(21_000))) == list(range(21_000))


@KINDS
@pytest.mark.promise("P12.27")
async def test_the_results_before_a_long_item_of_a_range_are_there_before_it_ends(kind: Any, gate: str) -> None:
    async with Pool(functions.wait_if_path, 1, kind) as pool:
        assert len([n async for n in pool.map(range(5_000))]) == 5_000
        results = pool.map([*range(500), gate, *range(500)])
        assert [await asyncio.wait_for(anext(results), PATIENCE) for _ in range(500)] == list(range(500))
        os.close(await asyncio.to_thread(os.open, gate, os.O_WRONLY))
        assert [result async for result in results] == [gate, *range(500)]


@KINDS
@pytest.mark.promise("P12.56", "P12.57", "P12.59")
async def test_a_map_that_is_left_begins_nothing_behind_its_present_item(kind: Any, gate: str) -> None:
    async with Pool(functions.stay_if_path, 1, kind) as pool:
        assert len([n async for n in pool.map(range(5_000))]) == 5_000
        results = pool.map([*range(300), gate, *range(500)], ahead=600)
        assert [await anext(results) for _ in range(300)] == list(range(300))
        await asyncio.to_thread(Path(gate).read_bytes)
        await results.aclose()  # type: ignore[attr-defined]
        now = await pool.until(lambda now: not now["in_workers"] + now["waiting"], PATIENCE)
        assert now["handled"] == 5_300
        assert now["dead_by_reason"] == {"cancelled": now["accepted"] - 5_300}
        assert await pool.submit(7) == 7


@pytest.mark.promise("P12.5")
def test_a_range_never_fills_the_backlog_beyond_its_capacity() -> None:
    waiting: list[int] = []

    def look(n: int) -> int:
        waiting.append(pool.statistics()["waiting"])
        return n

    with Pool(look, 2, capacity=7) as pool:
        assert list(pool.sync.map(range(2_000), ahead=300)) == list(range(2_000))
    # A thread may give back as many as it took.
    assert 0 < max(waiting) <= 14


@pytest.mark.parametrize("drain", [True, False])
@pytest.mark.promise("P12.19")
async def test_a_stop_handles_or_returns_what_a_thread_has_not_begun(drain: bool) -> None:
    entered, opened = threading.Event(), threading.Event()

    def wait_at(n: int) -> int:
        if n == 3_000:
            entered.set()
            assert opened.wait(PATIENCE)
        return n

    pool = Pool(wait_at, 1)
    assert len([n async for n in pool.map(range(2_000))]) == 2_000
    results = pool.map(range(2_000, 5_000), ahead=3_000)
    assert await anext(results) == 2_000
    assert await asyncio.to_thread(entered.wait, PATIENCE)
    stopping = asyncio.ensure_future(pool.stop(drain))
    if not drain:
        await pool.until(lambda now: not now["waiting"] and now["in_workers"] == 1, PATIENCE)
    opened.set()
    ledger = await stopping
    assert (ledger.accepted, ledger.handled) == (5_000, 5_000 if drain else 3_001)
    assert [task.args[0] for task in ledger.messages] == ([] if drain else list(range(3_001, 5_000)))


@KINDS
def test_items_are_released_where_their_destructors_may_use_the_pool(kind: Any) -> None:
    released = 0

    class Item:
        def __init__(self, n: int) -> None:
            self.n = n

        def __reduce__(self) -> Any:
            return int, (self.n,)

        def __del__(self) -> None:
            nonlocal released
            # This waits for the lock of the pool.
            released += pool.statistics()["accepted"] > 0

    with Pool(functions.kind_of, 2, kind, capacity=40) as pool:
        kinds = set(pool.sync.map(map(Item, range(5_000)), ahead=100))
        for _ in range(50):
            next(pool.sync.map(map(Item, range(5_000)), ahead=100))
        pool.sync.until(lambda now: not now["in_workers"] + now["waiting"], PATIENCE)
    assert kinds == {"Item" if kind == "thread" else "int"}
    assert released >= 5_000
