"""Pools that are used wrongly, and functions that do what they should not."""

from __future__ import annotations

import asyncio
import gc
import inspect
import pickle
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pool_functions as functions
import pytest
import tidewire as tw
from tidewire.pools import Batch, Pool, Restarts, Scale


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers: 0 is not allowed: give a whole number from 1 to 1,024"),
        ({"workers": True}, "workers: True is not allowed"),
        ({"workers": 1025}, "workers: 1025 is not allowed"),
        ({"kind": "fibre"}, "kind: 'fibre' is not allowed: use one of 'thread', 'process'"),
        ({"batch": 5}, "batch: 5 is not allowed: give a tidewire.pools.Batch, or None"),
        ({"capacity": 0}, "capacity: 0 is not allowed"),
        ({"overflow": "drop"}, "overflow: 'drop' is not allowed: use one of 'wait', 'fail'"),
        ({"task_timeout": 0}, "task_timeout: 0 is not allowed: give 0.001 to 86,400 seconds, or None"),
        ({"task_timeout": float("nan")}, "task_timeout: nan is not allowed"),
        ({"max_deliveries": 0}, "max_deliveries: 0 is not allowed"),
        ({"restarts": 3}, "restarts: 3 is not allowed: give a tidewire.pools.Restarts"),
        ({"result_bytes_max": 10}, "result_bytes_max: 10 is not allowed"),
        ({"on_dead": 1}, "on_dead: 1 is not allowed: give a function, or None"),
        ({"name": 7}, "name: 7 is not allowed"),
        ({"function": 7}, "function: 7 is not allowed: give a function or 'package.module:name'"),
        ({"function": "math.sqrt"}, "function: 'math.sqrt' is no import path: write 'package.module:name'"),
        ({"function": "math:no_such"}, "function: 'math:no_such' can't be imported"),
        ({"function": "math.sqrt", "kind": "process"}, "is no import path"),
        ({"function": lambda n: n, "kind": "process", "pickler": "pickle"}, "can't be pickled for a worker process"),
    ],
)
def test_a_wrong_option_is_named_with_its_value_and_the_fix(options: dict[str, Any], message: str) -> None:
    with pytest.raises(tw.InvalidArgument) as caught:
        Pool(**{"function": functions.increment, **options})
    assert message in str(caught.value)


OPTIONS_THAT_ARE_NONE = [
    (tw.Pool, "capacty", "Pool has no such option: did you mean 'capacity'?"),
    (tw.Node.pool, "heartbeat_timout", "pool has no such option: did you mean 'heartbeat_timeout'?"),
    (tw.Node.pool, "worker", "pool has no such option: did you mean 'workers'?"),
    (tw.Node.serve, "visiblity", "serve has no such option: did you mean 'visibility'?"),
]


@pytest.mark.parametrize(("call", "option", "message"), OPTIONS_THAT_ARE_NONE)
def test_an_option_that_is_none_is_named_with_the_nearest_one(
    node: tw.Node, call: Any, option: str, message: str
) -> None:
    target = () if call is tw.Pool else (node,)
    with pytest.raises(tw.InvalidArgument) as caught:
        call(*target, functions.increment, **{option: 3})
    assert str(caught.value) == f"{option}: 3 is not allowed: {message}"
    parameters = inspect.signature(call).parameters
    assert {"name", message.split("'")[1]} <= set(parameters)


def test_options_of_a_pool_that_are_none_are_those_of_the_configuration(node: tw.Node) -> None:
    pool = node.pool(functions.increment, id=None, capacity=None, restarts=None, heartbeat_timeout=None)
    assert pool.agent is None
    assert pool.sync.submit(1) == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Scale(0, 4), "scale.min: 0 is not allowed"),
        (lambda: Scale(4, 2), "scale.max: 2 is less than scale.min: give 4 or more"),
        (lambda: Scale(1, 2, target_wait_ms=0), "scale.target_wait_ms: 0 is not allowed"),
        (lambda: Batch(0), "batch.size_max: 0 is not allowed"),
        (lambda: Batch(5, -1), "batch.budget_ms: -1 is not allowed: give 0 to 60,000 ms"),
        (lambda: Restarts(max=-1), "restarts.max: -1 is not allowed"),
        (lambda: Restarts(backoff_ms="5"), "restarts.backoff_ms: '5' is not allowed"),
    ],
)
def test_a_wrong_part_is_named_too(make: Any, message: str) -> None:
    with pytest.raises(tw.InvalidArgument) as caught:
        make()
    assert message in str(caught.value)


