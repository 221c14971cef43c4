"""Links: a caller hears whether its call is still at work, or the event loop there is blocked."""

from __future__ import annotations

import asyncio

import pytest
import tidewire as tw
from link_processes import Program, Programs

PLACES = pytest.mark.parametrize("place", ["node", "hub"])


def serving(started: Programs, place: str) -> tuple[Program, str]:
    """A process that serves: a node that has joined a hub, or a hub."""
    if place == "hub":
        return started.listening("tide://127.0.0.1:0")
    _, url = started.hub()
    return started.server(url), url


async def timeout_of(url: str, method: str, timeout: float, *arguments: float) -> tw.AskTimeout:
    async with tw.Node(url, name="caller") as node:
        workshop = node.client("workshop").with_(timeout=timeout)
        with pytest.raises(tw.AskTimeout) as raised:
            await getattr(workshop, method)(*arguments)
        return raised.value


@PLACES
def test_a_slow_handler_is_said_to_be_at_work(started: Programs, place: str) -> None:
    _, url = serving(started, place)
    for method, arguments in (("hold", ()), ("work", (0.9,))):
        error = asyncio.run(timeout_of(url, method, 0.6, *arguments))
        heard = error.blocked_ms == 0 and "no answer came in time: its handler was at work" in str(error)
        # Where the clock of the other side is first, that one answers.
        assert heard or "its handler was at it, and is cancelled" in str(error), str(error)


@PLACES
def test_a_blocked_event_loop_is_reported_to_the_caller_and_in_the_log(started: Programs, place: str) -> None:
    server, url = serving(started, place)
    error = asyncio.run(timeout_of(url, "block", 1.0, 2.0))
    assert error.blocked_ms is not None
    assert 250 <= error.blocked_ms <= 2_000
    assert "the event loop of the node that answers has been blocked for" in str(error)
    server.expect_log("the event loop has been blocked for", "look for a handler that does not await")


def test_of_an_ask_within_a_process_nothing_is_known() -> None:
    async def story() -> None:
        async with tw.Node() as node:

            async def never(_: object) -> None:
                await asyncio.Event().wait()

            actor = node.spawn(never)
            with pytest.raises(tw.AskTimeout) as raised:
                await actor.ask(1, timeout=0.01)
            assert raised.value.blocked_ms is None
            await actor.stop(drain=False, timeout=0.0)

    asyncio.run(story())
