"""Agents of other nodes are found, sent to and asked as those of one's own."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass

import pytest
import tidewire as tw
from link_processes import PATIENCE_S, Programs
from link_stories import known, lost, said, three
from tidewire.testing import Clock

TIMEOUT_S = 20
PARENT = f"00-{7:032x}-{9:016x}-01"


@dataclass
class Order:
    symbol: str
    qty: int


class Pricing(tw.Agent):
    type = "pricing"
    capabilities = ("quote",)

    @tw.handle
    async def on_order(self, order: Order) -> float:
        return order.qty * 2.5


async def test_an_agent_is_found_by_what_it_can_do_wherever_it_lives() -> None:
    async with three() as (hub, a, b):
        a.agent(Pricing(), id="pricing 1.x")
        desk = b.agent(lambda payload: None, id="desk")
        for node in (b, hub):
            await known(node, "pricing 1.x")
        for where in ({"capability": "quote"}, {"type": "pricing"}, {"to": "pricing 1.x"}):
            assert await desk.request(Order("X", 4), timeout=TIMEOUT_S, **where) == 10.0
        (found,) = b.agents.list(type="pricing")
        assert (found.id, found.status, found.capabilities) == ("pricing 1.x", "remote", {"quote"})
        assert repr(found) == "<RemoteAgent 'pricing 1.x' at 'a'>"
        # Its end is news too.
        await a.agents.find("pricing 1.x").stop()
        await b.until(lambda _: not b.agents.list(type="pricing"), PATIENCE_S)
        with pytest.raises(tw.NoSuchTarget, match="capability='quote'"):
            await desk.request(Order("X", 4), capability="quote")


async def test_agents_that_were_there_before_the_link_are_found_too() -> None:
    async with tw.Node(name="hub") as hub:
        hub.agent(Pricing(), id="early")
        url = hub.listen("tide://127.0.0.1:0").url
        async with tw.Node(url, name="late") as late:
            desk = late.agent(lambda payload: None, id="desk")
            assert await desk.request(Order("X", 2), to="early", timeout=TIMEOUT_S) == 5.0


async def test_a_message_arrives_with_everything_that_belongs_to_it() -> None:
    async with three() as (_, a, b):
        came: asyncio.Queue[tuple[object, tw.Message]] = asyncio.Queue(1_000)

        async def audit(payload: object, message: tw.Message) -> None:
            await came.put((payload, message))

        a.agent(audit, id="audit")
        desk = b.agent(lambda payload: None, id="desk")
        await known(b, "audit")
        await desk.send(Order("X", 1), to="audit", priority="high", headers={"h": "v"}, correlation_id="c", ttl=60)
        payload, message = await came.get()
        assert payload == Order("X", 1)
        assert (message.sender, message.kind, message.priority) == ("desk", "event", "high")
        assert (message.headers, message.correlation_id, message.recipients) == ({"h": "v"}, "c", ("audit",))
        assert message.ttl is not None
        assert 0 < message.ttl <= 60
        await desk.share({"shared": 1}, to="audit")
        desk.tell("told", to="audit")
        assert (await came.get())[0] == "told"
        assert a.agents.find("audit").context == {"shared": 1}
        assert desk.broadcast("all") == 1
        assert (await came.get())[1].kind == "broadcast"


async def test_receipts_and_errors_come_back() -> None:
    async with three() as (_, a, b):
        a.agent(lambda payload: 1 / payload, id="divider")
        desk = b.agent(lambda payload: None, id="desk")
        await known(b, "divider")
        receipt = await desk.send(4, to="divider", receipt=True)
        assert await receipt.wait(TIMEOUT_S) == "handled"
        receipt = await desk.send(0, to="divider", receipt=True)
        assert await receipt.wait(TIMEOUT_S) == "failed"
        assert "division by zero" in str(receipt.error)
        with pytest.raises(ZeroDivisionError) as raised:
            await desk.request(0, to="divider", timeout=TIMEOUT_S)
        assert isinstance(raised.value.__cause__, tw.RemoteError)


async def test_a_payload_that_cannot_be_sent_fails_at_the_sender() -> None:
    async with three() as (_, a, b):
        a.agent(Pricing(), id="pricing")
        desk = b.agent(lambda payload: None, id="desk")
        await known(b, "pricing")
        for send in (desk.send, desk.request, desk.tell):
            with pytest.raises(tw.InvalidArgument, match=r"lambda|function"):
                send(lambda: None, to="pricing")


@pytest.mark.promise("P11.27")
async def test_a_request_ends_with_the_call_that_it_is_made_in_and_carries_its_trace(tidewire_clock: Clock) -> None:
    async with three() as (_, a, b):
        asked: asyncio.Queue[tw.Message] = asyncio.Queue(10)
        over = asyncio.Event()

        async def hang(payload: object, message: tw.Message) -> None:
            await asked.put(message)
            await over.wait()

        a.agent(hang, id="hangs")
        desk = b.agent(print, id="desk")
        requests: list[asyncio.Future[object]] = []

        class Reception(tw.Service):
            @tw.method
            async def enter(self) -> None:
                # The request outlives its call, whose deadline still holds.
                requests.append(asyncio.ensure_future(desk.request("x", to="hangs", timeout=None)))

        await known(b, "hangs")
        await b.serve(Reception())
        await b.client(Reception).with_(timeout=600.0, headers={"traceparent": PARENT}).enter()
        assert (await asked.get()).headers["traceparent"] == PARENT
        with pytest.raises(tw.AskTimeout):
            await requests[0]
        assert 590 < tidewire_clock.elapsed < 610
        over.set()


@pytest.mark.promise("P11.28")
async def test_a_request_with_retries_outlives_its_hub_and_is_refused_by_a_full_mailbox(started: Programs) -> None:
    hub, url = started.hub()
    async with tw.Node(url, name="a") as a, tw.Node(url, name="b") as b:
        attempts: list[int] = []
        began, going = threading.Event(), threading.Event()

        def double(number: int) -> int:
            attempts.append(number)
            if len(attempts) == 1:
                raise OSError("not yet")
            began.set()
            going.wait(TIMEOUT_S)
            return 2 * number

        a.agent(double, id="double", mailbox=tw.Mailbox(1, "fail"))
        desk = b.agent(print, id="desk")
        await known(b, "double")
        hub.kill()
        await lost(b)
        again = tw.Retry(1_000, backoff_ms=20, backoff_max_ms=100)
        asked = asyncio.ensure_future(desk.request(21, to="double", retry=again))
        started.hub(url)
        assert await asyncio.to_thread(began.wait, TIMEOUT_S) and len(attempts) == 2
        await desk.send(1, to="double")
        with pytest.raises(tw.MailboxFull):
            await desk.request(2, to="double", timeout=TIMEOUT_S)
        going.set()
        assert await asyncio.wait_for(asked, PATIENCE_S) == 42


PROGRAM = """
import asyncio, sys
import tidewire as tw

