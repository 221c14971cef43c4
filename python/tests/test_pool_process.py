"""Pools of processes: results, workers that die or hang, scaling, batches, and the end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import random
import select
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pool_functions as functions
import pytest
import tidewire as tw
from tidewire.pools import Batch, Pool, Restarts, Scale, Task

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent


def process_pool(function: Any, workers: Any = 2, **options: Any) -> Pool:
    return Pool(function, workers, "process", **options)


def story(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 50))


PATIENCE = 45.0


def busy(pool: Pool) -> list[dict[str, Any]]:
    return [worker for worker in pool.statistics()["workers"] if worker["task"] is not None]


def pids(pool: Pool) -> list[int]:
    return [worker["pid"] for worker in pool.statistics()["workers"]]


def ends(pid: int) -> bool:
    """Wait for the end of a process that need not be a child."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        watch = select.poll()
        watch.register(pidfd, select.POLLIN)
        return bool(watch.poll(20_000))
    finally:
        os.close(pidfd)


@pytest.fixture
def gate(tmp_path: Path) -> str:
    """A named pipe that keeps ``wait_for`` waiting until ``opened`` it is."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return str(path)


def opened(gate: str) -> None:
    Path(gate).write_bytes(b"")


async def at(gate: str) -> int:
    """Wait until a worker waits at the gate. Closing the number that is returned lets it go."""
    return await asyncio.to_thread(os.open, gate, os.O_WRONLY)


# Results


def test_results_come_back_to_whoever_submitted() -> None:
    async def main() -> None:
        async with process_pool(functions.increment) as pool:
            assert await asyncio.gather(*[pool.submit(n) for n in range(5_000)]) == list(range(1, 5_001))
            assert pool.state == "running"
        assert pool.state == "stopped"
        assert pool.ledger == tw.Ledger(5_000, 5_000, 0, 0, reason="stopped")

    story(main)


def test_threads_block_for_their_results() -> None:
    with process_pool(functions.increment) as pool:
        seen: list[int] = []
        threads = [
            threading.Thread(
                target=lambda base: seen.extend(map(pool.sync.submit, range(base, base + 100))), args=(n * 100,)
            )
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert sorted(seen) == list(range(1, 401))


@pytest.mark.parametrize("value", [0, "", None, [], False, 1.5, 2**70, "ü" * 5_000, b"x" * 100_000, {"a": (1, [2])}])
def test_any_value_arrives_as_what_it_was(value: Any) -> None:
    with process_pool(functions.arguments, 1) as pool:
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


def test_a_map_gives_results_in_order_and_reads_no_more_than_its_look_ahead() -> None:
    async def main() -> None:
        read = 0

        def items() -> Any:
            nonlocal read
            for n in range(10_000):
                read += 1
                yield n

        async with process_pool(functions.increment) as pool:
            taken = 0
            async for result in pool.map(items(), ahead=50):
                taken += 1
                assert result == taken
                assert read - taken <= 50
        assert taken == 10_000

    story(main)


def test_a_map_reads_an_async_iterable_and_a_broken_off_one_leaves_nothing() -> None:
    async def numbers() -> Any:
        for n in range(1_000):
            yield n

    async def main() -> None:
        async with process_pool(functions.increment) as pool:
            assert [n async for n in pool.map(numbers())] == list(range(1, 1_001))
            results = pool.map(range(100_000))
            assert await results.__anext__() == 1
            await results.aclose()  # type: ignore[attr-defined]
            await pool.until(lambda now: now["in_workers"] + now["waiting"] == 0, PATIENCE)
        assert pool.ledger is not None and pool.ledger.balanced and pool.ledger.accepted < 20_000

    story(main)


def test_a_map_raises_the_error_of_the_first_item_that_fails() -> None:
    with process_pool("builtins:int") as pool:
        results = pool.sync.map(["1", "2", "three", "4"])
        assert [next(results), next(results)] == [1, 2]
        with pytest.raises(ValueError, match="three"):
            next(results)
        assert pool.sync.submit("5") == 5


# Workers that die


def test_fifty_killed_workers_lose_none_of_ten_thousand_tasks(tmp_path: Path) -> None:
    killed: set[int] = set()
    chance = random.Random(1)

    async def kill_one(pool: Pool) -> None:
        def victims(now: dict[str, Any]) -> list[int]:
            at_work = [worker for worker in now["workers"] if worker["task"] is not None and worker["handled"]]
            return [worker["pid"] for worker in at_work if worker["pid"] not in killed]

        victim = chance.choice(victims(await pool.until(victims, PATIENCE)))
        killed.add(victim)
        os.kill(victim, signal.SIGKILL)

    async def main() -> None:
        function = functools.partial(functions.noted, str(tmp_path))
        async with process_pool(function, 2, max_deliveries=10) as pool:
            futures = [pool.submit(n) for n in range(10_000)]
            for finished, future in enumerate(futures):
                await future
                if finished % 150 == 0 and len(killed) < 50:
                    await kill_one(pool)
            assert [future.result() for future in futures] == list(range(10_000))
            await pool.until(lambda now: now["restarts"] == 50, PATIENCE)
            redelivered = pool.statistics()["redelivered"]
        assert pool.ledger == tw.Ledger(10_000, 10_000, 0, 0, reason="stopped")
        # A task that was begun again may have been called before or not; each call beyond the first is among those.
        calls = sum(file.stat().st_size for file in tmp_path.iterdir())
        assert 10_000 <= calls <= 10_000 + redelivered

    story(main)


def test_a_killed_worker_is_replaced_within_a_second(gate: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with process_pool(functions.wait_if_path, 1) as pool:
            await pool.submit(1)
            first = pids(pool)
            waiting, behind = pool.submit(gate), pool.submit(2)
            before = await at(gate)
            os.kill(first[0], signal.SIGKILL)
            since = loop.time()
            # Until it has ended it keeps the gate open.
            assert await asyncio.to_thread(ends, first[0])
            after = await at(gate)
            assert loop.time() - since < 1
            assert pids(pool) not in (first, [])
            os.close(before)
            os.close(after)
            assert (await waiting, await behind) == (gate, 2)

    story(main)


def test_a_task_that_kills_two_workers_is_quarantined_and_the_others_are_handled() -> None:
    dead: list[tuple[Task, str]] = []

    async def main() -> None:
        async with process_pool(functions.die_if, on_dead=lambda task, reason, _: dead.append((task, reason))) as pool:
            numbers = [*range(200), -1, *range(200, 400), -2, *range(400, 600)]
            ended = await asyncio.gather(*[pool.submit(n) for n in numbers], return_exceptions=True)
            assert [n for n in ended if isinstance(n, int)] == list(range(600))
            lost = [error for error in ended if not isinstance(error, int)]
            assert [type(error) for error in lost] == [tw.TaskQuarantined] * 2
            assert "exit code 3" in str(lost[0])
            assert pool.state == "running"
        assert pool.ledger == tw.Ledger(602, 600, 0, 2, reason="stopped")

    story(main)
    assert sorted((task.args[0], task.deliveries, reason) for task, reason in dead) == [
        (-2, 2, "quarantined"),
        (-1, 2, "quarantined"),
    ]


def test_with_one_delivery_a_task_is_lost_with_its_worker() -> None:
    with process_pool(functions.die_if, 1, max_deliveries=1) as pool:
        with pytest.raises(tw.WorkerLost, match="exit code 3") as caught:
            pool.sync.submit(-1)
        assert caught.value.retryable
        assert pool.sync.submit(4) == 4


def test_a_restart_storm_ends_in_a_failed_pool() -> None:
    async def main() -> None:
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

    story(main)


def test_a_child_of_a_worker_does_not_keep_it_alive(gate: str) -> None:
    with process_pool(functions.leave_child, 1, max_deliveries=1) as pool:
        with pytest.raises(tw.WorkerLost, match="exit code 9"):
            pool.sync.submit(gate)
        opened(gate)


@pytest.mark.parametrize("stuck", [False, True])
def test_workers_end_with_a_parent_that_is_killed(stuck: bool, gate: str) -> None:
    code = f"""
        import os, signal, sys, threading
        sys.path.insert(0, {str(HERE)!r})
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
    command = [sys.executable, "-c", textwrap.dedent(code)]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment, check=False)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    assert len(ran.stdout.split()) == 3
    assert all(ends(pid) for pid in map(int, ran.stdout.split()))


