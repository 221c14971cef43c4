"""Operation of a running pool: the number of its workers is set, and it is drained."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pool_functions as functions
import pytest
import tidewire as tw
from pool_support import PATIENCE, at

both = pytest.mark.parametrize("kind", ["thread", "process"])


@pytest.mark.promise("P12.62")
@both
async def test_the_set_number_of_workers_stays_until_the_load_decides_again(
    kind: Any, gate: str, tmp_path: Path
) -> None:
    scale = tw.Scale(1, 4, target_wait_ms=1, idle_ms=50)
    async with tw.Pool(functions.wait_if_path, scale, kind) as pool:
        pool.scale(2)
        await pool.until(lambda now: len(now["workers"]) == 2, PATIENCE)
        os.mkfifo(other := str(tmp_path / "other"))
        tasks = [pool.submit(path) for path in (gate, other)]
        entered = [await at(path) for path in (gate, other)]
        waiting = [pool.submit(number) for number in range(9)]
        pool.scale(1)
        os.close(entered[0])
        await pool.until(lambda now: len(now["workers"]) == 1, PATIENCE)
        assert await tasks[0] == gate
        os.close(entered[1])
        assert await asyncio.gather(*waiting) == list(range(9))
        decided = [(one["before"], one["workers"], one["reason"]) for one in pool.statistics()["decisions"]]
        assert decided == [(1, 2, "set by scale"), (2, 1, "set by scale")]
        pool.scale(4)
        await pool.until(lambda now: len(now["workers"]) == 4, PATIENCE)
        pool.scale(None)
        await pool.until(lambda now: len(now["workers"]) == 1, PATIENCE)


def test_a_number_beyond_the_limits_is_refused() -> None:
    for pool, wrong in ((tw.Pool(len, tw.Scale(2, 3)), (4, 1, True, "3")), (tw.Pool(len, 2), (3,))):
        pool.scale(2)
        for workers in wrong:
            with pytest.raises(tw.InvalidArgument, match=f"workers: {workers!r} is not allowed: pool .* takes 2 to "):
                pool.scale(workers)  # type: ignore[arg-type]


@pytest.mark.promise("P12.63")
@both
async def test_a_drained_pool_takes_no_task_and_handles_the_accepted_ones(kind: Any, gate: str) -> None:
    async with tw.Pool(functions.wait_if_path, 1, kind) as pool:
        accepted = [pool.submit(gate), *(pool.submit(number) for number in range(5))]
        entered = await at(gate)
        pool.drain()
        for refused in (lambda: pool.submit(6), lambda: pool.scale(1)):
            with pytest.raises(tw.PoolStopped):
                refused()
        os.close(entered)
        assert await asyncio.gather(*accepted) == [gate, *range(5)]
    assert pool.ledger == tw.Ledger(6, 6, 0, 0, reason="stopped")
