"""Ctrl-C, SIGTERM and errors that leave a node's block: what is waited for, for how long, what is
said, and with which code a program ends.
"""

from __future__ import annotations

import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import tidewire as tw
from program_support import CTRL_C, LOOPS, Ended, program

INT, TERM = signal.SIGINT, signal.SIGTERM
SOON_S = 15.0
"""Much less than the half minute of a stop. On two busy cores a program with a handler that awaits
ended 0.08 s after its Ctrl-C (20 runs, 0.03 to 0.12); the rest is for machines whose processes
stand still for seconds."""


def interrupted(code: str, loop: str = "asyncio", signals: tuple[signal.Signals, ...] = (INT,)) -> Ended:
    """Run a program whose Ctrl-C ends it soon."""
    ended = program(code, loop, signals)
    assert ended.code == CTRL_C, ended
    assert ended.seconds < SOON_S
    return ended


@pytest.mark.promise("P16.11")
@LOOPS
@pytest.mark.parametrize("waits", ["await ref.ask(1, timeout=None)", "ref.tell(1)"], ids=["block", "its end"])
def test_ctrl_c_cancels_a_handler_that_awaits(loop: str, waits: str) -> None:
    ended = interrupted(
        f"""
        async def slow(message):
            try:
                print("now")
                await asyncio.sleep(60)
            finally:
                print("handler cancelled")
        async def main():
            async with tw.Node() as node:
                ref = node.spawn(slow)
                {waits}
        run(main())
        """,
        loop,
    )
    assert "handler cancelled" in ended.out
    assert "waits up to" not in ended.err
    assert "destroyed" not in ended.err


@pytest.mark.promise("P16.10")
@LOOPS
def test_ctrl_c_says_for_whom_it_waits_and_does_not_wait_long(loop: str) -> None:
    ended = interrupted(
        """
        async def main():
            async with tw.Node(name="desk") as node:
                await node.spawn(stuck, name="reader").ask(1, timeout=None)
        run(main())
        """,
        loop,
    )
    assert "desk: waits up to" in ended.err
    assert "can't be cancelled: reader (#1)" in ended.err
    assert "destroyed" not in ended.err


@pytest.mark.parametrize(
    "waits",
    ["node.sync.ask(node.spawn(stuck, name='reader'), 1, timeout=None)", "node.pool(stuck, workers=1).sync.submit(1)"],
    ids=["ask", "pool"],
)
def test_ctrl_c_in_a_plain_program_does_not_wait_long_either(waits: str) -> None:
    ended = interrupted(
        f"""
        with tw.Node() as node:
            {waits}
        """
    )
    assert "waits up to" in ended.err


@pytest.mark.promise("P16.13")
def test_ctrl_c_ends_a_block_of_a_pool_with_a_stuck_task() -> None:
    interrupted(
        """
        async def main():
            async with tw.Pool(stuck, workers=1, kind="thread") as pool:
                await pool.submit(1)
        run(main())
        """
    )


@LOOPS
def test_ctrl_c_that_another_thread_was_handed_ends_the_program(loop: str) -> None:
    ended = program(
        """
        async def main():
            async with tw.Node() as node:
                waiting = node.spawn(never).ask(1, timeout=None)
                # From now on the system hands signals to this thread.
                threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
                print("now")
                await waiting
        run(main())
        """,
        loop,
        (INT,),
    )
    assert ended.code is not None, ended
    assert ended.seconds < SOON_S
    assert "KeyboardInterrupt" in ended.err


@pytest.mark.promise("P16.17")
@LOOPS
def test_a_second_ctrl_c_ends_the_program_now(loop: str) -> None:
    interrupted(
        """
        async def main():
            async with tw.Node(config={"abort_timeout_ms": 40_000}) as node:
                try:
                    await node.spawn(stuck).ask(1, timeout=None)
                finally:
                    asyncio.get_running_loop().call_later(0.1, print, "now, again")
        run(main())
        """,
        loop,
        signals=(INT, INT),
    )


