"""Links: a caller hears whether its call is still at work, or the event loop there is blocked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
import tidewire as tw
from link_frames import CALL, FAIL, ID, Raw, called, frame
from link_processes import PATIENCE_S, Program, Programs
from tidewire.values import decode, encode

TRIES = 10
PLACES = pytest.mark.parametrize("place", ["node", "hub"])


def serving(started: Programs, place: str) -> tuple[Program, str]:
    """A process that serves: a node that has joined a hub, or a hub."""
    if place == "hub":
        return started.listening("tide://127.0.0.1:0")
    _, url = started.hub()
    return started.server(url), url


async def timeout_of(
    url: str, method: str, timeout: float, *arguments: float, is_told: Callable[[int | None], bool]
) -> tw.AskTimeout:
    """A process that gets no turn before the deadline tells nothing: then it is called again."""
    async with tw.Node(url, name="caller") as node:
        workshop = node.client("workshop").with_(timeout=timeout)
        for _ in range(TRIES):
            with pytest.raises(tw.AskTimeout) as raised:
                await getattr(workshop, method)(*arguments)
            if is_told(raised.value.blocked_ms):
                break
        return raised.value


@pytest.mark.promise("P13.22")
@PLACES
def test_a_slow_handler_is_said_to_be_at_work(started: Programs, place: str) -> None:
    _, url = serving(started, place)
    for method, arguments in (("hold", ()), ("work", (0.9,))):
        error = asyncio.run(timeout_of(url, method, 0.6, *arguments, is_told=lambda blocked_ms: blocked_ms == 0))
        assert error.blocked_ms == 0
        # Where the clock of the other side is first, that one answers.
        assert "its handler was at work" in str(error) or "its handler was running, and is cancelled" in str(error)


@pytest.mark.promise("P13.22", "P13.23")
@PLACES
def test_a_blocked_event_loop_is_reported_to_the_caller_and_in_the_log(started: Programs, place: str) -> None:
    server, url = serving(started, place)
    error = asyncio.run(timeout_of(url, "block", 1.0, 2.0, is_told=bool))
    assert error.blocked_ms is not None
    assert 0 < error.blocked_ms < 10_000
    assert "the node that answers has begun no call for" in str(error)
    server.expect_log("the event loop has been blocked for", "look for a handler that does not await")


@pytest.mark.promise("P13.21", "P13.22")
async def test_the_answer_of_a_callee_whose_clock_is_first_says_that_its_loop_goes_round() -> None:
    begun, gate = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        gate.wait(PATIENCE_S)

    def ask(url: str) -> BaseException:
        # Like a caller whose own clock is late.
        raw = Raw.joined(url)
        raw.send(frame(CALL, called(b"svc.desk.work", deadline_ms=100), encode(()), id=ID))
        while (found := raw.receive()) is not None and found[0] != FAIL:
            pass
        raw.close()
        assert found is not None
        error = decode(found[3])
        assert isinstance(error, BaseException)
        return error

    async with tw.Node(name="hub") as hub:
        await hub.serve({"work": work}, name="desk", concurrency=1)
        url = hub.listen("tide://127.0.0.1:0").url
        for state in ("its handler was running", "its handler had not begun"):
            error = await asyncio.to_thread(ask, url)
            assert isinstance(error, tw.AskTimeout)
            assert state in str(error)
            assert error.blocked_ms == 0
        assert begun.is_set()
        gate.set()


async def test_of_an_ask_within_a_process_nothing_is_known() -> None:
    async with tw.Node() as node:

        async def never(_: object) -> None:
            await asyncio.Event().wait()

        actor = node.spawn(never)
        with pytest.raises(tw.AskTimeout) as raised:
            await actor.ask(1, timeout=0.01)
        assert raised.value.blocked_ms is None
        await actor.stop(drain=False, timeout=0.0)
