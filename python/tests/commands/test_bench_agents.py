"""The command `tidewire bench agents`: what it runs, what it says, what it refuses."""

from __future__ import annotations

import json
import threading
import time
from argparse import Namespace
from pathlib import Path

import pytest
from command_support import bench
from tidewire_bench.agents_cases import make
from tidewire_bench.burning import burn, steps_per_us
from tidewire_bench.measure import Tally, pooled, warm_up


def test_a_smoke_run_has_every_contender_with_percentiles_and_bars(tmp_path: Path) -> None:
    ran = bench("agents", "--smoke", "--only", "G1,g2,g3,G4,G5", "--json", "--out", str(tmp_path))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads(ran.stdout)
    assert json.loads((tmp_path / "bench-agents.json").read_text()) == report
    assert (report["failures"], report["not_run"]) == ([], {})
    assert [case["id"] for case in report["cases"]] == ["G1", "G2", "G3", "G4", "G5"]
    for case in report["cases"]:
        contenders = {one["contender"] for one in case["results"]} - {"asyncio, deadlines"}
        assert contenders == {"tidewire", "asyncio"}, case["id"]
        if case["id"] in ("G2", "G3"):
            for one in case["results"]:
                assert 0 < one["figures"]["p50_us"] <= one["figures"]["p99_us"], one
            ours = case["best"]["ours"]["median"]
            expected = case["bar"] / ours if case["id"] == "G2" else ours / case["bar"]
            assert case["ratio_to_bar"] == pytest.approx(expected)


def test_a_run_of_ours_that_fails_is_an_exit_code(tmp_path: Path) -> None:
    ran = bench("agents", "--smoke", "--only", "G1", "--json", "--out", str(tmp_path), TIDEWIRE_SPIN_US="-1")
    assert ran.returncode == 1
    failed = json.loads(ran.stdout)["failures"]
    assert {failure["contender"] for failure in failed} == {"tidewire"}
    assert "SPIN_US" in failed[0]["why"]


def test_a_task_takes_the_processor_time_that_it_says() -> None:
    start = time.thread_time()
    assert burn(round(40_000 * steps_per_us())) == threading.get_native_id()
    assert time.thread_time() - start > 0.02


def test_every_contender_computes_the_same_steps() -> None:
    for case in make("short", None, ["W3", "W4"]).cases:
        steps = {run.arguments[run.arguments.index("--task-steps") + 1] for run in case.runs}
        assert len(steps) == 1, case.id
        assert int(steps.pop()) > 0


def test_a_tally_notices_a_word_that_came_twice() -> None:
    reached: list[int] = []
    tally = Tally(10, lambda: reached.append(1))
    handle = tally.function()
    for word in (0, *range(9), 8):
        handle(word)
    assert len(reached) == 2
    with pytest.raises(AssertionError, match="the words add up to"):
        tally.rate(0.0)


def test_a_pool_that_loses_a_result_is_not_timed() -> None:
    with pytest.raises(AssertionError, match="9 results of 10"):
        pooled(lambda tasks: [1] * min(9, len(tasks)), Namespace(workers=1, count=10, task_steps=0))


def test_a_worker_that_never_works_is_noticed() -> None:
    with pytest.raises(TimeoutError, match="1 of 2 workers"):
        warm_up(lambda tasks: [7] * len(tasks), 2)
