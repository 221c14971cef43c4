"""Links: calls of idempotent methods are made again when their link was lost, others never."""

from __future__ import annotations

import asyncio
import random
import signal
from time import perf_counter

import pytest
import tidewire as tw
from link_processes import Programs
from link_programs import until_served
from tidewire.services.resending import Resending


def lost() -> tw.LinkLost:
    error = tw.LinkLost("the link")
    error.of_link = True  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize("sync", [False, True])
def test_a_call_of_an_idempotent_method_survives_the_end_of_its_hub(started: Programs, sync: bool) -> None:
    hub, url, server = started.hub_and_server()

    async def story() -> None:
        async with tw.Node(url, name="caller") as node:
            workshop = node.client("workshop")
            call = asyncio.to_thread(workshop.sync.steady, "server") if sync else workshop.steady("server")
            steady, other = asyncio.ensure_future(call), asyncio.ensure_future(workshop.hold())
            begun = {(await asyncio.to_thread(server.line)).split()[0] for _ in range(2)}
            assert begun == {"holding", "trying"}
            since = perf_counter()
            hub.signal(signal.SIGKILL)
            with pytest.raises(tw.LinkLost) as raised:
                await other
            assert raised.value.retryable
            assert perf_counter() - since < 5, "it waited for its deadline"
            hub.ended()
            await asyncio.to_thread(started.hub, url)
            assert await steady == "server 2"

    asyncio.run(story())


def test_a_call_goes_to_another_instance_when_the_first_is_lost(started: Programs) -> None:
    _, url = started.hub()
    servers = {name: started.server(url, name) for name in ("one", "two")}

    async def story() -> None:
        async with tw.Node(url, name="caller") as node:
            await until_served(node, "workshop", 2)
            (service,) = await node.services()
            first, other = service.instances
            call = node.client("workshop").with_(policy="first").steady(first)
            call = asyncio.ensure_future(call)
            await asyncio.to_thread(servers[first].expect, "trying")
            servers[first].kill()
            assert await call == f"{other} 1"

    asyncio.run(story())


def test_nothing_is_made_again_after_the_deadline_or_where_that_is_turned_off(started: Programs) -> None:
    hub, url, server = started.hub_and_server()

    async def story() -> None:
        none = {"links": {"link_resends": 0}}
        async with tw.Node(url, name="caller") as node, tw.Node(url, name="never", config=none) as never:
            patient = asyncio.ensure_future(node.client("workshop").with_(timeout=1.0).steady("server"))
            await asyncio.to_thread(server.expect, "trying")
            hub.halt()
            other = asyncio.ensure_future(never.client("workshop").steady("server"))
            await asyncio.sleep(0)
            since = perf_counter()
            hub.kill()
            with pytest.raises(tw.LinkLost):
                await other
            assert perf_counter() - since < 1.5
            with pytest.raises(tw.LinkLost):
                await patient
            assert perf_counter() - since < 10

    asyncio.run(story())


def test_the_wait_grows_is_bounded_and_ends_with_the_deadline() -> None:
    again = Resending(until=10.0, left=3, dice=random.Random(1))
    assert again.while_nobody(tw.NoResponders("nobody"), 0.0) is None, "nothing was lost yet"
    first = again.after_loss(lost(), 0.0)
    assert first is not None
    assert 0.01 <= first <= 0.02
    waits = [again.while_nobody(lost(), 1.0) for _ in range(10)]
    assert all(wait is not None and wait <= 0.5 for wait in waits)
    assert waits[-1] is not None
    assert waits[-1] >= 0.25
    assert again.while_nobody(tw.NoResponders("nobody"), 9.9) is None, "the deadline is too near"
    assert again.after_loss(lost(), 2.0) is not None
    assert again.after_loss(lost(), 2.0) is not None
    assert again.after_loss(lost(), 2.0) is None, "as often as is allowed"


def test_what_was_not_sent_is_not_counted() -> None:
    again, unsent = Resending(until=None, left=1), lost()
    unsent.unsent = True  # type: ignore[attr-defined]
    assert again.after_loss(unsent, 0.0) is None, "a call that begins while the link is lost fails at once"
    assert again.after_loss(lost(), 0.0) is not None
    for _ in range(100):
        assert again.after_loss(unsent, 0.0) is not None
    assert again.after_loss(lost(), 0.0) is None


def test_an_error_that_a_handler_raised_is_no_loss() -> None:
    again = Resending(until=None, left=3)
    assert again.after_loss(tw.LinkLost("raised by a handler"), 0.0) is None
    assert again.after_loss(ValueError("x"), 0.0) is None
    assert again.after_loss(lost(), 0.0) is not None
    assert again.while_nobody(ValueError("x"), 0.0) is None
