"""Functions that were given, when processes die and links are lost."""

from __future__ import annotations

import asyncio
import signal

import pytest
import tidewire as tw
from link_processes import Programs
from link_programs import until_served
from link_stories import joined
from remote_support import let_go


async def number() -> int:
    return 7


async def test_a_lost_hub_takes_all_with_it_and_the_next_one_begins_anew(started: Programs) -> None:
    hub, url, _ = started.hub_and_server(started.url("tcp"))
    async with tw.Node(url, name="owner") as node:
        workshop = node.client("workshop")
        await workshop.keep(number)
        assert await workshop.call_kept() == 7
        hub.signal(signal.SIGKILL)
        await asyncio.to_thread(hub.ended)
        await asyncio.to_thread(started.hub, url)
        await joined(node)
        await let_go(node)
        await until_served(node, "workshop")
        with pytest.raises(tw.RemoteGone):
            await workshop.call_kept()
        await workshop.keep(number)
        assert await workshop.call_kept() == 7
