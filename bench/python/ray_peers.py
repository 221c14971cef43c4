"""Ray under the workloads of agents and pools: no Tidewire is loaded here.

python ray_peers.py --contender ray --workload g1 --count 10000

Ray takes seconds to start, so that one process gives several rounds, each with its line.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1] / "tidewire_bench"
sys.path.append(str(BENCH))

import ray
from burning import burn
from measure import Figures, Workload, goals, in_loop, pooled, rate, request_many, run

ROUNDS = 3
CHUNK = 100


@ray.remote
class Agent:
    """An actor of Ray is a process."""

    def __init__(self) -> None:
        self.sum = 0

    def add(self, word: int) -> None:
        self.sum += word

    def total(self) -> int:
        total, self.sum = self.sum, 0
        return total

    def same(self, word: int) -> int:
        return word


@ray.remote
def burn_remote(steps: int) -> int:
    return burn(steps)


@ray.remote
def burn_chunk(tasks: list[int]) -> list[int]:
    return [burn(steps) for steps in tasks]


def one_way(options: Namespace) -> Figures:
    agent, start = Agent.remote(), 0.0
    for goal in goals(options.count):
        start = time.perf_counter()
        for word in range(goal):
            agent.add.remote(word)
        total = ray.get(agent.total.remote())
        assert total == sum(range(goal)), f"the words below {goal:,} add up to {total:,}"
    return rate(options.count, time.perf_counter() - start)


async def request(options: Namespace) -> Figures:
    agent = Agent.remote()

    async def ask(word: int) -> int:
        return await agent.same.remote(word)

    return await request_many(ask, options)


def by_tasks(options: Namespace) -> Figures:
    return pooled(lambda tasks: ray.get([burn_remote.remote(task) for task in tasks]), options)


def by_chunks(options: Namespace) -> Figures:
    """Tasks of 100 items each, as Ray's own advice for small ones is."""

    def run_all(tasks: list[int]) -> list[int]:
        size = min(CHUNK, max(1, len(tasks) // (4 * options.workers)))
        chunks = [tasks[at : at + size] for at in range(0, len(tasks), size)]
        return [one for results in ray.get([burn_chunk.remote(chunk) for chunk in chunks]) for one in results]

    return pooled(run_all, options)


def with_ray(workload: Callable[[Namespace], Figures]) -> Workload:
    """Starts Ray, with as many processors as there are workers, where it isn't there yet."""

    def body(options: Namespace) -> Figures:
        if not ray.is_initialized():
            paths = {"env_vars": {"PYTHONPATH": str(BENCH)}}
            ray.init(
                num_cpus=options.workers,
                include_dashboard=False,
                logging_level="ERROR",
                log_to_driver=False,
                runtime_env=paths,
            )
        return workload(options)

    return body


POOLS = ("w1", "w3", "w4")
CONTENDERS: dict[str, dict[str, Workload]] = {
    "ray": {"g1": with_ray(one_way), "g2": with_ray(in_loop(request)), "g3": with_ray(in_loop(request))},
    "ray-tasks": dict.fromkeys(POOLS, with_ray(by_tasks)),
    "ray-chunks": dict.fromkeys(POOLS, with_ray(by_chunks)),
}

if __name__ == "__main__":
    for _ in range(ROUNDS):
        run(CONTENDERS)
