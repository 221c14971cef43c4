"""The parts of a pool that decide, in virtual time."""

from __future__ import annotations

import random
from collections import deque

import pytest
from tidewire.pools.backlog import Backlog
from tidewire.pools.counters import Histogram
from tidewire.pools.options import Batch, Restarts, Scale
from tidewire.pools.policies.batch_policy import Call, plan
from tidewire.pools.policies.batch_sizer import TARGET_US, BatchSizer
from tidewire.pools.policies.restarts import Replace, RestartWindow, WorkerReplacement
from tidewire.pools.policies.scaling_policy import Load, Scaling
from tidewire.pools.results.answers import InFlightTasks
from tidewire.pools.task import Task, TaskRange, Unit, singles

MS = 1_000_000


# Restarts


def test_the_first_end_costs_no_wait_and_the_next_ones_wait_twice_as_long() -> None:
    window = RestartWindow(Restarts(max=100, backoff_ms=100, backoff_max_ms=1_000), seed=1)
    waits = [window.ended(0, progress=False) for _ in range(8)]
    assert waits[0] == Replace(0.0)
    bounds = [100, 200, 400, 800, 1_000, 1_000, 1_000]
    assert all(
        isinstance(wait, Replace) and bound / 2 <= wait.wait_ms <= bound
        for wait, bound in zip(waits[1:], bounds, strict=True)
    )


def test_ends_before_the_window_are_forgotten() -> None:
    window = RestartWindow(Restarts(max=3, window_ms=1_000), seed=1)
    assert all(isinstance(window.ended(now * 400, progress=False), Replace) for now in range(100))


def test_a_worker_is_started_when_its_backoff_is_over_and_not_before() -> None:
    replacement = WorkerReplacement(2, Restarts(backoff_ms=100), seed=1)
    replacement.ended(0, False, "first", None)
    assert replacement.due(0, count=1)
    replacement.ended(0, False, "second", None)
    assert not replacement.due(0, count=1)
    at = replacement.next_ns(0, count=1)
    assert at is not None and 50 * MS <= at <= 100 * MS
    assert not replacement.due(at - 1, count=1) and replacement.due(at, count=1)
    assert replacement.next_ns(at, count=2) is None


# Scaling


@pytest.mark.promise("P12.14")
def test_a_burst_adds_workers_up_to_the_most_and_says_why() -> None:
    scaling, workers = Scaling(Scale(1, 8, target_wait_ms=50)), 1
    seen = [workers]
    for tick in range(100):
        decision = scaling.observe(tick * 50, Load(workers, workers, 1_000, 60 + tick))
        if decision is not None:
            assert "and the target is 50 ms" in decision.reason
            workers = decision.workers
            seen.append(workers)
    assert seen == [1, 2, 3, 4, 6, 8]


def test_added_workers_get_a_moment_before_more_are_added() -> None:
    scaling = Scaling(Scale(1, 8, target_wait_ms=50))
    assert scaling.observe(0, Load(1, 1, 10, 60)) is not None
    assert scaling.observe(200, Load(2, 2, 10, 260)) is None
    assert scaling.observe(250, Load(2, 2, 10, 310)) is not None


@pytest.mark.promise("P12.15")
def test_idle_workers_go_after_a_while_down_to_the_least() -> None:
    scaling, workers = Scaling(Scale(2, 8, idle_ms=1_000)), 8
    seen = []
    for tick in range(200):
        decision = scaling.observe(tick * 100, Load(workers, 1, 0, 0))
        if decision is not None:
            workers = decision.workers
            seen.append((tick, workers))
    assert [count for _, count in seen] == [5, 3, 2]
    assert seen[0][0] == 10


def test_nothing_changes_below_the_target_in_a_moment_of_load_or_above_a_quarter_of_the_target() -> None:
    below, moment = Scaling(Scale(1, 8, target_wait_ms=50)), Scaling(Scale(1, 8, idle_ms=1_000))
    above = Scaling(Scale(1, 8, target_wait_ms=100, idle_ms=1))
    for tick in range(100):
        assert below.observe(tick * 50, Load(1, 1, 10, 50)) is None
        assert moment.observe(tick * 100, Load(4, 4 if tick % 9 == 8 else 1, 0, 0)) is None
        assert above.observe(tick * 100, Load(4, 2, 3, 30)) is None


# Allotment


@pytest.mark.promise("P12.25")
def test_batches_of_short_tasks_grow_until_they_take_the_target() -> None:
    allotment, size, seen = BatchSizer(), 1, []
    for _ in range(20):
        allotment.learn(size, size * 10.0)
        size = allotment.size(1_000_000, 2, tasks=0, batches=0)
        seen.append(size)
    assert seen == sorted(seen)
    assert seen[0] <= 4 and seen[-1] == TARGET_US / 10