def test_calls_of_the_wrong_world_are_told_which_one_to_use() -> None:
    async def main() -> None:
        with pytest.raises(tw.InvalidArgument, match=r"await the same call without \.sync"):
            pool.sync.submit(1)
        with pytest.raises(tw.InvalidArgument, match="async with"), pool:
            pass

    pool = Pool(functions.increment, 1)
    with pytest.raises(tw.InvalidArgument, match=r"use pool\.sync\.submit"):
        pool.submit(1)
    asyncio.run(main())
    assert pool.sync.stop() == tw.Ledger(0, 0, 0, 0)


def test_a_worker_that_would_wait_for_its_own_pool_is_told() -> None:
    with Pool(lambda n: pool.sync.submit(n), 1) as pool, pytest.raises(tw.InvalidArgument, match="its own pool"):
        pool.sync.submit(1)


def test_a_pool_can_not_be_sent_to_its_workers() -> None:
    pool = Pool(functions.increment, 1)
    with pytest.raises(tw.InvalidArgument, match="can't be pickled"):
        pickle.dumps(pool)


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_batch_takes_one_value_per_task_and_gives_one_result_per_task(kind: Any) -> None:
    with Pool(functions.too_few, 1, kind, Batch()) as pool:
        with pytest.raises(tw.InvalidArgument, match="one value per task, not 2"):
            pool.sync.submit(1, 2)
        with pytest.raises(ValueError, match="0 results for 1 tasks"):
            pool.sync.submit(1)


@pytest.mark.parametrize("ahead", [0, -1, 1.5])
def test_a_map_refuses_a_wrong_look_ahead(ahead: Any) -> None:
    with Pool(functions.increment, 1) as pool, pytest.raises(tw.InvalidArgument, match="ahead"):
        pool.sync.map([1], ahead=ahead)


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_items_that_fail_end_a_map_after_the_results_of_those_before(kind: Any) -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("no third")

    async def later() -> AsyncIterator[int]:
        for item in items():
            yield item

    async def main(pool: Pool) -> list[list[int]]:
        gots: list[list[int]] = []
        for source in (items(), later()):
            gots.append([])
            with pytest.raises(ValueError, match="no third"):
                async for result in pool.map(source):
                    gots[-1].append(result)
        return gots

    with Pool(functions.increment, 2, kind) as pool:
        got: list[int] = []
        with pytest.raises(ValueError, match="no third"):
            got.extend(pool.sync.map(items()))
        assert got == [2, 3]
        assert asyncio.run(main(pool)) == [[2, 3], [2, 3]]
        assert list(pool.sync.map([4])) == [5]


def test_a_callback_that_fails_harms_nobody() -> None:
    def callback(*_: Any) -> None:
        raise RuntimeError("no")

    with Pool(functions.divide, 1, on_dead=callback) as pool:
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                pool.sync.submit(1, 0)


# Functions in a worker process


def process_pool(function: Any, **options: Any) -> Pool:
    return Pool(function, 1, "process", **options)


def test_an_argument_that_can_not_be_pickled_is_named() -> None:
    with process_pool(functions.arguments, pickler="pickle") as pool:
        with pytest.raises(tw.InvalidArgument, match=r"args\[1\]: .*lambda.* can't be pickled"):
            pool.sync.submit(1, lambda: 0)
        with pytest.raises(tw.InvalidArgument, match=r"named: .* can't be pickled"):
            pool.sync.submit(1, named=(n for n in ()))
        assert pool.sync.submit(2) == ((2,), {})
    assert pool.ledger == tw.Ledger(1, 1, 0, 0)


def test_an_argument_that_can_not_be_unpickled_is_an_error_of_its_task() -> None:
    with process_pool(functions.arguments) as pool:
        with pytest.raises(ZeroDivisionError):
            pool.sync.submit(functions.Bomb())
        assert pool.sync.submit(2) == ((2,), {})


