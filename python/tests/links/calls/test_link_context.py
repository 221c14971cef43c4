"""Links: what comes in over a link runs in nobody's variables (`contextvars`)."""

from __future__ import annotations

import contextvars
from typing import Any

import pytest
import tidewire as tw

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


class Desk(tw.Service):
    """Starts a node in a call, and says in whose variables it is called."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.node: tw.Node | None = None

    @tw.method
    async def begin(self) -> None:
        WHO.set("the call that began the node")
        node = self.node = tw.Node(self.url, name="inner")
        await node.__aenter__()

        async def receive(message: object, ctx: tw.Context) -> Any:
            # An agent of the node, which has the id of the actor that runs this call.
            return await helper.ask(WHO.get()), None if ctx.sender is None else ctx.sender.id

        helper = node.spawn(lambda message: message)
        await node.subscribe("inner.ask", node.spawn(receive))
        await node.serve({"who": who}, name="inner")


async def who() -> str:
    return WHO.get()


@pytest.mark.promise("P13.25")
async def test_a_node_that_is_started_in_a_handler_runs_nothing_in_its_variables() -> None:
    async with tw.Node(name="hub") as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        desk = Desk(url)
        await hub.serve(desk, name="desk")
        async with tw.Node(url, name="outer") as outer:
            # An actor whose handler begins the node has the same id as one of that node.
            async def begin(message: object) -> None:
                await outer.client("desk").begin()

            await outer.spawn(begin).ask(None)
            try:
                for _ in range(3):
                    assert await outer.request("inner.ask", None) == ("nobody", None)
                    assert await hub.client("inner").who() == "nobody"
                    assert await outer.client("inner").who() == "nobody"
            finally:
                assert desk.node is not None
                await desk.node.stop()