@pytest.mark.promise("P12.25", "P12.26")
@pytest.mark.parametrize(
    ("learned", "sizes"),
    [
        pytest.param([], {(1_000, 2, 0, 0): 1, (1_000, 2, 1, 1): 0}, id="an unknown task goes alone"),
        pytest.param([(200, TARGET_US)] * 20, {(10_000, 2, 200, 1): 200, (10_000, 2, 400, 2): 0}, id="two batches"),
        pytest.param([(1, 20_000.0)], {(100, 4, 0, 0): 1, (100, 4, 1, 1): 0}, id="no long task is given in advance"),
        pytest.param(
            [(1, TARGET_US * 0.75)],
            {(100, 4, 0, 0): 1, (100, 4, 1, 1): 1, (100, 4, 2, 2): 0, (4, 4, 1, 1): 0, (4, 4, 0, 0): 1},
            id="tasks that fill a batch are given one ahead as long as no worker can be idle",
        ),
        pytest.param([(100, 100 * 150.0)] * 20, {(8, 4, 0, 0): 2}, id="a few tasks are spread over the workers"),
        pytest.param([(100, 100 * 1.0)] * 20, {(8, 4, 0, 0): 8}, id="unless they are short"),
        pytest.param([(100, 1_000.0)] * 20 + [(1, 50_000.0)] * 2, {(100, 2, 1, 1): 0}, id="slow tasks are believed"),
    ],
)
def test_a_batch_is_as_large_as_what_was_learned_allows(
    learned: list[tuple[int, float]], sizes: dict[tuple[int, int, int, int], int]
) -> None:
    allotment = BatchSizer()
    for count, took_us in learned:
        allotment.learn(count, took_us)
    for (waiting, workers, tasks, batches), size in sizes.items():
        assert allotment.size(waiting, workers, tasks=tasks, batches=batches) == size


# Batches of the user's function


@pytest.mark.promise("P12.18")
@pytest.mark.parametrize(
    ("now_ms", "waiting", "busy", "expected"),
    [
        (0, 0, 0, Call(0)),
        (0, 1, 0, Call(1)),
        (0, 1, 1, Call(0, 5 * MS)),
        (5, 1, 1, Call(1)),
        (0, 10, 1, Call(10)),
        (0, 25, 3, Call(10)),
        (0, 25, 0, Call(10)),
    ],
)
def test_a_batch_waits_only_while_others_are_busy_and_its_budget_lasts(
    now_ms: int, waiting: int, busy: int, expected: Call
) -> None:
    assert plan(Batch(size_max=10, budget_ms=5), now_ms * MS, waiting, 0, busy) == expected


# The backlog


def test_a_batch_ends_where_its_payloads_weigh_too_much() -> None:
    backlog = Backlog(10)
    for _ in range(3):
        backlog.add(Task((), {}, bytes(60)))
    assert [len(backlog.take(9, weight_max=100)) for _ in range(3)] == [1, 1, 1]
    assert backlog.waiting == 0


@pytest.mark.promise("P12.3", "P12.4", "P12.5")
@pytest.mark.parametrize("seed", range(5))
def test_ranges_and_tasks_wait_are_parked_and_come_back_as_in_a_plain_list(seed: int) -> None:
    chance, capacity = random.Random(seed), 30
    backlog, model, parked, key = Backlog(capacity), deque[int](), deque[int](), 0
    flows = [InFlightTasks() for _ in range(3)]
    owner: dict[int, InFlightTasks] = {}

    def keys(units: list[Unit]) -> list[int]:
        assert all(task.args == (task.key,) and task.payload == (task.key,) for task in singles(units))
        return [task.key for task in singles(units)]

    def admit() -> None:
        while parked and len(model) < capacity:
            model.append(parked.popleft())

    for _ in range(4_000):
        kind, flow = chance.random(), chance.choice(flows)
        if kind < 0.4:
            new = range(key, key + chance.choice([1, 2, 50]))
            key = new.stop
            owner.update(dict.fromkeys(new, flow))
            backlog.add(TaskRange(list(new), None, new.start, flow).part(0, len(new)))
            parked.extend(new)
        elif kind < 0.8:
            count = chance.randrange(20)
            units = backlog.take(count)
            taken = [model.popleft() for _ in range(min(count, len(model)))]
            assert keys(units) == taken
            assert all(unit.count > 1 or isinstance(unit, Task) for unit in units)
            admit()
            if chance.random() < 0.3:
                backlog.put_back(units)
                model.extendleft(reversed(taken))
        elif kind < 0.85:
            dropped = [number for number in model if owner[number] is flow]
            assert keys(backlog.drop_all(flow)[0]) == dropped
            model = deque(number for number in model if owner[number] is not flow)
            parked = deque(number for number in parked if owner[number] is not flow)
        admit()
        assert (backlog.waiting, backlog.parked) == (len(model), len(parked))


# Times


def test_quantiles_are_within_a_sixteenth() -> None:
    histogram, chance = Histogram(), random.Random(3)
    times = sorted(int(chance.expovariate(1 / 5_000)) for _ in range(20_000))
    for time_us in times:
        histogram.add(time_us)
    for share in (0.5, 0.95, 0.99):
        exact = times[int(share * len(times)) - 1]
        assert exact <= histogram.quantile(share) <= exact * 17 / 16 + 1