@pytest.mark.promise("P16.8")
def test_an_error_that_leaves_the_block_cancels_coroutines_and_begins_nothing_more() -> None:
    ended = program(
        """
        async def slow(message):
            print("begun", message)
            begun.set()
            await asyncio.sleep(60)
        async def main():
            global begun
            begun = asyncio.Event()
            async with tw.Node() as node:
                ref = node.spawn(slow)
                ref.tell(1)
                ref.tell(2)
                await begun.wait()
                raise LookupError("lost")
        try:
            run(main())
        except LookupError as error:
            print(error)
        """
    )
    assert (ended.code, ended.out) == (0, "begun 1\nlost\n"), ended
    assert ended.seconds < SOON_S


@pytest.mark.promise("P16.9", "P16.13")
@pytest.mark.parametrize(
    "block",
    [
        "async with tw.Node(config={'abort_timeout_ms': 40_000}) as node, Given(node.pool(slow, workers=1, kind='thread')) as pool:",
        "async with tw.Pool(slow, workers=1, kind='thread') as pool:",
    ],
    ids=["node", "pool"],
)
def test_an_error_that_leaves_the_block_cancels_coroutines_in_threads(block: str) -> None:
    ended = program(
        f"""
        class Given:
            def __init__(self, pool):
                self.pool = pool
            async def __aenter__(self):
                return self.pool
            async def __aexit__(self, *_):
                pass
        async def slow(number):
            begun.set()
            try:
                await asyncio.sleep(60)
            finally:
                print("cancelled", number)
        begun = threading.Event()
        async def main():
            try:
                {block}
                    tasks = [asyncio.ensure_future(pool.submit(number)) for number in range(2)]
                    await asyncio.to_thread(begun.wait)
                    raise LookupError("lost")
            except LookupError as error:
                print(error)
            for told in await asyncio.gather(*tasks, return_exceptions=True):
                print(type(told).__name__)
            print(pool.ledger.dead_lettered, pool.ledger.returned)
        run(main())
        """
    )
    assert ended.code == 0, ended
    assert ended.out == "cancelled 0\nlost\nPoolStopped\nPoolStopped\n1 1\n", ended
    assert "waits up to" not in ended.err
    assert ended.seconds < SOON_S


@pytest.mark.promise("P16.9")
@LOOPS
def test_an_error_that_leaves_the_block_interrupts_calls_and_tells_their_callers(loop: str) -> None:
    ended = program(
        """
        import logging
        logging.basicConfig()
        class Desk(tw.Service):
            @tw.method
            async def slow(self):
                begun.release()
                await asyncio.sleep(60)
        async def main():
            global begun
            begun = asyncio.Semaphore(0)
            caller = None
            try:
                async with tw.Node(name="hub") as hub:
                    url = hub.listen("tide://127.0.0.1:0").url
                    await hub.serve(Desk())
                    caller = await tw.Node(url, name="other").__aenter__()
                    calls = [asyncio.ensure_future(node.client(Desk).slow()) for node in (caller, hub)]
                    await begun.acquire()
                    await begun.acquire()
                    raise LookupError("lost")
            except LookupError as error:
                print(error)
            for told in await asyncio.gather(*calls, return_exceptions=True):
                print(type(told).__name__)
            await caller.stop()
        run(main())
        """,
        loop,
    )
    assert (ended.code, ended.out) == (0, "lost\nNodeStopped\nNodeStopped\n"), ended
    # Nothing has failed.
    assert "Traceback" not in ended.err
    # They can be cancelled, and so nobody waits for them.
    assert "waits up to" not in ended.err


@pytest.mark.promise("P16.9")
def test_an_error_that_leaves_the_block_ends_streams_over_links() -> None:
    ended = program(
        """
        class Desk(tw.Service):
            @tw.method
            async def news(self):
                try:
                    yield 1
                    await asyncio.sleep(60)
                finally:
                    print("closed")
        async def read(node, there):
            async for item in node.client(Desk).with_(instance="one").news():
                there.release()
        async def main():
            there = asyncio.Semaphore(0)
            try:
                async with tw.Node(name="hub", config={"abort_timeout_ms": 40_000}) as hub:
                    url = hub.listen("tide://127.0.0.1:0").url
                    await hub.serve(Desk(), instance="one")
                    other = await tw.Node(url, name="other").__aenter__()
                    reads = [asyncio.ensure_future(read(node, there)) for node in (other, hub)]
                    await there.acquire()
                    await there.acquire()
                    raise LookupError("lost")
            except LookupError as error:
                print(error)
            for told in await asyncio.gather(*reads, return_exceptions=True):
                print(type(told).__name__)
            await other.stop()
        run(main())
        """
    )
    assert ended.code == 0, ended
    assert sorted(ended.out.split()) == ["NodeStopped", "NodeStopped", "closed", "closed", "lost"], ended
    assert "waits up to" not in ended.err
    assert ended.seconds < SOON_S