# Workers that hang


def test_a_hung_worker_is_killed_and_replaced() -> None:
    async def main() -> None:
        async with process_pool(functions.hang_if, 2, task_timeout=0.2) as pool:
            numbers = [1, -1, 2, 3, -2, 4]
            ended = await asyncio.gather(*[pool.submit(n) for n in numbers], return_exceptions=True)
            assert [n for n in ended if isinstance(n, int)] == [1, 2, 3, 4]
            assert [type(error) for error in ended if not isinstance(error, int)] == [tw.TaskTimeout] * 2
            assert isinstance(ended[1], TimeoutError)
            assert await pool.submit(5) == 5
            assert pool.statistics()["timed_out"] == 2
        assert pool.ledger == tw.Ledger(7, 5, 0, 2, reason="stopped")

    story(main)


def test_the_only_worker_of_an_idle_pool_is_watched_from_its_first_task_on() -> None:
    async def main() -> None:
        async with process_pool(functions.hang_if, 1, task_timeout=0.1) as pool:
            await pool.submit(1)
            for _ in range(3):
                with pytest.raises(tw.TaskTimeout):
                    await pool.submit(-1)

    story(main)


def test_a_worker_that_is_frozen_before_its_task_has_ended_is_found_by_the_limit() -> None:
    async def main() -> None:
        async with process_pool(functions.increment, 1, task_timeout=0.2) as pool:
            await pool.submit(0)
            os.kill(pids(pool)[0], signal.SIGSTOP)
            frozen = pool.submit(1)
            os.kill(pids(pool)[0], signal.SIGCONT)
            assert await frozen == 2

    story(main)


