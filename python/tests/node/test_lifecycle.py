"""The life of a node and of the process around it: start, exit, fork, signals, garbage, many
cycles.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from program_support import program


@pytest.mark.parametrize(
    "body",
    [
        "ref = node.spawn(lambda m: None); ref.tell(1)",
        "node.schedule(3600, node.spawn(print), 'never')",
        "node.spawn(lambda m: (entered.set(), time.sleep(3600))).tell(1); entered.wait()",
        "node.sync.ask(node.spawn(coroutine), 1)",
    ],
)
def test_an_interpreter_with_live_actors_ends(body: str) -> None:
    ended = program(
        f"""
        entered = threading.Event()
        async def coroutine(m): await asyncio.sleep(0)
        node = tw.Node()
        node.start()
        {body}
        """
    )
    assert (ended.code, ended.err) == (0, ""), ended


def test_cycles_between_actors_and_closures_are_freed_with_the_node() -> None:
    class Thing:
        pass

    def build() -> weakref.ref[Thing]:
        with tw.Node() as node:
            thing = Thing()
            refs: list[Any] = [thing]
            refs.append(node.spawn(lambda _: refs))
            refs.append(node.spawn(lambda _: (refs, node)))
            refs[1].tell(refs)
            thing.node = node  # type: ignore[attr-defined]
            return weakref.ref(thing)

    alive = build()
    gc.collect()
    assert alive() is None


def test_messages_that_tell_when_they_die_do_not_deadlock(node: tw.Node) -> None:
    last = threading.Event()
    ref = node.spawn(lambda message: last.set() if message == "bye" else None, mailbox=tw.Mailbox(2, "drop_old"))

    class Loud:
        def __del__(self) -> None:
            ref.try_tell("bye")

    for _ in range(1_000):
        ref.tell(Loud())
    assert last.wait(30)


def test_a_loop_that_is_closed_leaves_no_pipe_for_the_collector() -> None:
    # In a process of its own, without the threads that other tests have left.
    ended = program(
        """
        import gc

        async def story():
            async with tw.Node() as node:
                assert await node.spawn(lambda message: message).ask(1) == 1

        def files():
            # The thread that has ended the node, and has a pipe of its own, may take a moment longer.
            while len(os.listdir("/proc/self/task")) > 1:
                os.sched_yield()
            return len(os.listdir("/proc/self/fd"))

        asyncio.run(story())
        gc.collect()
        gc.disable()
        asyncio.run(story())
        before = files()
        for _ in range(10):
            asyncio.run(story())
        print(files() - before)
        """
    )
    assert (ended.code, ended.out) == (0, "0\n"), ended


def test_ten_thousand_cycles_leave_nothing_behind() -> None:
    # Threads are started when they are needed: all that there may be meet here first.
    most = 4
    meeting = threading.Barrier(most, timeout=30)
    with tw.Node(config={"dispatchers": {"default": {"threads": most, "spare_threads": 0}}}) as node:
        waiting = [node.spawn(lambda _: meeting.wait()) for _ in range(most)]
        for ref in waiting:
            ref.tell(None)
        for ref in waiting:
            assert node.sync.stop(ref).handled == 1
        _cycles(node)


def _cycles(node: tw.Node) -> None:
    def usage() -> tuple[int, int, int]:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * 4096, len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    def cycle() -> None:
        refs = [node.spawn(lambda _: None) for _ in range(5)]
        for ref in refs:
            for n in range(3):
                ref.tell(n)
        for ref in refs:
            ledger = node.sync.stop(ref)
            assert (ledger.accepted, ledger.handled) == (3, 3)

    for _ in range(200):
        cycle()
    gc.collect()
    memory, threads, files = usage()
    for _ in range(2_000):
        cycle()
    gc.collect()
    memory_after, threads_after, files_after = usage()
    assert threads_after <= threads
    assert files_after <= files
    assert memory_after - memory < 8 << 20, f"{memory_after - memory} bytes in 2,000 cycles of five actors"


def test_sigterm_ends_a_program_at_once() -> None:
    ended = program("with tw.Node() as node:\n    node.sync.ask(node.spawn(stuck), 1)", "asyncio", (signal.SIGTERM,))
    assert ended.code == -signal.SIGTERM, ended


@pytest.mark.parametrize("is_started", [False, True])
def test_the_messages_of_a_node_that_is_gone_are_free(is_started: bool) -> None:
    class Thing:
        ref: tw.ActorRef

    def build(coroutine: bool) -> list[weakref.ref[Thing]]:
        node = tw.Node()

        async def later(message: object) -> None:
            raise ValueError("on purpose")

        def now(message: object) -> None:
            raise ValueError("on purpose")

        with node if is_started else contextlib.nullcontext():
            ref = node.spawn(later if coroutine else now)
            things = [Thing(), Thing()]
            things[1].ref = ref
            for thing in things:
                ref.tell(thing)
        return [weakref.ref(thing) for thing in things]

    for coroutine in (False, True):
        things = build(coroutine)
        gc.collect()
        assert [thing() for thing in things] == [None, None]


def test_a_collection_while_an_event_loop_runs_actors_of_a_node_that_was_never_started() -> None:
    """It stood still: one thread had the interpreter and the other the actor, and each waited for
    what the other had.
    """
    ended = program(
        """
        import gc

        async def fails(message):
            raise ValueError("on purpose")

        def churn():
            while True:
                for _ in range(1_000):
                    cycle = []
                    cycle.append(cycle)
                time.sleep(0)

        threading.Thread(target=churn, daemon=True).start()
        for _ in range(200):
            ref = tw.Node().spawn(fails)
            ref.tell(1)
            ref.tell(2)
            del ref
            gc.collect()
        print("ended")
        """
    )
    assert ended.out == "ended\n", ended


@pytest.mark.promise("P8.24")
@pytest.mark.parametrize("closed", [False, True])
def test_a_block_does_not_wait_for_a_loop_that_does_not_run(closed: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def handle(message: int) -> None:
        await asyncio.sleep(0)

    async def spawn(node: tw.Node) -> tw.ActorRef:
        return node.spawn(handle, name="reader")

    caplog.set_level("WARNING", logger="tidewire")
    loop = asyncio.new_event_loop()
    began = time.monotonic()
    with tw.Node(name="desk", config={"stop_timeout_ms": 20_000, "abort_timeout_ms": 50}) as node:
        reader = loop.run_until_complete(spawn(node))
        if closed:
            loop.close()
        for number in range(3):
            reader.tell(number)
    loop.close()
    assert time.monotonic() - began < 10
    assert "desk: its event loop does not run, so that it does not wait for reader (#" in caplog.text
