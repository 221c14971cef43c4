"""Cancelled tasks of pools: queued, running with checks, running without."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pool_functions as functions
import pytest
import tidewire as tw
from link_processes import ends
from pool_support import PATIENCE, at, pids, process_pool
from tidewire.pools import Batch, Pool

KINDS = pytest.mark.parametrize("kind", ["thread", "process"])
WAYS = {"report": functions.stay, "ask": functions.stay, "await": functions.stay_awaiting}


@KINDS
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.promise("P12.56", "P12.57")
async def test_a_request_that_goes_away_ends_its_task_at_the_next_check(kind: Any, way: str, gate: str) -> None:
    async with Pool(WAYS[way], 1, kind) as pool:

        async def handle_request() -> None:
            await pool.submit(gate, way)

        request = asyncio.create_task(handle_request())
        await asyncio.to_thread(Path(gate).read_bytes)
        queued = [pool.submit(gate, way) for _ in range(3)]
        for future in queued:
            future.cancel()
        request.cancel()
        assert isinstance((await asyncio.gather(request, return_exceptions=True))[0], asyncio.CancelledError)
        now = await pool.until(lambda now: not now["in_workers"] and not now["waiting"], PATIENCE)
        assert (now["restarts"], now["failed"]) == (0, 0)
        await pool.submit(None, way)
    assert pool.ledger is not None and pool.ledger.balanced and pool.ledger.accepted == 5


@pytest.mark.parametrize("mode", ["interrupt", "kill"])
@pytest.mark.promise("P12.58", "P12.59")
async def test_a_process_that_does_not_check_is_killed_and_other_tasks_go_on(mode: Any, gate: str) -> None:
    async with process_pool(functions.stay, 1, max_deliveries=1) as pool:
        await pool.submit(None, "hang")
        before = pids(pool)
        running = pool.with_(on_cancel=mode).submit(gate, "hang")
        await asyncio.to_thread(Path(gate).read_bytes)
        others = [pool.submit(None, "hang") for _ in range(100)]
        running.cancel()
        await asyncio.gather(*others)
        assert len(pids(pool)) == 1 and pids(pool) != before
        assert pool.statistics()["restarts"] == 1
        assert await asyncio.to_thread(ends, before[0])
    assert pool.ledger == tw.Ledger(102, 101, 0, 1, reason="stopped")


@KINDS
@pytest.mark.promise("P12.58")
async def test_leave_lets_a_cancelled_task_run_to_its_end(kind: Any, gate: str) -> None:
    async with Pool(functions.wait_if_path, 1, kind, on_cancel="leave") as pool:
        running = pool.submit(gate)
        entered = await at(gate)
        running.cancel()
        os.close(entered)
        assert await pool.submit(1) == 1
    assert pool.ledger == tw.Ledger(2, 2, 0, 0, reason="stopped")


def test_threads_refuse_to_be_killed_and_settings_are_checked() -> None:
    with pytest.raises(tw.InvalidArgument, match=r"on_cancel: 'kill' .* threads can't be killed: use kind='process'"):
        Pool(functions.increment, on_cancel="kill")
    pool = Pool(functions.increment)
    for settings in ({"on_cancel": "kill"}, {"on_cancel": "stop"}, {"on_progress": 3}):
        with pytest.raises(tw.InvalidArgument, match=f"{next(iter(settings))}: .*: (use|give)"):
            pool.with_(**settings)


@KINDS
@pytest.mark.promise("P12.61")
async def test_the_submitter_gets_the_newest_progress_before_the_result(kind: Any) -> None:
    reports: list[tuple[float, str]] = []
    async with Pool(functions.report_to_its_end, 1, kind) as pool:
        calls = pool.with_(on_progress=lambda *report: reports.append(report))
        assert await calls.submit(2_000) == 2_000
        assert reports[-1] == (1.0, "done") and reports == sorted(reports)
        with pytest.raises(tw.InvalidArgument, match="a task of a pool belongs to no call"):
            await Pool(lambda: tw.context().user).submit()


@KINDS
@pytest.mark.promise("P12.60")
async def test_a_batch_ends_only_when_all_of_its_tasks_are_cancelled(kind: Any, gate: str) -> None:
    async with Pool(functions.look_at_batch, 1, kind, Batch(2, 20_000)) as pool:
        first = pool.submit(gate)
        entered = await at(gate)
        second, third = pool.submit(gate), pool.submit(gate)
        os.close(entered)
        assert await first == "False"
        entered = await at(gate)
        second.cancel()
        os.close(entered)
        assert await third == "False"


@KINDS
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.promise("P12.56", "P12.59")
async def test_random_cancellations_lose_and_repeat_no_other_task(kind: Any, seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    async with Pool(functions.increment):
        pass
    files = len(os.listdir("/proc/self/fd"))
    async with Pool(functions.chore, 2, kind, capacity=100) as pool:
        futures = []
        for n in range(120):
            calls = pool.with_(on_cancel=chance.choice(["interrupt", "leave", "kill"][: 2 + (kind == "process")]))
            futures.append(calls.submit(str(tmp_path), n, chance.choice([0, 0, 0, 1, 2])))
            if chance.random() < 0.3:
                await asyncio.sleep(chance.random() / 100)
            if chance.random() < 0.4:
                chance.choice(futures).cancel()
        results = await asyncio.gather(*futures, return_exceptions=True)
        now = await pool.until(lambda now: not now["in_workers"] and len(now["workers"]) == 2, PATIENCE)
        assert now["waiting"] == now["waiting_for_room"] == now["failed"] == 0
        assert await pool.submit(str(tmp_path), 120, 0) == 120
    done = [n for n, result in enumerate(results) if not isinstance(result, asyncio.CancelledError)]
    assert [results[n] for n in done] == done
    marks = {int(path.name): path.read_text() for path in tmp_path.iterdir()}
    assert {n for n in done if marks[n] != "be"} == set()
    assert {mark for n, mark in marks.items() if n not in done} <= {"b", "be"}
    assert pool.ledger is not None and pool.ledger.balanced and pool.ledger.handled > len(done)
    # Files of tests before this one may have been collected meanwhile.
    assert len(os.listdir("/proc/self/fd")) <= files
