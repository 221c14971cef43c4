"""Processes that fork: the nodes of before stay with the parent, and the child makes its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

_PRELUDE = """
import asyncio, os, pathlib, shutil, signal, sys, tempfile, threading, warnings
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
        def work(depth=2):
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
                deeper = in_child(lambda: work(depth - 1)) if depth else "down"
            return seen, double, square, mine.ledger.balanced, deeper

        with tw.Node() as node:
            ref = node.spawn(lambda n: n + 1)
            node.sync.ask(ref, 1)
            print(in_child(work))
            print(node.sync.ask(ref, 1))
        """
    )
    assert said[0].count("[42], 42, 49, True") == 3
    assert said[1] == "2"


_USES = """
ref.tell(1); ref.send(1); ref.ask(1); ref.stop(); ref.request_become(print); ref.statistics(); timer.cancel()
timer.outcome(); pending; call; echo.say("a"); node.spawn(print); node.spawn(echo.say); node.lookup("x")
node.publish("a", 1); node.request("a", 1); node.schedule(1, ref, 1); node.subscribe("a", ref); node.statistics()
node.dead_letters.list(); node.idle(5); node.until(callable, 5); node.nodes(); node.stream("orders"); node.kv("b")
orders.info(); orders.publish("orders.a", 1); orders.consumer("other"); anext(orders.read()); billing.next(5)
out.publish("orders.a", 1); out.flush(); event.ack(wait=True); event.nak(); totals.put("a", 2); anext(totals.watch())
node.lease("b").acquire(); lease.release(); node.client("echo").say("a"); node.serve(Echo(), name="o"); served.stop()
node.listen("tide://127.0.0.1:0"); node.agent(print, id="x"); agent.send(1, to="agent"); node.pool(len)
threads.submit(1); anext(threads.map([1])); processes.submit(1); processes.until(callable, 5)
node.start_command("echo", "say"); asyncio.to_thread(node.sync.ask, ref, 1); asyncio.to_thread(blocking.publish, "orders.a", 1)
asyncio.to_thread(node.sync.stream, "orders"); asyncio.to_thread(echo.sync.say, "a"); asyncio.to_thread(pending.wait)
asyncio.to_thread(processes.sync.submit, 1)
"""


@pytest.mark.promise("P14.1", "P14.2", "P14.3")
@pytest.mark.parametrize("user", ["hub", "far"])
def test_a_child_is_refused_every_object_of_its_parent_and_the_parent_goes_on(tmp_path: Path, user: str) -> None:
    said = program(
        f"""
        # Hooks run in the order in which they were registered: this one before the runtime is loaded.
        refs, refused, uses = [], [], {_USES.replace(chr(10), ";").split(";")}
        os.register_at_fork(after_in_child=lambda: refused.append(outcome("refs[0].tell(1)", globals())))
        assert "tidewire._tidewire" not in sys.modules

        def outcome(use, names):
            async def used():
                result = eval(use, globals(), names)
                return await asyncio.wait_for(result, 10) if hasattr(result, "__await__") else result
            try:
                return asyncio.run(used())
            except tw.ForkedError as error:
                return "spawn or forkserver" in str(error)
            except BaseException as error:
                return repr(error)

        class Echo:
            async def say(self, text):
                return text * 2

        async def main():
            async with (
                tw.Node(name="hub", data={str(tmp_path)!r}) as hub,
                tw.Node(hub.listen("tide://127.0.0.1:0").url, name="far") as far,
                tw.Pool("os:strerror", 1, "process") as processes,
            ):
                served, node = await hub.serve(Echo(), name="echo"), {user}
                echo, ref = node.client("echo"), node.spawn(lambda n: n + 1)
                await echo.say("a")
                refs.append(ref)
                timer, pending, call = node.schedule(60, ref, 1), ref.ask(1), echo.say("b")
                subscription, agent = node.subscribe("a", ref), node.agent(print, id="agent")
                orders, totals = await node.stream("orders", subjects=["orders.*"]), await node.kv("totals")
                await orders.publish("orders.a", 1)
                out, billing, lease = orders.publisher(), await orders.consumer("billing", start="all"), node.lease("a")
                event, revision, fence = await billing.next(60), await totals.put("a", 1), await lease.acquire()
                threads = node.pool(lambda n: n * n, workers=1)
                squared, failure = await threads.submit(2), await processes.submit(1)
                blocking = await asyncio.to_thread(node.sync.stream, "orders")
                names = locals()
                def work():
                    left = {{use: found for use in uses if use and (found := outcome(use.strip(), names)) is not True}}
                    assert (subscription.unsubscribe(), ref.alive, ref.outstanding) == (False, False, 0)
                    ledgers = [asyncio.run(node.stop()), threads.sync.stop(), processes.sync.stop()]
                    return refused, left, {{ledger.accepted for ledger in ledgers}}
                print(await asyncio.to_thread(in_child, work))
                print(await pending, await call, timer.cancel(), ref.alive, lease.is_held, refused)
                print((await totals.get("a")).value, await threads.submit(3), (await orders.publish("orders.a", 2)).sequence)
                await event.ack(wait=True)
        asyncio.run(main())
        """
    )
    assert said == ["([True], {}, {0})", "2 bb True True True []", "1 9 2"]


@pytest.mark.promise("P14.2", "P14.3")
def test_the_blocks_of_a_node_and_a_pool_end_in_the_child_without_touching_the_parent() -> None:
    said = program(
        """
        os.environ["XDG_RUNTIME_DIR"] = folder = tempfile.mkdtemp()
        node = tw.Node(name="parent", inspect=True)
        with node, tw.Pool("os:strerror", 1, "process") as pool:
            ref = node.spawn(lambda n: n + 1)
            pool.sync.submit(1)
            child = os.fork()
            if child == 0:
                signal.alarm(40)
                sys.exit(5)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            print(code, node.sync.ask(ref, 1), len(list(pathlib.Path(folder).rglob("*.sock"))), pool.sync.submit(1)[:9])
        print(node.ledger.handled, pool.ledger.handled)
        shutil.rmtree(folder)
        """
    )
    assert said == ["5 2 1 Operation", "1 2"]


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


@pytest.mark.promise("P14.3", "P14.4")
def test_children_of_a_busy_process_never_hang_and_its_calls_go_on() -> None:
    said = program(
        """
        over = threading.Event()
        def busy():
            while not over.is_set():
                with tw.Node() as short:
                    ref = short.spawn(lambda n: n)
                    for _ in range(20):
                        short.schedule(0.0001, ref, 1)
                        ref.tell(1)
                    short.sync.ask(ref, 1)

        class Echo:
            async def say(self, blob):
                return blob

        async def told(url):
            async with tw.Node(url, name="childs") as caller:
                return len(await caller.client("echo").say(b"x" * 100_000))

        async def own():
            async with tw.Node(name="childs-hub") as mine:
                fired = asyncio.Event()
                mine.schedule(0, mine.spawn(lambda _: fired.set(), dispatcher="asyncio"), 1)
                await fired.wait()
                await mine.serve(Echo(), name="echo")
                return await told(mine.listen("tide://127.0.0.1:0").url)

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
                    threads = [threading.Thread(target=busy) for _ in range(2)]
                    for thread in threads:
                        thread.start()
                    # The hub of the parent takes the child in like any other process.
                    work = lambda: (asyncio.run(own()), asyncio.run(told(url)))
                    said = {await asyncio.to_thread(in_child, work) for _ in range(20)}
                    over.set()
                    print(said, all(not call.done() for call in calls))
                    for call in calls:
                        call.cancel()
                    await asyncio.wait(calls)
        asyncio.run(main())
        """
    )
    assert said == ["{'(100000, 100000)'} True"]


@pytest.mark.promise("P14.4")
def test_a_child_loads_what_a_thread_of_its_parent_was_loading() -> None:
    said = program(
        """
        loads, forked, parent = threading.Event(), threading.Event(), os.getpid()

        def hold(event, args):
            # Holds up the thread in the midst of a module, not the child.
            inside = event == "exec" and "/tidewire/services/" in args[0].co_filename and os.getpid() == parent
            if inside and not loads.is_set():
                loads.set()
                assert forked.wait(60)

        sys.addaudithook(hold)
        thread = threading.Thread(target=lambda: tw.Service)
        thread.start()
        assert loads.wait(60)
        print(in_child(lambda: tw.Service.__name__))
        forked.set()
        thread.join()
        print(tw.Service.__name__)
        """
    )
    assert said == ["Service"] * 2


@pytest.mark.promise("P14.4")
def test_a_fork_beside_the_first_value_of_a_kind_leaves_the_child_able_to_send_one() -> None:
    said = program(
        """
        import datetime
        from tidewire.values import encode
        sys.setswitchinterval(1e-6)
        value = [datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(1), datetime.time(1)]
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


