"""Every end of a message is told: receipts of messages that no handler saw, retries, and sends of
which one is refused.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import Any

import pytest
import tidewire as tw
from agent_support import PATIENCE, Gate, nothing
from tidewire.testing import Clock


def receipts() -> int:
    """How many receipts there are in this process."""
    gc.collect()
    return sum(isinstance(one, tw.Receipt) for one in gc.get_objects())


@pytest.mark.promise("P11.20")
@pytest.mark.parametrize("overflow", ["drop_new", "drop_old"])
def test_the_receipt_of_a_message_that_a_full_mailbox_drops_ends(node: tw.Node, overflow: Any) -> None:
    gate = Gate(node, mailbox=tw.Mailbox(1, overflow))
    sender = node.agent(nothing, id="sender")
    before = receipts()
    gate.hold(sender, *(["first"] if overflow == "drop_new" else []))
    receipt = sender.sync.send("x", to="gate", receipt=True)
    if overflow == "drop_new":
        assert receipt.state == "failed", "at once"
        assert sender.sync.send("y", to="gate") is False
    else:
        assert sender.sync.send("newer", to="gate") is True
    assert receipt.wait_blocking(PATIENCE) == "failed"
    assert receipt.error is None
    node.dead_letters.drop()
    del receipt
    assert receipts() == before
    gate.open.set()


@pytest.mark.promise("P11.20")
async def test_a_receipt_ends_with_an_agent_that_is_abandoned(node: tw.Node) -> None:
    gate = Gate(node)
    sender = node.agent(nothing, id="sender")
    held = await sender.send("hold", to="gate", receipt=True)
    assert await asyncio.to_thread(gate.inside.wait, PATIENCE)
    behind = await sender.send("x", to="gate", receipt=True)
    await gate.agent.ref.stop(timeout=0.01)
    assert [await receipt.wait(PATIENCE) for receipt in (held, behind)] == ["failed", "failed"]
    assert [agent.id for agent in node.agents] == ["sender"]
    gate.open.set()


def test_a_receipt_that_is_awaited_outlives_its_node() -> None:
    gates = []

    async def main() -> Any:
        async with tw.Node() as node:
            gate = Gate(node)
            gates.append(gate)
            sender = node.agent(nothing, id="sender")
            receipt = await sender.send("hold", to="gate", receipt=True)
            assert await asyncio.to_thread(gate.inside.wait, PATIENCE)
            waiting = asyncio.ensure_future(receipt.wait(PATIENCE))
            await node.stop(timeout=0.01)
            return await waiting

    assert asyncio.run(main()) == "failed"
    gates[0].open.set()


def test_a_drain_does_not_end_the_receipts_of_what_it_still_handles(node: tw.Node) -> None:
    gate = Gate(node)
    sender = node.agent(nothing, id="sender")
    gate.hold(sender)
    receipt = sender.sync.send("x", to="gate", receipt=True)
    stopping = gate.agent.ref.stop(timeout=PATIENCE)
    assert node.agents.get("gate") is None
    with pytest.raises(TimeoutError):
        receipt.wait_blocking(0.2)
    gate.open.set()
    assert receipt.wait_blocking(PATIENCE) == "handled"
    stopping.wait()


@pytest.mark.parametrize("with_message", [False, True])
def test_a_handler_that_is_cancelled_ends_its_receipt(node: tw.Node, with_message: bool) -> None:
    async def quick(payload: object) -> None:
        raise asyncio.CancelledError

    async def thorough(payload: object, message: tw.Message) -> None:
        raise asyncio.CancelledError

    node.agent(thorough if with_message else quick, id="a")
    sender = node.agent(nothing, id="sender")
    receipt = sender.sync.send("x", to="a", receipt=True)
    assert receipt.wait_blocking(PATIENCE) == "failed"
    assert isinstance(receipt.error, asyncio.CancelledError)


@pytest.mark.promise("P3.4")
async def test_sends_that_are_refused_or_cancelled_leave_no_receipt(node: tw.Node) -> None:
    gates = [Gate(node, overflow, mailbox=tw.Mailbox(1, overflow)) for overflow in ("fail", "wait")]
    sender = node.agent(nothing, id="sender")
    for gate in gates:
        await asyncio.to_thread(gate.hold, sender, "fills it")
    before = receipts()
    for _ in range(100):
        with pytest.raises(tw.MailboxFull):
            await sender.send("x", to="fail", receipt=True)
    waiting = asyncio.ensure_future(sender.send("x", to="wait", receipt=True))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    # Its error has what it waited for.
    del waiting
    assert receipts() == before
    for gate in gates:
        gate.open.set()
        await gate.agent.stop()
        assert gate.seen == ["fills it"]


@pytest.mark.promise("P11.6", "P11.7")
def test_a_recipient_that_refuses_does_not_affect_the_others(node: tw.Node) -> None:
    full, waits, free = (
        Gate(node, "full", mailbox=tw.Mailbox(1, "fail")),
        Gate(node, "waits", mailbox=1),
        Gate(node, "free"),
    )
    sender = node.agent(nothing, id="sender")
    full.hold(sender, "fills it")
    with pytest.raises(tw.MailboxFull):
        sender.tell("told", to=["full", "free"])
    waits.hold(sender, "fills it")
    caught: list[Any] = []
    begun = threading.Event()

    def send() -> None:
        sends = sender.send("sent", to=["full", "waits", "free"])
        begun.set()
        try:
            sends.wait()  # type: ignore[attr-defined]
        except tw.MailboxFull as error:
            caught.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    assert begun.wait(PATIENCE)
    waits.open.set()
    thread.join(PATIENCE)
    assert len(caught) == 1
    full.open.set()
    for gate in (full, waits, free):
        gate.agent.sync.stop()
    assert (full.seen, waits.seen, free.seen) == (["fills it"], ["fills it", "sent"], ["told", "sent"])


def test_a_retry_that_finds_the_mailbox_full_ends_its_receipt_and_waits_no_more(
    node: tw.Node, tidewire_clock: Clock
) -> None:
    begun, release = threading.Semaphore(0), threading.Event()

    def handler(payload: object) -> None:
        begun.release()
        if payload == "fails":
            raise ValueError(payload)
        assert release.wait(PATIENCE)

    agent = node.agent(handler, id="a", mailbox=1, retry=tw.Retry(3, backoff_ms=2_000, backoff_max_ms=2_000))
    sender = node.agent(nothing, id="sender")
    receipt = sender.sync.send("fails", to="a", receipt=True)
    assert begun.acquire(timeout=PATIENCE)
    sender.sync.send("hold", to="a")
    assert begun.acquire(timeout=PATIENCE)
    sender.sync.send("fills it", to="a")
    assert receipt.wait_blocking(PATIENCE) == "failed"
    assert agent.statistics()["waiting_again"] == 0
    assert [letter.reason for letter in node.dead_letters.list(name="a")] == ["mailbox_full"]
    release.set()


async def test_each_attempt_at_a_request_is_a_message_of_its_own(node: tw.Node, tidewire_clock: Clock) -> None:
    attempts: list[tw.Message] = []
    release = asyncio.Event()

    async def handler(payload: object, message: tw.Message) -> str:
        attempts.append(message)
        if message.delivery == 1:
            await release.wait()
        return "too late" if message.delivery == 1 else "in time"

    node.agent(handler, id="a", concurrency=2)
    asker = node.agent(nothing, id="asker")
    answer = await asker.request(1, to="a", timeout=0.1, retry=tw.Retry(5, backoff_ms=1))
    release.set()
    assert answer == "in time"
    assert attempts[0].delivery == 1
    assert len({message.id for message in attempts}) == 1
    assert len({id(message) for message in attempts}) == len(attempts)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("later", [False, True])
def test_an_error_that_ends_programs_ends_a_retried_request_only(
    node: tw.Node, error: type[BaseException], later: bool
) -> None:
    def plain(payload: object) -> None:
        raise error

    async def coroutine(payload: object) -> None:
        raise error

    node.agent(coroutine if later else plain, id="a", retry=tw.Retry(1, backoff_ms=1))
    node.agent(lambda payload: payload, id="echo", retry=tw.Retry(1, backoff_ms=1))
    asker = node.agent(nothing, id="asker")
    with pytest.raises(error):
        asker.sync.request(1, to="a", timeout=PATIENCE)
    assert asker.sync.request(1, to="echo", timeout=PATIENCE) == 1


def test_an_error_without_a_text_is_tried_again_all_the_same(node: tw.Node) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

        __repr__ = __str__

    done = threading.Event()

    def handler(payload: object, message: tw.Message) -> None:
        if message.delivery == 1:
            raise Mute
        done.set()

    agent = node.agent(handler, id="a", retry=tw.Retry(1, backoff_ms=1))
    node.agent(nothing, id="sender").tell(1, to="a")
    assert done.wait(PATIENCE)
    agent.sync.stop()
    assert len(node.dead_letters) == 0


def test_a_final_receipt_keeps_nothing_of_its_node() -> None:
    with tw.Node() as node:
        node.agent(nothing, id="a")
        receipt = node.agent(nothing, id="sender").sync.send(1, to="a", receipt=True)
        assert receipt.wait_blocking(PATIENCE) == "handled"
    gone = weakref.ref(node)
    del node
    gc.collect()
    assert gone() is None


async def test_the_errors_of_an_agent_that_is_asked_name_it(node: tw.Node) -> None:
    inside, gate = threading.Event(), threading.Event()

    def hold(payload: object) -> None:
        inside.set()
        gate.wait(30)

    node.agent(hold, id="slow", mailbox=tw.Mailbox(1, "fail"))
    desk = node.agent(nothing, id="desk")
    with pytest.raises(tw.AskTimeout, match=r'actor #\d+ "slow" gave no reply'):
        await desk.request(1, to="slow", timeout=0.05)
    assert await asyncio.to_thread(inside.wait, 30)
    await desk.send(2, to="slow")
    with pytest.raises(tw.MailboxFull, match=r'actor #\d+ "slow" is full'):
        await desk.request(3, to="slow")
    gate.set()