async def main():
    async with tw.Node(sys.argv[1], name="other") as node:
        async def wait(payload):
            print("asked", flush=True)
            await asyncio.Event().wait()
        node.agent(wait, id="waits")
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.promise("P11.21")
async def test_with_an_agent_that_is_killed_its_requests_fail_and_messages_with_a_receipt_are_dead_letters(
    started: Programs,
) -> None:
    async with tw.Node(name="hub") as hub:
        desk = hub.agent(lambda payload: None, id="desk")
        other = started.run("-c", PROGRAM, hub.listen("tide://127.0.0.1:0").url)
        await said(other, "ready")
        await known(hub, "waits")
        receipts = [await desk.send(n, to="waits", receipt=True) for n in range(3)]
        asked = asyncio.ensure_future(desk.request("x", to="waits", timeout=None))
        await said(other, "asked")
        other.kill()
        with pytest.raises(tw.LinkLost):
            await asyncio.wait_for(asked, TIMEOUT_S)
        assert [await receipt.wait(TIMEOUT_S) for receipt in receipts] == ["failed"] * 3
        # The hub may know of the agent's end before its calls have failed.
        await hub.until(lambda _: len(hub.dead_letters.list(name="waits")) == 3, PATIENCE_S)
        await hub.until(lambda _: "waits" not in hub.agents, PATIENCE_S)
        letters = hub.dead_letters.list(name="waits")
        assert [(letter.reason, letter.message.payload) for letter in letters] == [("stopped", n) for n in range(3)]
        assert all(letter.error is not None and letter.error.startswith("LinkLost: ") for letter in letters)
        with pytest.raises(tw.TidewireError):
            hub.dead_letters.requeue(letters[0])


async def test_agents_of_a_hub_that_is_gone_are_not_listed(started: Programs) -> None:
    hub, url = started.hub()
    async with tw.Node(url, name="here") as here, tw.Node(url, name="there") as there:
        there.agent(print, id="remote", type="agent.far")
        await here.until(lambda _: here.agents.get("remote") is not None, 30)
        assert [agent.id for agent in here.agents.list(type="agent.far")] == ["remote"]
        hub.kill()
        await here.until(lambda now: now["links"]["hub"] is None, 30)
        assert here.agents.list() == []
        found = here.agents.get("remote")
        assert found is not None and found.status == "lost"