def test_short_tasks_do_not_wait_behind_a_long_one(gate: str) -> None:
    async def main() -> None:
        async with process_pool(functions.wait_if_path, 2) as pool:
            for _ in range(20):
                await asyncio.gather(*[pool.submit(n) for n in range(2_000)])
            futures = [pool.submit(n if n != 100 else gate) for n in range(2_000)]
            done = await asyncio.gather(*[future for n, future in enumerate(futures) if n != 100])
            assert len(done) == 1_999
            assert not futures[100].done()
            await asyncio.to_thread(opened, gate)
            assert await futures[100] == gate
        assert pool.ledger is not None and pool.ledger.handled == 42_000

    story(main)


# Cancelling and capacity


def test_a_thousand_cancelled_tasks_leave_nothing_pending(gate: str) -> None:
    async def main() -> None:
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

    story(main)


def test_a_full_pool_makes_submits_wait_or_fail(gate: str) -> None:
    async def main() -> None:
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

    story(main)


def test_tasks_cancelled_behind_a_long_one_in_the_same_worker_are_not_begun(gate: str) -> None:
    async def main() -> None:
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

    story(main)


# Scaling and batches


def test_a_burst_adds_workers_and_calm_removes_them(gate: str) -> None:
    async def main() -> None:
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

    story(main)


def test_a_function_with_batch_gets_what_is_queued() -> None:
    async def main() -> None:
        async with process_pool(functions.sizes, 1, batch=Batch(size_max=50, budget_ms=60_000)) as pool:
            assert await pool.submit(0) == 1
            seen = await asyncio.gather(*[pool.submit(n) for n in range(500)])
            assert max(seen) == 50
            assert pool.statistics()["batches"] < 100
        async with process_pool(functions.double_all, batch=Batch()) as pool:
            assert [n async for n in pool.map(range(1_000))] == list(range(0, 2_000, 2))

    story(main)


def test_of_a_batch_that_kills_its_worker_only_the_guilty_task_is_quarantined() -> None:
    async def main() -> None:
        async with process_pool(functions.die_in_batch, 1, batch=Batch(20), max_deliveries=3) as pool:
            ended = await asyncio.gather(*[pool.submit(n) for n in [1, 2, -1, 3, 4]], return_exceptions=True)
            assert [type(one) for one in ended] == [int, int, tw.TaskQuarantined, int, int]

    story(main)