@pytest.mark.parametrize(
    "asks", ["", "asking = asyncio.ensure_future(node.spawn(never).ask(1, timeout=None))"], ids=["idle", "asks"]
)
def test_one_ctrl_c_ends_a_starlette_program_with_a_node(asks: str) -> None:
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    ended = program(
        f"""
        import contextlib, socket, urllib.request
        import uvicorn
        from starlette.applications import Starlette
        from starlette.responses import PlainTextResponse
        from starlette.routing import Route

        @contextlib.asynccontextmanager
        async def lifespan(app):
            async with tw.Node(name="desk", config={{"stop_timeout_ms": 500}}) as node:
                app.state.desk = node.spawn(answer)
                {asks or "pass"}
                yield
                print("lifespan over")

        async def ask(request):
            return PlainTextResponse(await request.app.state.desk.ask("well"))

        def client(port):
            print(urllib.request.urlopen(f"http://127.0.0.1:{{port}}/", timeout=30).read().decode())
            print("now")

        listening = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=client, args=(listening.getsockname()[1],), daemon=True).start()
        app = Starlette(routes=[Route("/", ask)], lifespan=lifespan)
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
        """,
        "asyncio",
        (INT,),
    )
    assert (ended.code, ended.out) == (0, "well\nnow\nlifespan over\n"), ended
    assert "no running event loop" not in ended.err
    assert "destroyed" not in ended.err
    assert ended.seconds < SOON_S


@pytest.mark.promise("P16.8")
def test_the_time_for_what_cannot_be_cancelled_is_a_setting() -> None:
    ended = program(
        """
        def slow(message):
            begun.set()
            time.sleep(2)
            print("handled")
        begun = threading.Event()
        async def main():
            async with tw.Node(config={"abort_timeout_ms": 20_000}) as node:
                node.spawn(slow).tell(1)
                await asyncio.to_thread(begun.wait)
                raise LookupError("lost")
        try:
            run(main())
        except LookupError as error:
            print(error)
        """
    )
    assert (ended.code, ended.out) == (0, "handled\nlost\n"), ended


WORKER = """
async def work(message):
    await asyncio.sleep(0.2)
    print("done", message)

async def main():
    async with tw.Node() as node:
        ref = node.spawn(work)
        for message in range(3):
            ref.tell(message)
        asyncio.get_running_loop().call_soon(print, "now")
        {waits}
    print("left")
"""


def told(ended: Ended) -> str:
    """Text of a program on stderr, without its reports of waits: a machine that is busy with
    something else may hold it up.
    """
    return "".join(line for line in ended.err.splitlines(keepends=True) if "waits up to" not in line)


FOREVER, EVENT = "await node.run_forever()", "await asyncio.Event().wait()"


@pytest.mark.promise("P16.14", "P16.15", "P16.16", "P16.19")
@LOOPS
@pytest.mark.parametrize(
    ("run", "waits", "left"),
    [("tw.run", FOREVER, "left\n"), ("tw.run", EVENT, ""), ("run", FOREVER, "left\n")],
    ids=["forever", "event", "any runner"],
)
@pytest.mark.parametrize("number", [INT, TERM], ids=["SIGINT", "SIGTERM"])
def test_a_program_that_is_asked_to_end_works_off_what_it_has(
    loop: str, run: str, waits: str, left: str, number: signal.Signals
) -> None:
    factory = {"asyncio": "None", "uvloop": "__import__('uvloop').new_event_loop"}[loop]
    options = f", loop_factory={factory}" if run == "tw.run" else ""
    ended = program(WORKER.format(waits=waits) + f"{run}(main(){options})\n", loop, (number,))
    assert (ended.code, ended.out, told(ended)) == (0, f"now\ndone 0\ndone 1\ndone 2\n{left}", ""), ended


