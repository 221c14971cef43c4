"""Pykka under the workloads of agents: no Tidewire is loaded here.

python pykka_agents.py --contender pykka --workload g1 --count 10000
"""

from __future__ import annotations

import sys
import threading
import time
from argparse import Namespace
from collections import deque
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tidewire_bench"))

import pykka
from measure import Figures, Tally, Workload, after, everybody, goals, now_ns, request_in_turn, requests, run


class Receiver(pykka.ThreadingActor):
    """An actor of Pykka is a thread with a queue that has no bound."""

    def __init__(self, handle: Callable[[int], object]) -> None:
        super().__init__()
        self.on_receive = handle  # type: ignore[method-assign]


def one_way(options: Namespace) -> Figures:
    done, start = threading.Event(), 0.0
    tally = Tally(options.count, done.set)
    agent = Receiver.start(tally.function())
    for goal in goals(options.count):
        done.clear()
        start = time.perf_counter()
        for word in range(goal):
            agent.tell(word)
        done.wait()
    return tally.rate(start)


def request(options: Namespace) -> Figures:
    """From a plain thread. With several in flight, the oldest is waited for before the next is
    sent: Pykka's futures are not awaited.
    """
    agent = Receiver.start(lambda word: word)
    if options.in_flight == 1:
        return request_in_turn(agent.ask, options)
    windowed(agent, options.count // 10, options.in_flight)
    start = time.perf_counter()
    samples = windowed(agent, options.count, options.in_flight)
    return requests(samples, time.perf_counter() - start)


def windowed(agent: pykka.ActorRef[Receiver], count: int, in_flight: int) -> list[int]:
    window: deque[tuple[int, int, pykka.Future[int]]] = deque()
    samples: list[int] = []

    def wait() -> None:
        word, began, reply = window.popleft()
        assert reply.get() == word
        samples.append(now_ns() - began)

    for word in range(count):
        if len(window) == in_flight:
            wait()
        window.append((word, now_ns(), agent.ask(word, block=False)))
    while window:
        wait()
    return samples


def broadcast(options: Namespace) -> Figures:
    done, start = threading.Event(), 0.0
    finish = after(options.actors, done.set)
    tallies = [Tally(options.count, finish) for _ in range(options.actors)]
    agents = [Receiver.start(tally.function()) for tally in tallies]
    for goal in goals(options.count):
        done.clear()
        start = time.perf_counter()
        for word in range(goal):
            for agent in agents:
                agent.tell(word)
        done.wait()
    return everybody(tallies, start)


def stopped(workload: Workload) -> Workload:
    """Stops all actors at the end."""

    def body(options: Namespace) -> Figures:
        try:
            return workload(options)
        finally:
            pykka.ActorRegistry.stop_all()

    return body


CONTENDERS: dict[str, dict[str, Workload]] = {
    "pykka": {"g1": stopped(one_way), "g2": stopped(request), "g3": stopped(request), "g4": stopped(broadcast)}
}

if __name__ == "__main__":
    sys.exit(run(CONTENDERS))