# The end


def test_stop_with_a_hundred_queued_handles_them() -> None:
    async def main() -> None:
        pool = process_pool(functions.work, 2)
        futures = [pool.submit(1_000) for _ in range(100)]
        ledger = await pool.stop()
        assert ledger == tw.Ledger(100, 100, 0, 0, reason="stopped")
        assert all(future.done() for future in futures)
        with pytest.raises(tw.PoolStopped):
            pool.submit(1)
        assert await pool.stop() is ledger

    story(main)


def test_stop_without_drain_returns_what_was_not_begun(gate: str) -> None:
    async def main() -> None:
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

    story(main)


def test_stop_gives_up_on_what_is_stuck_and_names_it(gate: str) -> None:
    async def main() -> None:
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

    story(main)


def test_stop_kills_a_worker_that_would_never_end_by_itself() -> None:
    async def main() -> None:
        pool = process_pool(functions.leave_thread, 1)
        await pool.submit(None)
        (worker,) = pids(pool)
        ledger = await pool.stop()
        assert (ledger.handled, ledger.stuck) == (1, ())
        assert ends(worker)

    story(main)


def test_nothing_is_left_after_stop() -> None:
    def usage() -> tuple[list[str], int]:
        return sorted(os.listdir("/proc/self/fd")), threading.active_count()

    def cycle(function: Any) -> None:
        with process_pool(function, 3, max_deliveries=1) as pool:
            for n in (1, -1, 2):
                with contextlib.suppress(tw.WorkerLost):
                    pool.sync.submit(n)
            seen = pids(pool)
        assert not [pid for pid in seen if os.path.exists(f"/proc/{pid}")]

    cycle(functions.die_if)
    before = usage()
    for _ in range(3):
        cycle(functions.die_if)
    gc.collect()
    assert usage() == before


def test_an_idle_pool_does_not_wake_up() -> None:
    def switches(pid: int) -> list[str]:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [line for task in tasks for line in (task / "status").read_text().splitlines() if "ctxt" in line]

    with process_pool(functions.increment, 1) as pool:
        list(pool.sync.map(range(1_000)))
        worker, keeper = pids(pool)[0], next(thread for thread in threading.enumerate() if "keeper" in thread.name)
        keeper_status = Path(f"/proc/self/task/{keeper.native_id}/status")

        def all_switches() -> list[str]:
            ours = [line for line in keeper_status.read_text().splitlines() if "voluntary" in line]
            return [*ours, *switches(worker)]

        # The last flush of the worker comes after its last result; from then on nothing may happen.
        threading.Event().wait(0.2)
        before = all_switches()
        threading.Event().wait(0.5)
        assert all_switches() == before


def program(code: str, tmp_path: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program from a file, which must end within 30 seconds."""
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(code))
    environment = {**os.environ, "PYTHONPATH": f"{PACKAGE}{os.pathsep}{HERE}"}
    command = [sys.executable, str(script)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30, env=environment, **options)


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


@pytest.mark.parametrize("ready", [True, False])
def test_ctrl_c_lets_the_parent_drain(tmp_path: Path, ready: bool) -> None:
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
                await asyncio.sleep(60)

        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("interrupted", sum(future.result() == 2_000 for future in futures))
        """,
        tmp_path,
        start_new_session=True,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "interrupted 200\n", "")


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


def test_a_forked_child_is_told_and_the_parent_goes_on(tmp_path: Path) -> None:
    ran = program(
        """
        import os, warnings, tidewire as tw
        import pool_functions
        from tidewire.pools import Pool
        warnings.simplefilter("ignore")
        with Pool(pool_functions.increment, 1, "process") as pool:
            pool.sync.submit(1)
            child = os.fork()
            if child == 0:
                try:
                    pool.sync.submit(1)
                except tw.PoolStopped as error:
                    os._exit(7 if "fork" in str(error) else 8)
                os._exit(9)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), pool.sync.submit(1))
        """,
        tmp_path,
    )
    assert (ran.returncode, ran.stdout) == (0, "7 2\n"), ran.stderr
