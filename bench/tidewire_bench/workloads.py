"""Tidewire from Python under the workloads of the engine.

python -m tidewire_bench.workloads --contender functions --workload p1 --count 1000000
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import tidewire as tw

from tidewire_bench.measure import (
    PAGE_BYTES,
    Figures,
    Workload,
    ask_many,
    in_loop,
    latency,
    now_ns,
    others,
    rate,
    resident_bytes,
    run,
)

Handler = Callable[[Any], Any]

_LIMIT_S = 120.0
_BARE = "import time; time.sleep(0.2)"
_NODE = "import time, tidewire; node = tidewire.Node(); node.start(); time.sleep(0.2)"
_RESIDENT = "; print(open('/proc/self/statm').read().split()[1])"


class Count:
    """A handler that adds, and tells when it has seen all. The plain function and the coroutine do
    the same.
    """

    def __init__(self, goal: int, done: Callable[[], object]) -> None:
        self.at = 0.0
        self._left = goal
        self._done = done

    def function(self) -> Handler:
        """As a plain function."""
        left = self._left

        def count(word: int) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._finish()

        return count

    def coroutine(self) -> Handler:
        """As a coroutine function."""
        left = self._left

        async def count(word: int) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._finish()

        return count

    def _finish(self) -> None:
        self.at = time.perf_counter()
        self._done()


def storm(options: Namespace) -> Figures:
    """A thread sends with ``node.sync.send``, which waits while the mailbox is full."""
    return function_storm(options, lambda node, ref, words: send_each(node.sync.send, ref, words))


def storm_tell(options: Namespace) -> Figures:
    """A thread tells, and waits only when it is told that the mailbox is full."""
    return function_storm(options, tell_each)


def function_storm(options: Namespace, send: Callable[[tw.Node, tw.ActorRef, range], None]) -> Figures:
    """One actor that is a plain function, and a sender in the main thread."""
    done = threading.Event()
    count = Count(options.count, done.set)
    with tw.Node() as node:
        spawn_idle(node, options.idle)
        ref = node.spawn(count.function(), mailbox=options.mailbox)
        start = time.perf_counter()
        send(node, ref, range(options.count))
        wait(done)
        return rate(options.count, count.at - start)


def send_each(send: Callable[[tw.ActorRef, int], object], ref: tw.ActorRef, words: range) -> None:
    for word in words:
        send(ref, word)


def tell_each(node: tw.Node, ref: tw.ActorRef, words: range) -> None:
    tell, send = ref.tell, node.sync.send
    for word in words:
        try:
            tell(word)
        except tw.MailboxFull:
            send(ref, word)


async def coroutine_storm(options: Namespace) -> Figures:
    """The sender is a coroutine too; it awaits when the mailbox is full."""
    done = asyncio.Event()
    count = Count(options.count, done.set)
    async with tw.Node() as node:
        spawn_idle(node, options.idle)
        ref = node.spawn(count.coroutine(), mailbox=options.mailbox)
        tell, start = ref.tell, time.perf_counter()
        for word in range(options.count):
            try:
                tell(word)
            except tw.MailboxFull:
                await ref.send(word)
        await asyncio.wait_for(done.wait(), _LIMIT_S)
        return rate(options.count, count.at - start)


async def coroutine_storm_send(options: Namespace) -> Figures:
    """The sender is a coroutine that awaits every send."""
    done = asyncio.Event()
    count = Count(options.count, done.set)
    async with tw.Node() as node:
        ref = node.spawn(count.coroutine(), mailbox=options.mailbox)
        send, start = ref.send, time.perf_counter()
        for word in range(options.count):
            await send(word)
        await asyncio.wait_for(done.wait(), _LIMIT_S)
        return rate(options.count, count.at - start)


def exchange(options: Namespace) -> Figures:
    """Plain functions that tell each other; None starts them."""
    actors, count = options.actors, options.count
    finished, done = [], threading.Event()
    tells: list[Callable[[Any], bool]] = []

    def peer(own: int) -> Handler:
        left = count
        order = others(own, actors, count)

        def receive(word: int | None) -> None:
            nonlocal left
            if word is None:
                for number, other in enumerate(order):
                    tells[other](number)
                return
            left -= 1
            if left == 0:
                finished.append(time.perf_counter())
                if len(finished) == actors:
                    done.set()

        return receive

    with tw.Node() as node:
        refs = [node.spawn(peer(own), mailbox=max(options.mailbox, count + 1)) for own in range(actors)]
        tells.extend(ref.tell for ref in refs)
        start = time.perf_counter()
        for ref in refs:
            ref.tell(None)
        wait(done)
        return rate(actors * count, max(finished) - start)


def ask_functions(options: Namespace) -> Figures:
    """Coroutines ask an actor that is a plain function."""
    return asyncio.run(ask(options, lambda word: word))


def ask_coroutines(options: Namespace) -> Figures:
    """Coroutines ask an actor that is a coroutine function."""

    async def echo(word: int) -> int:
        return word

    return asyncio.run(ask(options, echo))


async def ask(options: Namespace, handler: Handler) -> Figures:
    async with tw.Node() as node:
        return await ask_many(node.spawn(handler).ask, options)


def wake_ups(options: Namespace) -> Figures:
    """A thread tells an actor the time after each millisecond of sleep."""
    samples: list[int] = []
    done = threading.Event()

    def receive(sent: int) -> None:
        samples.append(now_ns() - sent)
        if len(samples) == options.count:
            done.set()

    with tw.Node() as node:
        ref = node.spawn(receive)
        for _ in range(options.count):
            time.sleep(0.001)
            ref.tell(now_ns())
        wait(done)
    return latency(samples)


def fan_out(options: Namespace) -> Figures:
    """Published from the main thread; the mailboxes hold everything, as publishing does not
    wait.
    """
    arrived, done = [], threading.Event()

    def finish() -> None:
        arrived.append(time.perf_counter())
        if len(arrived) == options.actors:
            done.set()

    with tw.Node() as node:
        for _ in range(options.actors):
            handler = Count(options.count, finish).function()
            node.subscribe("bench.ticks", node.spawn(handler, mailbox=max(options.mailbox, options.count)))
        publish, start = node.publish, time.perf_counter()
        for word in range(options.count):
            publish("bench.ticks", word)
        wait(done)
        return rate(options.count * options.actors, max(arrived) - start)


def spawn(options: Namespace) -> Figures:
    """Actors that are plain functions, and the memory that each takes while idle."""
    with tw.Node() as node:
        before, start = resident_bytes(), time.perf_counter()
        refs = spawn_idle(node, options.count)
        seconds = time.perf_counter() - start
        time.sleep(0.2)
        each = (resident_bytes() - before) / len(refs)
        return {**rate(options.count, seconds), "bytes_each": each}


def idle_cpu(options: Namespace) -> Figures:
    """The processor time of a process whose actors have nothing to do."""
    with tw.Node() as node:
        for ref in spawn_idle(node, options.idle):
            ref.tell(0)
        time.sleep(0.5)
        used, start = time.process_time(), time.perf_counter()
        time.sleep(2.0)
        used, elapsed = time.process_time() - used, time.perf_counter() - start
        return {"percent_of_core": 100 * used / elapsed, "seconds": elapsed}


def memory(options: Namespace) -> Figures:
    """Two processes: a bare Python, and one with a node that has nothing to do."""
    bare, node = resident_mb(_BARE), resident_mb(_NODE)
    return {"above_mb": node - bare, "bare_mb": bare, "node_mb": node}


def resident_mb(code: str) -> float:
    """Resident memory of a Python process that has run ``code``."""
    done = subprocess.run([sys.executable, "-c", code + _RESIDENT], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1]) * PAGE_BYTES / 1e6


def spawn_idle(node: tw.Node, count: int) -> list[tw.ActorRef]:
    """Actors that share one handler, and never hear anything."""

    def idle(word: int) -> None:
        pass

    return [node.spawn(idle) for _ in range(count)]


def wait(done: threading.Event) -> None:
    """Waits, but not for ever: a run that hangs should say so."""
    if not done.wait(_LIMIT_S):
        raise TimeoutError(f"not everything was handled within {_LIMIT_S:.0f} s")


CONTENDERS: dict[str, dict[str, Workload]] = {
    "functions": {
        "p1": storm,
        "p2": exchange,
        "p3": wake_ups,
        "p4": ask_functions,
        "p5": spawn,
        "p8": fan_out,
        "p-cpu": idle_cpu,
        "p-memory": memory,
    },
    "functions-tell": {"p1": storm_tell},
    "coroutines": {"p1": in_loop(coroutine_storm), "p4": ask_coroutines},
    "coroutines-send": {"p1": in_loop(coroutine_storm_send)},
}

if __name__ == "__main__":
    sys.exit(run(CONTENDERS))
