"""Links: what happens to calls when a process dies, hangs, leaves or comes back."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any

import pytest
import tidewire as tw
from link_processes import Program, Programs
from link_programs import until_served
from link_stories import SOON_S, fails, play, said

KINDS = pytest.mark.parametrize("kind", ["tcp", "unix"])


@KINDS
async def test_a_callee_that_is_killed_fails_its_calls_at_once(started: Programs, kind: str) -> None:
    _, url, server = started.hub_and_server(started.url(kind))
    async with tw.Node(url, name="caller") as node:
        workshop = node.client("workshop")
        calls = [asyncio.ensure_future(workshop.hold()) for _ in range(10)]
        for _ in calls:
            await said(server, "holding")
        server.signal(signal.SIGKILL)
        for call in calls:
            assert isinstance(await fails(call, tw.LinkLost), tw.LinkLost)
        await until_served(node, "workshop", 0)
        await fails(workshop.label(), tw.NoResponders)


def two_and_all(
    started: Programs, story: Callable[[list[Program], asyncio.Future[Any]], Coroutine[Any, Any, None]]
) -> None:
    """Two servers hold a call that went to both."""
    _, url = started.hub()
    servers = [started.server(url, name) for name in ("one", "two")]

    async def main() -> None:
        async with tw.Node(url, name="caller") as node:
            await until_served(node, "workshop", 2)
            call = asyncio.ensure_future(node.client("workshop").with_(policy="all").hold())
            for server in servers:
                await said(server, "holding")
            await story(servers, call)

    play(main)


def test_of_all_that_are_called_the_one_that_is_killed_fails_alone(started: Programs) -> None:
    async def story(servers: list[Program], call: asyncio.Future[Any]) -> None:
        servers[1].kill()
        servers[0].signal(signal.SIGUSR1)
        answers = {answer.instance: answer for answer in await call}
        assert answers["one"].result() == "one"
        assert isinstance(answers["two"].error, tw.LinkLost)
        assert len(answers) == 2

    two_and_all(started, story)


def test_a_call_to_all_that_is_cancelled_cancels_all_handlers(started: Programs) -> None:
    async def story(servers: list[Program], call: asyncio.Future[Any]) -> None:
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        for server in servers:
            await said(server, "cancelled")

    two_and_all(started, story)


async def test_a_callee_that_hangs_costs_its_callers_their_deadline_and_no_more(started: Programs) -> None:
    _, url, server = started.hub_and_server()
    async with tw.Node(url, name="caller") as node:
        workshop = node.client("workshop")
        assert await workshop.label() == "server"
        server.halt()
        since = perf_counter()
        with pytest.raises(tw.AskTimeout, match="workshop") as raised:
            await workshop.with_(timeout=0.3).label()
        assert raised.value.blocked_ms is None, "nothing was heard of it"
        assert 0.29 <= perf_counter() - since < 0.3 + SOON_S
        server.signal(signal.SIGCONT)
        assert await workshop.label() == "server"


async def test_a_callee_that_is_silent_for_two_heartbeats_is_given_up(started: Programs) -> None:
    hub, url, server = started.hub_and_server("tide://127.0.0.1:0", "--set", "links.link_heartbeat_ms=500")
    async with tw.Node(url, name="caller") as node:
        workshop = node.client("workshop")
        assert await workshop.label() == "server"
        server.halt()
        error = await fails(workshop.label(), tw.LinkLost, 1.0 + SOON_S)
        assert error.__class__ is tw.LinkLost
        await asyncio.to_thread(hub.expect_log, "server", "link_heartbeat_ms=500")
        await until_served(node, "workshop", 0)
        server.signal(signal.SIGCONT)
        # It finds out that it was given up, and joins again.
        await until_served(node, "workshop", 1)
        assert await workshop.label() == "server"