def test_an_error_has_its_type_and_the_trace_of_the_worker() -> None:
    with process_pool(functions.divide) as pool:
        with pytest.raises(ZeroDivisionError) as caught:
            pool.sync.submit(1, 0)
        assert "in divide" in str(caught.value.__cause__)
        assert "return a / b" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("function", "name", "message"),
    [(functions.raise_awkward, "Awkward", "awkward"), (functions.raise_locked, "Locked", "locked")],
)
def test_an_error_that_does_not_travel_is_described(function: Any, name: str, message: str) -> None:
    with process_pool(function) as pool:
        with pytest.raises(tw.RemoteError) as caught:
            pool.sync.submit(1)
        assert (caught.value.type_name, caught.value.message) == (name, message)
        assert f"in {function.__name__}" in caught.value.remote_traceback


def test_results_that_do_not_travel_are_errors_of_their_task() -> None:
    with (
        process_pool(functions.give_lock) as pool,
        pytest.raises(tw.RemoteError, match="of type lock, can't be pickled"),
    ):
        pool.sync.submit(1)
    with process_pool(functions.give_bomb) as pool, pytest.raises(tw.RemoteError, match="can't be unpickled here"):
        pool.sync.submit(1)


def test_a_result_over_the_limit_is_refused_and_one_at_it_arrives() -> None:
    with process_pool(functions.give_bytes, result_bytes_max=2_000_000) as pool:
        assert len(pool.sync.submit(1_999_000)) == 1_999_000
        with pytest.raises(tw.PayloadTooLarge, match=r"bytes are more than result_bytes_max=2,000,000"):
            pool.sync.submit(2_000_001)
        assert pool.sync.submit(3) == bytes(3)


def test_output_of_workers_goes_where_the_parent_prints(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    with process_pool(functions.talk) as pool:
        assert [pool.sync.submit(f"line {n}") for n in range(3)] == ["line 0", "line 1", "line 2"]
        out, err = capfd.readouterr()
    assert sorted(out.split("\n")) == sorted(["", "line 0", "line 1", "line 2", "raw", "raw", "raw"])
    assert "err line 2" in err


def test_a_worker_that_closes_its_connection_is_replaced() -> None:
    with process_pool(functions.close_all_files, max_deliveries=1) as pool, pytest.raises(tw.WorkerLost):
        pool.sync.submit(1)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("pool_broken:f", RuntimeError),
        ("no_such_module:f", ModuleNotFoundError),
        ("pool_functions:no_such", AttributeError),
        ("pool_functions:__doc__", tw.InvalidArgument),
    ],
)
def test_a_function_that_can_not_be_imported_fails_the_pool_at_once(path: str, kind: type[Exception]) -> None:
    with process_pool(path) as pool:
        with pytest.raises(tw.PoolFailed) as caught:
            pool.sync.submit(1)
        assert path in str(caught.value) and kind.__name__ in str(caught.value)
        assert isinstance(caught.value.__cause__, kind)
        assert "Traceback" in str(caught.value.__cause__.__cause__)
        assert pool.state == "failed"
        assert pool.statistics()["restarts"] == 0
    assert pool.ledger is not None and pool.ledger.balanced


@pytest.mark.promise("P12.28", "P12.29")
async def test_a_wait_for_statistics_that_never_fit_ends() -> None:
    pool = Pool(functions.increment, 1, name="p")
    with pytest.raises(tw.InvalidArgument, match=r"condition: 7 is not allowed: give a function"):
        await pool.until(7)  # type: ignore[arg-type]
    with pytest.raises(tw.InvalidArgument, match=r"timeout: -1 is not allowed: give seconds"):
        await pool.until(bool, -1)

    def never(now: dict[str, Any]) -> bool:
        return bool(now["handled"] == 2)

    with pytest.raises(TimeoutError, match=r"pool 'p': the condition does not hold after 0.01 s"):
        await pool.until(never, 0.01)
    waiting = asyncio.ensure_future(pool.until(never))
    fits = asyncio.ensure_future(pool.until(lambda now: now["handled"] == 1))
    assert await pool.submit(1) == 2
    assert (await fits)["handled"] == 1
    await pool.stop()
    await asyncio.wait([waiting])
    assert isinstance(waiting.exception(), tw.PoolStopped)
    assert (await pool.until(lambda now: now["state"] == "stopped"))["handled"] == 1
    # The pool keeps no condition for which nobody waits.
    gone = weakref.ref(never)
    del never, waiting
    gc.collect()
    assert gone() is None
