"""Pools of processes: the end of a pool, and of the program that has it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import threading
import time
from pathlib import Path
from typing import Any

import pool_functions as functions
import pytest
import tidewire as tw
from link_processes import ends
from pool_support import at, pids, process_pool, program

# The end


@pytest.mark.promise("P12.2", "P12.19")
async def test_stop_without_drain_returns_what_was_not_begun(gate: str) -> None:
    pool = process_pool(functions.wait_if_path, 1)
    first = pool.submit(gate)
    rest = [pool.submit(n) for n in range(100)]
    entered = await at(gate)
    stopping = asyncio.ensure_future(pool.stop(drain=False))
    ended = await asyncio.gather(*rest, return_exceptions=True)
    assert {type(error) for error in ended} == {tw.PoolStopped}
    os.close(entered)
    ledger = await stopping
    assert await first == gate
    assert (ledger.accepted, ledger.handled, ledger.returned) == (101, 1, 100)
    assert [task.args for task in ledger.messages] == [(n,) for n in range(100)]


@pytest.mark.promise("P12.20")
async def test_stop_gives_up_on_what_is_stuck_and_names_it(gate: str) -> None:
    pool = process_pool(functions.wait_if_path, 1, name="sticky")
    futures = [pool.submit(gate), pool.submit(2)]
    entered = await at(gate)
    pid = pids(pool)[0]
    ledger = await pool.stop(timeout=0.05)
    assert (ledger.accepted, ledger.dead_lettered) == (2, 2)
    assert [stuck.name for stuck in ledger.stuck] == ["sticky"]
    assert ends(pid)
    ended = await asyncio.gather(*futures, return_exceptions=True)
    assert {type(error) for error in ended} == {tw.PoolStopped}
    os.close(entered)


async def test_stop_kills_a_worker_that_would_never_end_by_itself() -> None:
    pool = process_pool(functions.leave_thread, 1)
    await pool.submit(None)
    (worker,) = pids(pool)
    ledger = await pool.stop()
    assert (ledger.handled, ledger.stuck) == (1, ())
    assert ends(worker)


def test_nothing_is_left_after_stop() -> None:
    def usage() -> tuple[set[str], int]:
        return set(os.listdir("/proc/self/fd")), threading.active_count()

    def cycle(function: Any) -> None:
        with process_pool(function, 3, max_deliveries=1) as pool:
            for n in (1, -1, 2):
                with contextlib.suppress(tw.WorkerLost):
                    pool.sync.submit(n)
            seen = pids(pool)
        assert not [pid for pid in seen if os.path.exists(f"/proc/{pid}")]

    cycle(functions.die_if)
    # Leftovers of other stories are collected before the count.
    gc.collect()
    files, threads = usage()
    for _ in range(3):
        cycle(functions.die_if)
    gc.collect()
    # Threads of other stories may end meanwhile.
    assert usage()[0] <= files
    assert usage()[1] <= threads


def test_an_idle_pool_does_not_wake_up() -> None:
    def switches(pid: int) -> list[str]:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [line for task in tasks for line in (task / "status").read_text().splitlines() if "ctxt" in line]

    with process_pool(functions.increment, 1) as pool:
        list(pool.sync.map(range(1_000)))
        worker, supervisor = (
            pids(pool)[0],
            next(thread for thread in threading.enumerate() if "supervisor" in thread.name),
        )
        supervisor_status = Path(f"/proc/self/task/{supervisor.native_id}/status")

        def all_switches() -> list[str]:
            ours = [line for line in supervisor_status.read_text().splitlines() if "voluntary" in line]
            return [*ours, *switches(worker)]

        def rests() -> bool:
            before = all_switches()
            # The time in which nothing may happen.
            time.sleep(0.5)
            return all_switches() == before

        # In the first one the worker may look a last time whether a result waits to be written.
        # After that nothing may happen for longer.
        assert rests() or (rests() and rests())


def test_functions_and_classes_of_the_main_program_can_be_used(tmp_path: Path) -> None:
    ran = program(
        """
        from dataclasses import dataclass
        from tidewire.pools import Pool

        @dataclass
        class Point:
            x: int

        def move(point):
            return Point(point.x + 1)

        if __name__ == "__main__":
            with Pool(move, 2, "process") as pool:
                print(pool.sync.submit(Point(1)), pool.sync.submit(Point(2)) == Point(3))
            with Pool("pool_functions:arguments", 1, "process") as pool:
                print(pool.sync.submit(Point(5)))
        """,
        tmp_path,
    )
    assert (ran.returncode, ran.stdout) == (0, "Point(x=2) True\n((Point(x=5),), {})\n"), ran.stderr


def test_a_program_without_a_main_guard_is_told(tmp_path: Path) -> None:
    ran = program(
        """
        from tidewire.pools import Pool
        def f(n): return n
        with Pool(f, 2, "process") as pool:
            pool.sync.submit(1)
        """,
        tmp_path,
    )
    assert ran.returncode == 1
    assert "PoolFailed" in ran.stderr and "if __name__ == '__main__':" in ran.stderr


@pytest.mark.promise("P12.55")
@pytest.mark.parametrize("ready", [True, False])
def test_sigterm_to_the_group_leaves_the_workers_to_their_pool(tmp_path: Path, ready: bool) -> None:
    ran = program(
        f"""
        import asyncio, os, signal
        import pool_functions
        from tidewire.pools import Pool

        def pids(pool):
            return {{worker["pid"] for worker in pool.statistics()["workers"]}}

        async def main():
            asked = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
            async with Pool(pool_functions.work, 2, "process", on_dead=print) as pool:
                futures = [pool.submit(2_000) for _ in range(200)]
                await pool.until(lambda now: len(now["workers"]) == 2)
                if {ready}:
                    await pool.until(lambda now: all(one["handled"] for one in now["workers"]))
                before = pids(pool)
                os.killpg(0, signal.SIGTERM)
                await asked.wait()
                await asyncio.gather(*futures)
                print(pids(pool) == before)
                print((await pool.stop()).balanced)

        asyncio.run(main())
        """,
        tmp_path,
        start_new_session=True,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "True\nTrue\n", "")


def test_processes_that_a_task_forks_end_at_sigterm_or_as_they_return(tmp_path: Path) -> None:
    ran = program(
        """
        import os, signal, time
        from tidewire.pools import Pool

        def end_child(number):
            child = os.fork()
            if child == 0 and number % 2:
                return "a child is no second worker"
            if child == 0:
                time.sleep(60)
            if number % 2 == 0:
                os.kill(child, signal.SIGTERM)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

        if __name__ == "__main__":
            with Pool(end_child, 1, "process") as pool:
                print(sorted({pool.sync.submit(n) for n in range(50)}))
            print(pool.ledger)
        """,
        tmp_path,
    )
    counts = "50 accepted = 50 handled + 0 returned + 0 dead-lettered"
    assert (ran.returncode, ran.stdout) == (0, f"[-15, 0]\n{counts}\n"), ran.stderr


@pytest.mark.parametrize("ready", [True, False])
def test_ctrl_c_lets_what_was_begun_end_and_returns_the_rest(tmp_path: Path, ready: bool) -> None:
    ran = program(
        f"""
        import asyncio, os, signal
        import pool_functions
        from tidewire.pools import Pool

        futures = []

        async def main():
            async with Pool(pool_functions.work, 2, "process", on_dead=print) as pool:
                futures.extend(pool.submit(2_000) for _ in range(200))
                # A shell that runs the tests in the background has it ignored.
                signal.signal(signal.SIGINT, signal.default_int_handler)
                if {ready}:
                    await futures[0]
                else:
                    await pool.until(lambda now: now["workers"])
                os.killpg(0, signal.SIGINT)
                await asyncio.Event().wait()

        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            # The workers were interrupted, too: none has ended at that.
            ends = [future.exception() for future in futures]
            print("interrupted", len(ends), sorted({{type(end).__name__ for end in ends if end is not None}}))
            print(all(future.result() == 2_000 for future, end in zip(futures, ends) if end is None))
        """,
        tmp_path,
        start_new_session=True,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "interrupted 200 ['PoolStopped']\nTrue\n", "")


def test_a_program_that_forgets_its_pool_ends_and_leaves_no_worker(tmp_path: Path) -> None:
    ran = program(
        """
        import pool_functions
        from tidewire.pools import Pool
        pool = Pool(pool_functions.pid, 1, "process")
        print(pool.sync.submit(0))
        """,
        tmp_path,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ends(int(ran.stdout))
