"""Event loops that do not run while others call: errors and logs name that and the fix."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading

import pytest
import tidewire as tw
from test_starvation import late

FIX = "run the loop as long as others call, with run_forever() or in asyncio.run()"
PATIENCE_S = 60


@pytest.mark.promise("P17.109")
def test_an_ask_of_a_coroutine_whose_loop_does_not_run_says_so() -> None:
    async def handle(message: int) -> int:
        return message

    async def spawn(node: tw.Node) -> tw.ActorRef:
        return node.spawn(handle, name="reader")

    loop = asyncio.new_event_loop()
    with tw.Node(config={"stop_timeout_ms": 1_000, "abort_timeout_ms": 50}) as node:
        reader = loop.run_until_complete(spawn(node))
        with pytest.raises(tw.AskTimeout) as raised:
            node.sync.ask(reader, 1, timeout=0.1)
        assert "the event loop of its handlers does not run" in str(raised.value)
        assert FIX in str(raised.value)
        assert raised.value.reason is not None
        # A slow coroutine on a loop that runs is told to be slow.
        asked = reader.ask(2, timeout=PATIENCE_S)

        async def answer() -> int:
            return await asked

        assert loop.run_until_complete(answer()) == 2
        loop.run_until_complete(node.stop())
    loop.close()


@pytest.mark.promise("P17.109")
@pytest.mark.parametrize("place", ["node", "hub"])
def test_a_call_of_a_node_whose_loop_does_not_run_is_logged_as_that(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Desk:
        async def answer(self) -> int:
            return 1

    urls, over = queue.Queue[str](1), threading.Event()

    def serve() -> None:
        loop = asyncio.new_event_loop()

        async def begin() -> list[tw.Node]:
            hub = tw.Node(name="hub")
            await hub.__aenter__()
            url = hub.listen("tide://127.0.0.1:0").url
            nodes = [hub]
            if place == "node":
                nodes.append(tw.Node(url, name="server"))
                await nodes[-1].__aenter__()
            await nodes[-1].serve(Desk(), name="desk")
            urls.put(url)
            return nodes

        async def end(nodes: list[tw.Node]) -> None:
            for node in reversed(nodes):
                await node.__aexit__(None, None, None)

        nodes = loop.run_until_complete(begin())
        over.wait(PATIENCE_S)
        loop.run_until_complete(end(nodes))
        loop.close()

    async def call(url: str) -> None:
        async with tw.Node(url, name="caller") as caller:
            error = await asyncio.wait_for(late(caller.client("desk").with_(timeout=0.1)), PATIENCE_S)
            assert "its event loop is blocked or does not run" in str(error)

    thread = threading.Thread(target=serve)
    with caplog.at_level(logging.WARNING, "tidewire"):
        thread.start()
        try:
            asyncio.run(call(urls.get(timeout=PATIENCE_S)))
        finally:
            over.set()
            thread.join()
    assert "calls of other nodes wait: the event loop of its handlers does not run" in caplog.text
    assert FIX in caplog.text
    assert "has been blocked for" not in caplog.text
