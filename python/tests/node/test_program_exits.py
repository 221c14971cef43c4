"""sys.exit(), KeyboardInterrupt and errors in programs with nodes: they leave the event loop, as
asyncio has them do.
"""

from __future__ import annotations

import textwrap

import pytest
from program_support import CTRL_C, LOOPS, program

EXITS = [("sys.exit(3)", 3), ("raise KeyboardInterrupt", CTRL_C)]

PLACES = {
    "inside of the block": """
        async with tw.Node() as node:
            await node.spawn(answer).ask(1)
            {how}
        """,
    "after the block": """
        async with tw.Node() as node:
            await node.spawn(answer).ask(1)
        {how}
        """,
    "after a call": """
        async with tw.Node() as node:
            await node.serve({{"answer": answer}}, name="desk")
            await node.client("desk").answer(1)
            {how}
        """,
    "in a stream": """
        async with tw.Node() as node:
            await node.serve({{"items": items}}, name="desk")
            async for _ in node.client("desk").items():
                {how}
        """,
    "after a pool": """
        async with tw.Node() as node:
            async with node.pool(plain, workers=1) as pool:
                await pool.submit(1)
            {how}
        """,
    "over a link": """
        async with tw.Node() as hub:
            await hub.serve({{"answer": answer}}, name="desk")
            async with tw.Node(hub.listen("tide://127.0.0.1:0").url) as node:
                await node.until(lambda now: now["links"]["services"].get("desk") == 1)
                await node.client("desk").answer(1)
                {how}
        """,
    "in another task": """
        async with tw.Node() as node:
            async def job():
                await node.spawn(answer).ask(1)
                {how}
            task = asyncio.create_task(job())
            await asyncio.Event().wait()
        """,
    "in a handler that is asked": """
        async def leaves(message):
            await asyncio.sleep(0.001)
            {how}
        async with tw.Node() as node:
            await node.spawn(leaves).ask(1)
        """,
}


@pytest.mark.promise("P16.1")
@LOOPS
@pytest.mark.parametrize("place", PLACES)
def test_a_program_that_leaves_ends_with_its_code(place: str, loop: str) -> None:
    # Places take turns on uvloop, so that there is each pair of place, exit and loop.
    exits = EXITS if loop == "asyncio" else [EXITS[list(PLACES).index(place) % 2]]
    for how, code in exits:
        body = textwrap.dedent(PLACES[place].format(how=how))
        ended = program(f"async def main():\n{textwrap.indent(body, '    ')}\nrun(main())\n", loop)
        assert ended.code == code, (how, ended)
        assert "unraisable" not in ended.err
        assert "Exception ignored" not in ended.err


HANDLERS = {
    "coroutine": """
        async def leaves(message):
            {how}
        async def main():
            async with tw.Node() as node:
                node.spawn(leaves).tell(1)
                await asyncio.Event().wait()
        """,
    "plain function on the loop": """
        def leaves(message):
            {how}
        async def main():
            async with tw.Node() as node:
                node.spawn(leaves, dispatcher="asyncio").tell(1)
                await asyncio.Event().wait()
        """,
    "service": """
        async def leaves():
            {how}
        async def main():
            async with tw.Node() as node:
                await node.serve({{"leaves": leaves}}, name="desk")
                await node.client("desk").leaves()
        """,
    "agent": """
        class Leaving(tw.Agent):
            async def receive(self, message):
                {how}
        async def main():
            async with tw.Node() as node:
                node.agent(Leaving, id="leaving", retry=tw.Retry(3))
                node.agent(Leaving, id="sender").tell(1, to="leaving")
                await asyncio.Event().wait()
        """,
}


@pytest.mark.promise("P16.7")
@LOOPS
@pytest.mark.parametrize("handler", HANDLERS)
def test_ctrl_c_during_a_handler_on_the_main_thread_ends_the_program(handler: str, loop: str) -> None:
    code = textwrap.dedent(HANDLERS[handler].format(how="raise KeyboardInterrupt")) + "run(main())\n"
    assert program(code, loop).code == CTRL_C


@pytest.mark.promise("P16.6")
def test_sys_exit_in_a_handler_is_the_failure_of_its_message() -> None:
    ended = program(
        """
        async def leaves(message):
            sys.exit(3)
        async def main():
            async with tw.Node() as node:
                ref = node.spawn(leaves)
                ref.tell(1)
                await node.until(lambda _: node.dead_letters.list())
                print(node.dead_letters.list()[0].reason)
        run(main())
        """
    )
    assert (ended.code, ended.out) == (0, "failed\n"), ended


@pytest.mark.promise("P16.7")
def test_the_loop_of_a_node_without_asyncio_survives_sys_exit_in_a_task() -> None:
    ended = program(
        """
        tasks = []
        async def leaves():
            sys.exit(3)
        async def handler(message):
            tasks.append(asyncio.create_task(leaves()))
            await asyncio.wait(tasks)
            return message
        with tw.Node() as node:
            print(node.sync.ask(node.spawn(handler), 1))
        """
    )
    assert (ended.code, ended.out) == (0, "1\n"), ended


@pytest.mark.promise("P16.1")
def test_an_error_of_a_callback_is_for_the_exception_handler_of_the_loop() -> None:
    ended = program(
        """
        def fails(pending):
            raise LookupError("in a callback")
        async def main():
            heard = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().set_exception_handler(lambda loop, said: heard.set_result(said))
            async with tw.Node() as node:
                pending = node.spawn(answer).ask(1)
                pending.add_done_callback(fails)
                print(repr((await heard)["exception"]))
        run(main())
        """
    )
    assert (ended.code, ended.out, ended.err) == (0, "LookupError('in a callback')\n", "")


@pytest.mark.promise("P16.4")
@LOOPS
def test_work_that_is_cancelled_between_two_runs_of_the_loop_ends(loop: str) -> None:
    ended = program(
        """
        async def main():
            async with tw.Node() as node:
                asyncio.get_running_loop().call_later(0.01, interrupt)
                try:
                    await node.spawn(never).ask(1)
                finally:
                    print("finally")
        def interrupt():
            raise KeyboardInterrupt
        run(main())
        """,
        loop,
    )
    assert (ended.code, ended.out) == (CTRL_C, "finally\n"), ended
    assert "no running event loop" not in ended.err
    assert "destroyed" not in ended.err


def test_a_log_line_of_a_link_that_is_still_written_at_the_end_does_not_abort_the_program() -> None:
    ended = program("""
        import logging, sys, threading, time, types

        written = threading.Event()

        class SlowHandler(logging.Handler):
            def handle(self, record):
                written.set()
                time.sleep(0.2)
                print("written")

        class LastObject:
            def __del__(self, sleep=time.sleep):
                sleep(0.4)

        logging.getLogger("tidewire").addHandler(SlowHandler())
        with tw.Node() as node:
            node.listen("tide://127.0.0.1:0")
            node.join("tide://127.0.0.1:9", as_="site")
            written.wait()
        # The interpreter is at its end for longer than the line takes.
        sys.modules["last"] = types.ModuleType("last")
        sys.modules["last"].object = LastObject()
    """)
    assert (ended.code, ended.out) == (0, "written\n"), ended
