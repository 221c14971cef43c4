"""Operations under way in asyncio: tasks, groups, waits, and forgetting to await them."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import tidewire as tw
from program_support import LOOPS, program


async def answer(message: object) -> object:
    await asyncio.sleep(0)
    return message


async def never(message: object) -> None:
    await asyncio.Event().wait()


def plain(message: object) -> object:
    return message


Make = Callable[[], Any]
MAKERS = [
    "ask",
    "send",
    "send that waits",
    "request",
    "agent",
    "agent with retries",
    "call",
    "call over a link",
    "submit",
    "stop",
    "until",
    "node.stop",
]
NOT_BEGUN = {"agent with retries", "call", "call over a link", "until", "node.stop"}
"""These are coroutines and nothing else: ``asyncio.wait`` refuses them."""


def with_maker(what: str, story: Callable[[Make], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with tw.Node() as node, tw.Node() as other:
            ref = node.spawn(answer)
            await node.serve({"answer": answer}, name="desk")
            node.subscribe("asked", ref)
            node.agent(answer, id="asked")
            asker, retrying = node.agent(answer, id="asker"), node.agent(answer, id="retrying", retry=tw.Retry(2))

            def waits() -> Any:
                full = node.spawn(answer, mailbox=1)
                while full.try_send(1):
                    pass
                return full.send(1)

            url = node.listen("tide://127.0.0.1:0").url
            async with node.pool(plain, workers=1) as pool, tw.Node(url) as far:
                await far.until(lambda now: now["links"]["services"].get("desk") == 1, timeout=20)
                makers: dict[str, Make] = {
                    "ask": lambda: ref.ask(1),
                    "send": lambda: ref.send(1),
                    "send that waits": waits,
                    "request": lambda: node.request("asked", 1),
                    "agent": lambda: asker.request(1, to="asked"),
                    "agent with retries": lambda: retrying.request(1, to="asked"),
                    "call": lambda: node.client("desk").answer(1),
                    "call over a link": lambda: far.client("desk").answer(1),
                    "submit": lambda: pool.submit(1),
                    "stop": lambda: node.spawn(answer).stop(),
                    "until": lambda: node.until(lambda _: True),
                    "node.stop": lambda: other.stop(),
                }
                await asyncio.wait_for(story(makers[what]), 20)

    asyncio.run(main())


@pytest.mark.parametrize("what", MAKERS)
def test_asyncio_takes_it_in_every_way(what: str) -> None:
    async def story(make: Make) -> None:
        direct = await make()
        task = asyncio.create_task(make(), name="mine")
        assert "mine" in repr(task)
        await asyncio.sleep(0)
        assert "mine" in repr(task)
        assert type(await task) is type(direct)
        assert "mine" in repr(task)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(make()) for _ in range(3)]
        assert all(task.done() for task in tasks)
        await asyncio.gather(make(), make())
        await asyncio.wait_for(make(), 5)
        await asyncio.shield(make())
        await asyncio.ensure_future(make())
        assert len([await one for one in asyncio.as_completed([make(), make()])]) == 2
        done, _ = await asyncio.wait([asyncio.ensure_future(make())])
        assert len(done) == 1

    with_maker(what, story)


async def test_a_future_raises_in_its_waiters_and_goes_on_without_them() -> None:
    async def fails(message: object) -> None:
        await asyncio.sleep(0)
        raise LookupError(message)

    async with tw.Node() as node:
        with pytest.raises(LookupError):
            await asyncio.ensure_future(node.spawn(fails).ask(1))
        asking = asyncio.ensure_future(node.spawn(answer).ask(2))

        async def waits() -> object:
            return await asking

        waiting = waits()
        waiting.send(None)
        waiting.close()
        assert await asking == 2


@pytest.mark.parametrize("what", [what for what in MAKERS if what not in NOT_BEGUN])
def test_wait_takes_it_as_it_is(what: str) -> None:
    async def story(make: Make) -> None:
        # After a task was made of one: asyncio remembers what it takes for coroutines.
        await asyncio.create_task(make())
        made = make()
        done, pending = await asyncio.wait({made})
        assert (done, pending) == ({made}, set())
        done, _ = await asyncio.wait([make(), make()])
        for one in done:
            one.result()

    with_maker(what, story)


@pytest.mark.parametrize("what", ["call", "call over a link"])
def test_wait_refuses_a_call(what: str) -> None:
    async def story(make: Make) -> None:
        made = make()
        with pytest.raises(TypeError, match="use tasks explicitly"):
            await asyncio.wait({made})
        await made

    with_maker(what, story)


@pytest.mark.parametrize("what", ["ask", "send that waits", "submit"])
async def test_a_task_of_it_can_be_cancelled(what: str) -> None:
    async with tw.Node() as node:
        busy = node.spawn(never, mailbox=1)
        while busy.try_send(1):
            await asyncio.sleep(0)
        gate = threading.Event()
        async with node.pool(lambda _: gate.wait(20), workers=1) as pool:
            makers: dict[str, Make] = {
                "ask": lambda: node.spawn(never).ask(1),
                "send that waits": lambda: busy.send(1),
                "submit": lambda: pool.submit(1),
            }
            task = asyncio.create_task(makers[what]())
            await asyncio.sleep(0.01)
            task.cancel("why")
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()
            never_begun = asyncio.create_task(makers[what]())
            never_begun.cancel()
            with pytest.raises(asyncio.CancelledError):
                await never_begun
            gate.set()
        await node.stop(timeout=0)


@pytest.mark.promise("P16.21")
@pytest.mark.parametrize("what", ["ask", "send that waits", "request", "agent", "agent with retries"])
def test_a_forgotten_await_is_reported(what: str) -> None:
    async def story(make: Make) -> None:
        with pytest.warns(RuntimeWarning, match="was never awaited"):
            make()

    with_maker(what, story)


@pytest.mark.promise("P16.21")
def test_nobody_is_told_without_reason() -> None:
    async def main() -> None:
        async with tw.Node() as node:
            ref = node.spawn(answer)
            await ref.ask(1)
            ref.ask(1).cancel()
            ref.ask(1).close()
            await ref.send(1)
            ref.send(1)
            ref.stop()
            asking = ref.ask(1) if ref.alive else None
            if asking is not None:
                asking.add_done_callback(lambda _: None)
            del asking
            kept = node.spawn(answer)
            future = asyncio.ensure_future(kept.ask(1))
            await asyncio.wait({kept.ask(1), future})
            node.schedule(3600, kept, 1).outcome()
        gc.collect()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())


def test_in_development_mode_it_is_told_where_it_was_made() -> None:
    ended = program(
        """
        async def forgetful(ref, client):
            ref.ask(1)
            client.answer(1)
        async def main():
            async with tw.Node() as node:
                await node.serve({"answer": answer}, name="desk")
                await forgetful(node.spawn(answer), node.client("desk"))
        run(main())
        """,
        "asyncio",
        (),
        "-X",
        "dev",
    )
    assert ended.code == 0, ended
    for title in ("ask", "desk.answer"):
        assert f"RuntimeWarning: {title} was never awaited\nIt was made at (most recent call last)\n" in ended.err, (
            ended
        )
    assert ended.err.count("in forgetful") == 2


# Nodes that were not started, and more than one loop


@pytest.mark.promise("P16.24")
def test_an_ask_of_a_node_that_was_not_started_says_so() -> None:
    node = tw.Node()
    ref = node.spawn(plain)
    with pytest.raises(tw.InvalidArgument, match=r"#1.* its node was not started: enter its block, or call start\(\)"):
        ref.ask(1)
    ref.tell(1)
    assert ref.statistics()["depth"] == 1
    with node:
        assert node.sync.ask(ref, 2) == 2


@pytest.mark.promise("P16.25")
@LOOPS
def test_a_node_goes_on_when_its_event_loop_was_closed(loop: str) -> None:
    ended = program(
        """
        node = tw.Node()
        node.start()
        async def first():
            ref = node.spawn(answer, name="actor")
            node.subscribe("asked", ref)
            node.agent(answer, id="asked")
            await node.serve({"answer": answer, "items": items}, name="desk")
            pools.append(node.pool(plain, workers=1))
            assert await ref.ask(1) == 1
            assert await node.client("desk").answer(1) == 1
        async def again(number):
            asker = node.agent(answer, id=f"asker-{number}")
            desk = node.client("desk")
            waits = {
                "ask": lambda: node.lookup("actor").ask(1, timeout=5),
                "request": lambda: node.request("asked", 1, timeout=5),
                "agent": lambda: asker.request(1, to="asked", timeout=5),
                "call": lambda: desk.with_(timeout=5).answer(1),
                "submit": lambda: asyncio.wait_for(pools[0].submit(1), 5),
            }
            for what, wait in waits.items():
                assert await wait() == 1, what
            assert [one async for one in desk.items()] == [0, 1, 2]
        pools = []
        run(first())
        run(again(1))
        thread = threading.Thread(target=lambda: run(again(2)))
        thread.start()
        thread.join()
        print("fine")
        run(asyncio.wait_for(node.stop(25), 10))
        """,
        loop,
    )
    assert (ended.code, ended.out) == (0, "fine\n"), ended


@pytest.mark.promise("P16.5")
def test_a_loop_refuses_the_wait_of_another_loop() -> None:
    async def ask(ref: tw.ActorRef) -> Any:
        pending = ref.ask(1, timeout=None)
        pending.add_done_callback(lambda _: None)
        return pending

    with tw.Node() as node:
        gate = threading.Event()
        ref = node.spawn(lambda _: gate.wait(20))
        loop = asyncio.new_event_loop()
        pending = loop.run_until_complete(ask(ref))

        async def late() -> None:
            with pytest.raises(RuntimeError, match="attached to a different loop"):
                await pending

        asyncio.run(late())
        gate.set()
        loop.close()


async def test_to_block_the_loop_that_would_answer_is_refused_and_it_can_still_be_awaited() -> None:
    async with tw.Node() as node:
        ref = node.spawn(answer)

        async def asks(message: int) -> object:
            asked = ref.ask(message)
            with pytest.raises(tw.InvalidArgument, match=r"wait\(\) would block this thread's event loop: await it"):
                asked.wait()
            return await asked

        assert await node.spawn(asks).ask(7) == 7
        assert await asks(8) == 8
        # A plain handler blocks its own thread.
        assert await node.spawn(lambda message: ref.ask(message).wait()).ask(9) == 9


@LOOPS
def test_each_loop_of_a_thread_has_its_own_asks_even_one_that_runs_inside_of_another(loop: str) -> None:
    """Notebooks run loops inside of loops, and programs one after another: an ask ends on the loop
    that awaits it.
    """
    ended = program(
        """
        from LOOP import new_event_loop as new_loop

        async def ask(number):
            return await echo.ask(number)

        async def outer():
            assert await ask(1) == 1
            running = asyncio.get_running_loop()
            inner = new_loop()
            asyncio._set_running_loop(None)
            try:
                assert inner.run_until_complete(ask(2)) == 2
            finally:
                inner.close()
                asyncio._set_running_loop(running)
            assert await ask(3) == 3

        with tw.Node() as node:
            echo = node.spawn(lambda number: number)
            first, second = new_loop(), new_loop()
            for loop in (first, second, first, second, first):
                assert loop.run_until_complete(ask(4)) == 4
                loop.run_until_complete(outer())
            first.close()
            assert second.run_until_complete(ask(5)) == 5
            second.close()
        print("all answered")
        """.replace("LOOP", loop),
        loop,
    )
    assert (ended.code, ended.out) == (0, "all answered\n"), ended.err
