"""Processes that fork: the nodes of before stay with the parent, and the child makes its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

_PRELUDE = """
import asyncio, os, signal, sys, threading, warnings
import tidewire as tw
warnings.simplefilter("ignore")

def in_child(work):
    # What a child says is its exit code, and the text that it gives back.
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        # One that hangs ends all the same, and is told apart by its code.
        signal.alarm(40)
        os.close(reader)
        code = 99
        try:
            os.write(writer, str(work()).encode())
            code = 0
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(code)
    os.close(writer)
    with open(reader) as said:
        text = said.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return text if code == 0 else f"{code} {text}"
"""


def program(code: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-c", _PRELUDE + textwrap.dedent(code)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    # A machine that is busy with something else may hold up the end of a node.
    assert all("waits up to" in line for line in ran.stderr.splitlines()), ran.stderr
    return ran.stdout.splitlines()


@pytest.mark.promise("P14.4")
def test_a_node_that_is_made_in_the_child_does_all_that_a_node_does() -> None:
    said = program(
        """
        def work():
            with tw.Node() as mine:
                seen, later = [], threading.Event()
                log = mine.spawn(seen.append)
                mine.subscribe("numbers.*", log)
                mine.publish("numbers.one", mine.sync.ask(mine.spawn(lambda n: n + 1), 41))
                async def slowly(n):
                    await asyncio.sleep(0)
                    return n * 2
                double = mine.sync.ask(mine.spawn(slowly), 21)
                mine.schedule(0.001, mine.spawn(lambda _: later.set()), None)
                assert later.wait(60)
                pool = mine.pool(lambda n: n * n, workers=2)
                square = pool.sync.submit(7)
                mine.sync.stop(log)
            return seen, double, square, mine.ledger.balanced

        with tw.Node() as node:
            ref = node.spawn(lambda n: n + 1)
            node.sync.ask(ref, 1)
            print(in_child(work))
            print(node.sync.ask(ref, 1))
        """
    )
    assert said == ["([42], 42, 49, True)", "2"]


@pytest.mark.promise("P14.1")
def test_objects_from_before_the_fork_are_refused_with_the_reason() -> None:
    said = program(
        """
        with tw.Node() as node:
            ref = node.spawn(lambda n: n + 1)
            timer = node.schedule(60, ref, 1)
            pending = ref.ask(1)
            subscription = node.subscribe("a", ref)
            calls = {
                "tell": lambda: ref.tell(1), "send": lambda: ref.send(1), "ask": lambda: ref.ask(1),
                "stop": lambda: ref.stop(), "become": lambda: ref.request_become(print),
                "statistics": lambda: ref.statistics(), "spawn": lambda: node.spawn(print),
                "lookup": lambda: node.lookup("x"), "publish": lambda: node.publish("a", 1),
                "request": lambda: node.request("a", 1), "schedule": lambda: node.schedule(1, ref, 1),
                "subscribe": lambda: node.subscribe("a", ref), "cancel": timer.cancel, "outcome": timer.outcome,
                "wait": pending.wait, "node statistics": node.statistics, "dead letters": node.dead_letters.list,
            }
            def work():
                with tw.Node():
                    for name, call in calls.items():
                        try:
                            call()
                        except tw.NodeStopped as error:
                            assert "make a new node in the child" in str(error), (name, error)
                        else:
                            return f"{name} was not refused"
                assert not subscription.unsubscribe() and not ref.alive and not ref.outstanding
                return repr(ref), repr(timer)
            print(in_child(work))
            print(pending.wait(), timer.cancel(), ref.alive)
        """
    )
    assert said == ["('<ActorRef #1 stopped>', '<Timer of the parent process>')", "2 True True"]


@pytest.mark.promise("P14.4")
def test_a_fork_of_a_fork_of_a_fork_has_a_node_each() -> None:
    said = program(
        """
        def work(depth):
            with tw.Node() as mine:
                ref = mine.spawn(lambda n: n + 1)
                deeper = in_child(lambda: work(depth - 1)) if depth else "down"
                return f"{mine.sync.ask(ref, depth)} {deeper}"
        print(work(4))
        """
    )
    assert said == ["5 4 3 2 1 down"]


@pytest.mark.promise("P14.2", "P14.3")
def test_the_block_of_a_node_ends_in_the_child_without_touching_the_parent() -> None:
    said = program(
        """
        node = tw.Node()
        with node:
            ref = node.spawn(lambda n: n + 1)
            child = os.fork()
            if child == 0:
                sys.exit(5)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            print(code, node.sync.ask(ref, 1))
        print(node.ledger.handled)
        """
    )
    assert said == ["5 2", "1"]


@pytest.mark.promise("P14.5", "P14.6", "P14.7")
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_handler_that_forks_can_make_a_node_and_its_child_ends_with_it(kind: str) -> None:
    said = program(
        f"""
        reader, writer = os.pipe()
        handled = []
        {kind} forks(message):
            handled.append(message)
            child = os.fork()
            if child:
                return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            with tw.Node() as mine:
                asked = mine.spawn(lambda n, ctx: (n + 1, ctx.sender))
                said = []
                thread = threading.Thread(target=lambda: said.append(mine.sync.ask(asked, 1)))
                thread.start()
                thread.join()
            os.write(writer, f"{{said}} {{handled}};".encode())
            if message == "raise":
                raise SystemExit(3)
            return "nobody hears this"
        with tw.Node() as node:
            ref = node.spawn(forks)
            asked = [ref.ask(message) for message in ("return", "raise")]
            print([one.wait() for one in asked])
        os.close(writer)
        print(open(reader).read())
        """
    )
    # The second message waited while the first child ran: it was not handled there.
    assert said == ["[0, 3]", "[(2, None)] ['return'];[(2, None)] ['return', 'raise'];"]


@pytest.mark.promise("P14.3")
def test_links_work_in_the_child_and_those_of_the_parent_go_on() -> None:
    said = program(
        """
        class Echo:
            def say(self, text: str) -> str:
                return text + text

        async def told(url, name):
            async with tw.Node(url, name=name) as caller:
                await caller.until(lambda now: now["links"]["services"], 30)
                return await caller.client("echo").say(name)

        async def main():
            async with tw.Node(name="hub") as hub:
                url = hub.listen("tide://127.0.0.1:0").url
                await hub.serve(Echo(), name="echo")
                async with tw.Node(url, name="caller") as caller:
                    await caller.until(lambda now: now["links"]["services"], 30)
                    echo = caller.client("echo")
                    print(await echo.say("a"))

                    async def of_its_own():
                        async with tw.Node(name="childs-hub") as mine:
                            await mine.serve(Echo(), name="echo")
                            return await told(mine.listen("tide://127.0.0.1:0").url, "own")

                    def work():
                        return asyncio.run(of_its_own()), asyncio.run(told(url, "parents"))

                    # The parent's hub takes the child in like any other process, while its own loop runs.
                    print(await asyncio.to_thread(in_child, work))
                    print(await echo.say("b"))
        asyncio.run(main())
        """
    )
    assert said == ["aa", "('ownown', 'parentsparents')", "bb"]


@pytest.mark.promise("P14.4")
def test_children_of_a_busy_process_never_hang() -> None:
    said = program(
        """
        import random
        with tw.Node() as node:
            over = threading.Event()
            def busy():
                while not over.is_set():
                    with tw.Node() as short:
                        ref = short.spawn(lambda n: n)
                        for _ in range(20):
                            short.schedule(0.0001, ref, 1)
                            ref.tell(1)
                        short.sync.ask(ref, 1)
            threads = [threading.Thread(target=busy) for _ in range(3)]
            for thread in threads:
                thread.start()
            def work():
                with tw.Node() as mine:
                    fired = threading.Event()
                    mine.schedule(0, mine.spawn(lambda _: fired.set()), 1)
                    assert fired.wait(60)
                    return mine.sync.ask(mine.spawn(lambda n: n + 1), 1)
            print({in_child(work) for _ in range(60)})
            over.set()
            for thread in threads:
                thread.join()
        """
    )
    assert said == ["{'2'}"]


def test_children_of_a_process_with_calls_in_flight_never_hang() -> None:
    said = program(
        """
        class Echo:
            async def say(self, blob):
                return blob

        def work():
            async def own():
                async with tw.Node(name="childs-hub") as mine:
                    await mine.serve(Echo(), name="echo")
                    async with tw.Node(mine.listen("tide://127.0.0.1:0").url, name="childs") as caller:
                        return len(await caller.client("echo").say(b"x" * 100_000))
            return asyncio.run(own())

        async def main():
            async with tw.Node(name="hub") as hub:
                url = hub.listen("tide://127.0.0.1:0").url
                await hub.serve(Echo(), name="echo")
                async with tw.Node(url, name="caller") as caller:
                    echo = caller.client("echo")
                    async def call(size):
                        while True:
                            await echo.say(b"x" * size)
                    calls = [asyncio.create_task(call(size)) for size in (10, 1_000, 200_000)]
                    said = set()
                    for _ in range(15):
                        said.add(await asyncio.to_thread(in_child, work))
                    print(said, all(not call.done() for call in calls))
                    for call in calls:
                        call.cancel()
                    await asyncio.wait(calls)
        asyncio.run(main())
        """
    )
    assert said == ["{'100000'} True"]


def test_a_child_refuses_what_is_its_parents_before_any_hook_of_a_fork_runs() -> None:
    said = program(
        """
        # Hooks run in the order in which they were registered: this one before those of the runtime, which isn't loaded yet.
        told = []
        def hook():
            try:
                told.append(ref.tell(1))
            except tw.NodeStopped as error:
                told.append(str(error).split(":")[0])
        os.register_at_fork(after_in_child=hook)
        assert "tidewire._tidewire" not in sys.modules

        with tw.Node() as node:
            ref = node.spawn(lambda n: n)
            print(in_child(lambda: told))
            print(ref.tell(1), told)
        """
    )
    assert said == ["['this node was started before a fork, and its threads stayed in the parent process']", "True []"]


@pytest.mark.parametrize("use", ["tw.Service", "tw.Node", "tw.Agent"])
def test_a_child_loads_what_a_thread_of_its_parent_was_loading(use: str) -> None:
    said = program(
        f"""
        loads, forked, parent = threading.Event(), threading.Event(), os.getpid()

        from importlib.machinery import PathFinder

        class Held:
            # Holds up the thread in the midst of a module, not the child.
            def find_spec(self, name, path=None, target=None):
                if not name.startswith("tidewire.") or os.getpid() != parent or loads.is_set():
                    return None
                spec = PathFinder.find_spec(name, path, target)
                execute = spec.loader.exec_module
                def held(module):
                    loads.set()
                    assert forked.wait(60)
                    execute(module)
                spec.loader.exec_module = held
                return spec

        sys.meta_path.insert(0, Held())
        thread = threading.Thread(target=lambda: {use})
        thread.start()
        assert loads.wait(60)
        print(in_child(lambda: {use}.__name__))
        forked.set()
        thread.join()
        print({use}.__name__)
        """
    )
    assert said == [use.removeprefix("tw.")] * 2


@pytest.mark.parametrize(
    "value", ["datetime.datetime.now(datetime.timezone.utc)", "datetime.timedelta(1)", "datetime.time(1)"]
)
def test_a_fork_beside_the_first_value_of_a_kind_leaves_the_child_able_to_send_one(value: str) -> None:
    said = program(
        f"""
        import datetime
        from tidewire.values import encode
        sys.setswitchinterval(1e-6)
        value = {value}
        def work():
            return len(encode(value))
        for _ in range(20):
            # Each child's thread is the first one there that encodes such a value.
            def first():
                thread = threading.Thread(target=work)
                thread.start()
                said = in_child(work)
                thread.join()
                return said
            assert in_child(first).isdigit()
        print("done")
        """
    )
    assert said == ["done"]