@pytest.mark.promise("P17.110")
@pytest.mark.parametrize("url", ["tide://127.0.0.1:0", "tide+unix://{}/hub.sock", "http://127.0.0.1:0"])
def test_a_parent_opens_its_folder_and_its_port_again_while_a_child_lives(tmp_path: Path, url: str) -> None:
    said = program(
        f"""
        reader, writer = os.pipe()
        with tw.Node(name="first", data={str(tmp_path / "data")!r}) as node:
            url = node.listen({url.format(tmp_path)!r}).url
            if (child := os.fork()) == 0:
                os.close(writer)
                os._exit(len(os.read(reader, 1)))
        with tw.Node(name="second", data={str(tmp_path / "data")!r}) as node:
            print(node.listen(url).url == url, os.waitpid(child, os.WNOHANG))
        os.close(writer)
        print(os.waitpid(child, 0)[1])
        """
    )
    assert said == ["True (0, 0)", "0"]


@pytest.mark.promise("P17.110")
def test_calls_of_a_killed_provider_fail_at_once_while_its_child_lives() -> None:
    said = program(
        """
        reader, writer = os.pipe()
        class Provider:
            async def hold(self):
                os.write(writer, b"held")
                await asyncio.Event().wait()

        async def provide(url):
            async with tw.Node(url, name="server") as node:
                await node.serve(Provider(), name="desk")
                if (child := os.fork()) == 0:
                    signal.pause()
                os.write(writer, str(child).encode())
                await asyncio.Event().wait()

        def fork(url):
            return os.fork() or asyncio.run(provide(url))

        async def main():
            # A heartbeat that finds the loss only much later.
            async with tw.Node(name="hub", config={"links": {"link_heartbeat_ms": 20_000}}) as hub:
                provider = await asyncio.to_thread(fork, hub.listen("tide://127.0.0.1:0").url)
                child = int(await asyncio.to_thread(os.read, reader, 99))
                call = asyncio.ensure_future(hub.client("desk").with_(timeout=15.0).hold())
                print(await asyncio.to_thread(os.read, reader, 4))
                os.kill(provider, signal.SIGKILL)
                try:
                    await asyncio.wait_for(call, 5)
                except tw.LinkLost:
                    print("lost")
                finally:
                    os.kill(child, signal.SIGKILL)
        asyncio.run(main())
        """
    )
    assert said == ["b'held'", "lost"]
