"""Pools of processes: workers that die or hang."""

from __future__ import annotations

import asyncio
import functools
import os
import random
import signal
from pathlib import Path
from typing import Any

import pool_functions as functions
import pytest
import tidewire as tw
from link_processes import ends
from pool_support import PATIENCE, at, opened, pids, process_pool, program
from tidewire.pools import Pool, Restarts

# Workers that die


@pytest.mark.promise("P12.1", "P12.2", "P12.7", "P12.9")
async def test_twenty_killed_workers_lose_none_of_four_thousand_tasks(tmp_path: Path) -> None:
    killed: set[int] = set()
    chance = random.Random(1)

    async def kill_one(pool: Pool) -> None:
        def victims(now: dict[str, Any]) -> list[int]:
            at_work = [worker for worker in now["workers"] if worker["task"] is not None and worker["handled"]]
            return [worker["pid"] for worker in at_work if worker["pid"] not in killed]

        victim = chance.choice(victims(await pool.until(victims, PATIENCE)))
        killed.add(victim)
        os.kill(victim, signal.SIGKILL)

    function = functools.partial(functions.noted, str(tmp_path))
    async with process_pool(function, 2, max_deliveries=10) as pool:
        futures = [pool.submit(n) for n in range(4_000)]
        for finished, future in enumerate(futures):
            await future
            if finished % 150 == 0 and len(killed) < 20:
                await kill_one(pool)
        assert [future.result() for future in futures] == list(range(4_000))
        await pool.until(lambda now: now["restarts"] == 20, PATIENCE)
        redelivered = pool.statistics()["redelivered"]
    assert pool.ledger == tw.Ledger(4_000, 4_000, 0, 0, reason="stopped")
    # A task that was begun again may have been called before or not; each call beyond the first
    # is among those.
    calls = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert 4_000 <= calls <= 4_000 + redelivered


@pytest.mark.promise("P12.6", "P12.7")
async def test_a_killed_worker_is_replaced_soon(gate: str) -> None:
    loop = asyncio.get_running_loop()
    async with process_pool(functions.wait_if_path, 1) as pool:
        await pool.submit(1)
        first = pids(pool)
        waiting, behind = pool.submit(gate), pool.submit(2)
        before = await at(gate)
        os.kill(first[0], signal.SIGKILL)
        # Until it has ended it keeps the gate open.
        assert await asyncio.to_thread(ends, first[0])
        since = loop.time()
        after = await at(gate)
        assert loop.time() - since < 10
        assert pids(pool) not in (first, [])
        os.close(before)
        os.close(after)
        assert (await waiting, await behind) == (gate, 2)


@pytest.mark.promise("P12.13")
async def test_a_restart_storm_ends_in_a_failed_pool() -> None:
    pool = process_pool(functions.die, restarts=Restarts(max=3, backoff_ms=1), max_deliveries=1_000, name="stormy")
    async with pool:
        ended = await asyncio.gather(*[pool.submit(n) for n in range(50)], return_exceptions=True)
        assert {type(error) for error in ended} == {tw.PoolFailed}
        assert "killed by SIGKILL" in str(ended[0]) and "stormy" in str(ended[0])
        assert pool.state == "failed"
        with pytest.raises(tw.PoolFailed):
            pool.submit(1)
        assert pool.statistics()["restarts"] == 4
        assert await pool.stop() == tw.Ledger(50, 0, 0, 50, reason="failed")
    assert pool.state == "failed"


def test_a_child_of_a_worker_does_not_keep_it_alive(gate: str) -> None:
    with process_pool(functions.leave_child, 1, max_deliveries=1) as pool:
        with pytest.raises(tw.WorkerLost, match="exit code 9") as caught:
            pool.sync.submit(gate)
        assert caught.value.retryable
        opened(gate)


@pytest.mark.promise("P12.21")
@pytest.mark.parametrize("stuck", [False, True])
def test_workers_end_with_a_parent_that_is_killed(stuck: bool, gate: str, tmp_path: Path) -> None:
    code = f"""
        import os, signal, threading
        import pool_functions
        from tidewire.pools import Pool
        pool = Pool(pool_functions.say_and_hang, 3, "process")
        pool.start()
        if {stuck}:
            said = os.open({gate!r}, os.O_RDWR)
            for _ in range(3):
                threading.Thread(target=pool.sync.submit, args=({gate!r},), daemon=True).start()
            for _ in range(3):
                assert os.read(said, 1) == b"x"
        else:
            pool.sync.until(lambda now: [worker["state"] for worker in now["workers"]] == ["ready"] * 3)
        print(*(worker["pid"] for worker in pool.statistics()["workers"]), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    ran = program(code, tmp_path)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    assert len(ran.stdout.split()) == 3
    assert all(ends(pid) for pid in map(int, ran.stdout.split()))


# Workers that hang


@pytest.mark.promise("P12.10", "P12.12")
async def test_a_hung_worker_is_killed_and_replaced() -> None:
    async with process_pool(functions.hang_if, 2, task_timeout=0.2) as pool:
        numbers = [1, -1, 2, 3, -2, 4]
        ended = await asyncio.gather(*[pool.submit(n) for n in numbers], return_exceptions=True)
        assert [n for n in ended if isinstance(n, int)] == [1, 2, 3, 4]
        assert [type(error) for error in ended if not isinstance(error, int)] == [tw.TaskTimeout] * 2
        assert isinstance(ended[1], TimeoutError)
        assert await pool.submit(5) == 5
        assert pool.statistics()["timed_out"] == 2
    assert pool.ledger == tw.Ledger(7, 5, 0, 2, reason="stopped")


async def test_the_only_worker_of_an_idle_pool_is_watched_from_its_first_task_on() -> None:
    async with process_pool(functions.hang_if, 1, task_timeout=0.1) as pool:
        await pool.submit(1)
        for _ in range(3):
            with pytest.raises(tw.TaskTimeout):
                await pool.submit(-1)


async def test_a_worker_that_is_frozen_before_its_task_has_ended_is_found_by_the_limit() -> None:
    async with process_pool(functions.increment, 1, task_timeout=0.2) as pool:
        await pool.submit(0)
        os.kill(pids(pool)[0], signal.SIGSTOP)
        frozen = pool.submit(1)
        os.kill(pids(pool)[0], signal.SIGCONT)
        assert await frozen == 2


@pytest.mark.promise("P12.27")
async def test_short_tasks_do_not_wait_behind_a_long_one(gate: str) -> None:
    async with process_pool(functions.wait_if_path, 2) as pool:
        for _ in range(5):
            await asyncio.gather(*[pool.submit(n) for n in range(2_000)])
        futures = [pool.submit(n if n != 100 else gate) for n in range(2_000)]
        done = await asyncio.gather(*[future for n, future in enumerate(futures) if n != 100])
        assert len(done) == 1_999
        assert not futures[100].done()
        await asyncio.to_thread(opened, gate)
        assert await futures[100] == gate
    assert pool.ledger is not None and pool.ledger.handled == 12_000