@pytest.mark.promise("P16.17", "P16.19")
@pytest.mark.parametrize(
    ("config", "signals", "code"),
    [({}, (INT, INT), 128 + INT), ({}, (INT, TERM), 128 + INT), ({"stop_timeout_ms": 300}, (TERM,), 1)],
    ids=["SIGINT", "SIGTERM", "time"],
)
def test_a_second_signal_or_the_time_of_the_stop_ends_the_wait_for_the_work(
    config: dict[str, int], signals: tuple[signal.Signals, ...], code: int
) -> None:
    ended = program(
        f"""
        async def main():
            async with tw.Node(config={config}) as node:
                node.spawn(stuck).tell(1)
                await node.run_forever()
                print("now, again")
        tw.run(main())
        """,
        "asyncio",
        signals,
    )
    assert ended.code == code, ended
    assert ended.seconds < SOON_S


@pytest.mark.promise("P16.20")
def test_run_returns_and_raises_what_main_does() -> None:
    ended = program(
        """
        async def main(value):
            if value is None:
                raise LookupError("none")
            return value
        before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
        print(tw.run(main(7)))
        try:
            tw.run(main(None))
        except LookupError as error:
            print(error)
        try:
            tw.run(main)
        except tw.InvalidArgument as error:
            print("tw.run(main())" in str(error))
        print((signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before)
        """
    )
    assert (ended.code, ended.out) == (0, "7\nnone\nTrue\nTrue\n"), ended


@pytest.mark.promise("P16.14")
def test_run_forever_ends_with_its_node() -> None:
    ended = program(
        """
        async def main():
            async with tw.Node() as node:
                asyncio.get_running_loop().call_later(0.05, lambda: tasks.append(asyncio.ensure_future(node.stop())))
                await node.run_forever()
                print("ended")
        tasks = []
        tw.run(main())
        """
    )
    assert (ended.code, ended.out) == (0, "ended\n"), ended


@LOOPS
def test_a_block_that_ends_says_for_whom_it_waits(loop: str) -> None:
    ended = program(
        """
        import logging
        begun, told = asyncio.Event(), asyncio.Event()

        class Heard(logging.Handler):
            def emit(self, record):
                if "waits up to" in record.getMessage():
                    told.loop.call_soon_threadsafe(told.set)

        async def slow(message):
            begun.set()
            await told.wait()
        async def main():
            told.loop = asyncio.get_running_loop()
            logging.getLogger("tidewire").addHandler(Heard())
            logging.getLogger("tidewire").addHandler(logging.StreamHandler())
            async with tw.Node(name="desk") as node:
                await node.spawn(slow, name="reader").send(1)
                await begun.wait()
            print("ended", node.ledger.balanced)
        run(main())
        """,
        loop,
    )
    assert ended.code == 0, ended
    assert "ended True" in ended.out
    assert "desk: waits up to" in ended.err
    assert "for what it has begun: reader (#1)" in ended.err


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the mask of a thread is read in /proc")
def test_threads_of_the_runtime_leave_signals_to_the_main_thread(tmp_path: Path) -> None:
    # A main thread that waits for a lock is not woken by a signal that another thread was handed.
    asked = 1 << (signal.SIGTERM - 1) | 1 << (signal.SIGINT - 1)
    with tw.Node(name="hub", data=tmp_path / "data") as node:
        # Each thread has begun once it has answered.
        page = node.listen("http://127.0.0.1:0", http=tw.Http())
        with tw.Node(node.listen("tide://127.0.0.1:0").url, name="other") as other:
            other.sync.kv("rates").put("CHF", 1)
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{page.url}/nothing", timeout=30)
        blocked = {}
        for thread in Path("/proc/self/task").iterdir():
            said = dict(line.split(":\t", 1) for line in (thread / "status").read_text().splitlines())
            blocked[said["Name"]] = int(said["SigBlk"], 16)
    for name in ("tidewire-links", "tidewire-http", "tidewire-home"):
        assert blocked[name] & asked == asked, f"{name} may be handed Ctrl-C"
        assert not blocked[name] & 1 << (signal.SIGSEGV - 1), f"{name} has its own faults"
