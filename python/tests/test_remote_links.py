"""What becomes of functions that were given when processes die and links are lost."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import tidewire as tw
from link_processes import Programs, programs
from link_programs import until
from remote_support import PATIENCE_S, counts


@pytest.fixture
def started() -> Iterator[Programs]:
    with programs() as found:
        yield found


async def answers(workshop: Any) -> None:
    """Wait until the server has joined the next hub too."""

    async def ask() -> None:
        while True:
            try:
                await workshop.label()
                return
            except (tw.NoResponders, tw.LinkLost):
                # Nobody tells this node that the other one is still on its way.
                await asyncio.sleep(0.002)

    await asyncio.wait_for(ask(), PATIENCE_S)


async def number() -> int:
    return 7


def test_a_holder_that_is_killed_holds_nothing(started: Programs) -> None:
    _, url = started.hub()
    server = started.server(url)

    async def story() -> None:
        async with tw.Node(url, name="owner") as node:
            workshop = node.client("workshop")
            await workshop.keep(number)
            assert await workshop.call_kept() == 7
            assert counts(node) == (1, 0)
            server.signal(signal.SIGKILL)
            await until(lambda: counts(node) == (0, 0))

    asyncio.run(story())


def test_a_lost_hub_takes_all_with_it_and_the_next_one_begins_anew(started: Programs) -> None:
    hub, url = started.hub(started.url("tcp"))
    started.server(url)

    async def story() -> None:
        async with tw.Node(url, name="owner") as node:
            workshop = node.client("workshop")
            await workshop.keep(number)
            assert await workshop.call_kept() == 7
            hub.signal(signal.SIGKILL)
            await asyncio.to_thread(hub.process.wait, 30)
            await asyncio.to_thread(started.hub, url)
            await until(lambda: node._link().link.joined is not None)
            await until(lambda: counts(node) == (0, 0))
            await answers(workshop)
            with pytest.raises(tw.RemoteGone):
                await workshop.call_kept()
            await workshop.keep(number)
            assert await workshop.call_kept() == 7

    asyncio.run(story())
