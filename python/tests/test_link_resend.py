"""Links: calls of idempotent methods are made again when their link was lost, others never."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
from time import perf_counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import tidewire as tw
from link_processes import Programs
from link_programs import until_served
from tidewire.links import announcements
from tidewire.services.attempts import Attempts
from tidewire.services.calls import Call
from tidewire.services.outbound_call import OutboundCall
from tidewire.services.registry import Group, Registry, registry_of

if TYPE_CHECKING:
    from tidewire.services.instance_transport import InstanceTransport


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
            assert perf_counter() - since < 10, "it waited for its deadline"
            hub.ended()
            await asyncio.to_thread(started.hub, url)
            assert await steady == "server 2"

    asyncio.run(story())


@pytest.mark.promise("P13.16")
@pytest.mark.parametrize("kind", ["awaited", "blocking", "unknown"])
def test_a_call_is_made_again_as_soon_as_the_link_is_back_and_not_at_the_end_of_a_wait(
    started: Programs, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def pause(registry: Registry, wait_s: float, seen: int) -> Any:
        return registry.node._engine.changed(registry.news, seen, 50_000 * wait_s)

    monkeypatch.setattr(Registry, "pause", pause)
    hub, url = started.hub()
    server = started.server(url)

    async def story() -> None:
        async with tw.Node(url, name="caller") as node:
            workshop = node.client("workshop").with_(timeout=80_000.0)
            sending = OutboundCall(registry_of(node), "workshop", "steady", ("server",), {}, workshop._options)
            made: Any = {
                "awaited": lambda: workshop.steady("server"),
                "blocking": lambda: asyncio.to_thread(workshop.sync.steady, "server"),
                "unknown": lambda: Call(sending),
            }[kind]()
            steady = asyncio.ensure_future(made)
            await asyncio.to_thread(server.expect, "trying")
            hub.kill()
            await asyncio.to_thread(started.hub, url)
            assert await steady == "server 2"

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a_call_that_was_refused_goes_on_with_what_is_left_of_its_time(started: Programs) -> None:
    _, url = started.hub()
    started.server(url)
    node_stopped, refused = 13, list[float]()

    async def story() -> None:
        async with tw.Node(url, name="refusing") as refusing, tw.Node(url, name="caller") as caller:
            (info,) = await caller.services()
            came: asyncio.Queue[Any] = asyncio.Queue(1_000)
            says = announcements.described(dataclasses.replace(info, instances=("refusing",), details=()))
            await refusing._link().subscribe("svc.workshop.refusing.*", "", says, came.put_nowait)
            await until_served(caller, "workshop", 2)
            workshop = caller.client("workshop").with_(timeout=50.0)
            # One of the two gets each call in turn.
            while not refused:
                calling = asyncio.create_task(workshop.caller())
                getting = asyncio.create_task(came.get())
                await asyncio.wait({calling, getting}, return_when=asyncio.FIRST_COMPLETED)
                if getting.done():
                    since = perf_counter()
                    # The sleep uses up the time of the call.
                    await asyncio.sleep(0.3)
                    refused.append(perf_counter() - since)
                    getting.result().refuse(node_stopped, "stopping")
                getting.cancel()
                _, _, left = await calling
            assert left < 50.001 - refused[0]

    asyncio.run(asyncio.wait_for(story(), 60))


@pytest.mark.promise("P13.16")
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
            patient = asyncio.ensure_future(node.client("workshop").with_(timeout=4.0).steady("server"))
            await asyncio.to_thread(server.expect, "trying")
            hub.halt()
            other = asyncio.ensure_future(never.client("workshop").steady("server"))
            await asyncio.sleep(0)
            since = perf_counter()
            hub.kill()
            with pytest.raises(tw.LinkLost):
                await other
            assert perf_counter() - since < 10
            with pytest.raises(tw.LinkLost):
                await patient
            assert perf_counter() - since < 10

    asyncio.run(story())


class Noted(Group):
    """Calls that were noted at an instance."""

    def __init__(self) -> None:
        super().__init__("room")
        self.noted: list[bool | None] = []

    def ended(self, instance: str, took_s: float | None, failed: bool = False) -> None:
        self.noted.append(None if took_s is None else failed)


def goes_on(again: Attempts, error: BaseException, idempotent: bool = True, group: Group | None = None) -> bool:
    """Tell of an attempt at the instance "one" that has failed."""
    port = cast("InstanceTransport", SimpleNamespace(instance="one"))
    return again.goes_on(group or Noted(), port, perf_counter(), error, idempotent)


def unsent() -> tw.LinkLost:
    error = lost()
    error.unsent = True  # type: ignore[attr-defined]
    return error


def test_what_was_not_sent_is_not_counted() -> None:
    again = Attempts(until=None, left=1)
    assert goes_on(again, unsent(), idempotent=False), "another instance, of the own process perhaps, can have it"
    with pytest.raises(tw.LinkLost):
        again.wait_s(unsent())
    assert goes_on(again, lost())
    for _ in range(100):
        assert goes_on(again, unsent())
        assert again.wait_s(unsent()) <= 0.5
    assert not goes_on(again, lost())
    assert not goes_on(Attempts(until=None, left=1), lost(), idempotent=False)


def test_an_error_that_a_handler_raised_is_no_loss() -> None:
    again, group = Attempts(until=None, left=3), Noted()
    for error in (tw.LinkLost("raised by a handler"), tw.NodeStopped("the same"), ValueError("x")):
        assert not goes_on(again, error, group=group)
    assert not goes_on(again, asyncio.CancelledError(), group=group)
    assert goes_on(again, tw.NoResponders("not taken"), group=group)
    assert goes_on(again, lost(), group=group)
    assert group.noted == [True, True, True, None, None, True]
    with pytest.raises(tw.LinkLost, match="the link") as raised:
        again.wait_s(ValueError("x"))
    assert isinstance(raised.value.__cause__, ValueError)


@pytest.mark.parametrize("sync", [False, True])
def test_while_the_link_is_lost_a_call_goes_to_an_instance_of_its_own_process(started: Programs, sync: bool) -> None:
    hub, url, _ = started.hub_and_server()

    async def story() -> None:
        async with tw.Node(url, name="caller") as node, tw.Node(url, name="other") as other:
            await other.serve({"where": lambda: "there"}, name="places", instance="there")
            await until_served(node, "places", 1)
            node.serve({"where": lambda: "here"}, name="places", instance="here")
            places = node.client("places").with_(policy="first")
            assert await places.where() == "there"
            hub.kill()
            await node.until(lambda now: now["links"]["hub"] is None, 30.0)
            for _ in range(5):
                assert await (asyncio.to_thread(places.sync.where) if sync else places.where()) == "here"

    asyncio.run(asyncio.wait_for(story(), 60))
