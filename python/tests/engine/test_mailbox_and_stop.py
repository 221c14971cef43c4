"""Full mailboxes, stops, ledgers, dead letters and supervision."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest
import tidewire as tw
from tidewire.testing import Clock


class Held:
    """An actor that waits at its first message until it is let go."""

    def __init__(self, node: tw.Node, mailbox: tw.Mailbox) -> None:
        self.gate, self.entered, self.seen = threading.Event(), threading.Event(), []
        self.ref = node.spawn(self.receive, mailbox=mailbox)
        self.ref.tell(0)
        assert self.entered.wait(30)

    def receive(self, message: Any) -> None:
        self.entered.set()
        self.gate.wait(30)
        self.seen.append(message)


async def _awaited(ref: tw.ActorRef, message: Any) -> object:
    return await ref.send(message)


@pytest.mark.promise("P3.4", "P3.5", "P3.6")
def test_each_overflow_policy_does_what_it_says(node: tw.Node) -> None:
    for overflow, kept in (("wait", [0, 1, 2]), ("fail", [0, 1, 2]), ("drop_new", [0, 1, 2]), ("drop_old", [0, 3, 3])):
        held = Held(node, tw.Mailbox(2, overflow))  # type: ignore[arg-type]
        assert held.ref.tell(1) and held.ref.tell(2)
        if overflow in ("wait", "fail"):
            with pytest.raises(tw.MailboxFull, match="capacity 2"):
                held.ref.tell(3)
            assert held.ref.try_tell(3) is False
        else:
            for kept_new in (held.ref.tell(3), held.ref.try_tell(3), held.ref.try_send(3), node.sync.send(held.ref, 3)):
                assert kept_new is (overflow == "drop_old")
            assert asyncio.run(_awaited(held.ref, 3)) is (overflow == "drop_old")
        held.gate.set()
        ledger = node.sync.stop(held.ref)
        assert ledger.balanced
        assert held.seen == kept, overflow
    assert [letter.reason for letter in node.dead_letters.list()] == ["dropped"] * 10


@pytest.mark.promise("P3.3", "P3.10")
async def test_send_waits_for_capacity_and_a_cancelled_send_has_sent_nothing(node: tw.Node) -> None:
    held = Held(node, tw.Mailbox(1))
    await held.ref.send(1)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(held.ref.send(2), 0.01)
    waiting = asyncio.ensure_future(held.ref.send(3))
    held.gate.set()
    await waiting
    await held.ref.stop()
    assert held.seen == [0, 1, 3]


@pytest.mark.promise("P8.1", "P8.3")
def test_a_stop_without_drain_gives_the_messages_back(node: tw.Node) -> None:
    held = Held(node, tw.Mailbox(10))
    for n in (1, 2, 3):
        held.ref.tell(n)
    stopping = held.ref.stop(drain=False)
    with pytest.raises(tw.ActorStopped):
        held.ref.tell(4)
    held.gate.set()
    ledger = stopping.wait()
    assert ledger.messages == (1, 2, 3)
    assert (ledger.accepted, ledger.handled, ledger.returned) == (4, 1, 3)


@pytest.mark.promise("P8.8")
def test_a_stop_that_runs_out_of_time_says_where_the_handler_is(node: tw.Node) -> None:
    entered, gate = threading.Event(), threading.Event()

    def stuck(_: object) -> None:
        entered.set()
        gate.wait(60)

    ref = node.spawn(stuck, name="stuck")
    ref.tell(1)
    ref.tell(2)
    assert entered.wait(30)
    assert ref.statistics()["depth"] == 1
    ledger = node.sync.stop(ref, timeout=0.05)
    letters = node.dead_letters.list(name="stuck")
    gate.set()
    assert [letter.reason for letter in letters] == ["abandoned"] * ledger.dead_lettered
    assert (ledger.reason, ledger.dead_lettered, ledger.balanced) == ("abandoned", 2, True)
    assert any("in stuck" in line for line in ledger.stuck[0].where), ledger.stuck
    assert "is stuck in its handler" in str(ledger)
    assert node.lookup("stuck") is None


@pytest.mark.promise("P8.7", "P8.8", "P16.26")
@pytest.mark.parametrize("end", ["stop", "error"])
async def test_asks_of_actors_that_the_end_of_a_node_abandons_end_at_once(end: str, tidewire_clock: Clock) -> None:
    gate, entered, loop = threading.Event(), asyncio.Event(), asyncio.get_running_loop()

    def stuck(_: object) -> None:
        loop.call_soon_threadsafe(entered.set)
        gate.wait(60)

    with contextlib.suppress(ZeroDivisionError):
        async with tw.Node(config={"abort_timeout_ms": 100}) as node:
            ref = node.spawn(stuck, name="stuck")
            asks = [asyncio.ensure_future(ref.ask(number, timeout=None)) for number in range(3)]
            ref.tell("nobody waits")
            await entered.wait()
            if end == "error":
                raise ZeroDivisionError
            await node.stop(timeout=0.1)
    told = await asyncio.wait_for(asyncio.gather(*asks, return_exceptions=True), 30)
    gate.set()
    assert [type(one) for one in told] == [tw.ActorStopped] * 3, told
    letters = node.dead_letters.list(name="stuck")
    assert node.ledger is not None and node.ledger.dead_lettered == len(letters) == 4
    assert [letter.reason for letter in letters] == ["abandoned"] * 4


@pytest.mark.promise("P8.11")
def test_a_handler_can_stop_its_actor_but_not_wait_for_that(node: tw.Node) -> None:
    def last(message: Any, ctx: tw.Context) -> Any:
        if message == "wait":
            with pytest.raises(tw.AskCycle, match="its own stop"):
                node.sync.stop(ctx.self)
            return "told so"
        ctx.stop()
        return None

    ref = node.spawn(last)
    assert node.sync.ask(ref, "wait") == "told so"
    assert not ref.alive
    assert node.sync.stop(ref).handled == 1


@pytest.mark.promise("P7.10")
def test_restart_makes_a_new_object_and_keeps_the_mailbox(node: tw.Node) -> None:
    class Fragile:
        def __init__(self, start: int) -> None:
            self.seen = [start]

        def receive(self, message: Any) -> list[int]:
            if message == "fail":
                raise ValueError("broken")
            self.seen.append(message)
            return self.seen

    ref = node.spawn(Fragile, 100, supervision=tw.Supervision(on_failure="restart", backoff_ms=0))
    assert node.sync.ask(ref, 1) == [100, 1]
    ref.tell("fail")
    assert node.sync.ask(ref, 2) == [100, 2]
    assert ref.statistics()["restarts"] == 1


@pytest.mark.promise("P7.6", "P7.17")
def test_a_poison_message_is_tried_as_often_as_allowed(node: tw.Node) -> None:
    attempts: list[int] = []

    def poisoned(message: object, ctx: tw.Context) -> None:
        attempts.append(ctx.delivery)
        raise ValueError("poison")

    ref = node.spawn(poisoned, supervision=tw.Supervision(max_deliveries=3))
    ref.tell("x")
    assert node.sync.stop(ref).dead_lettered == 1
    assert attempts == [1, 2, 3]
    [letter] = node.dead_letters.list(reason="failed", actor=ref.id)
    assert (letter.message, letter.error) == ("x", "ValueError: poison")


@pytest.mark.promise("P7.18")
def test_dead_letters_can_be_listed_requeued_and_dropped(node: tw.Node) -> None:
    healthy = threading.Event()
    seen: list[object] = []

    def moody(message: object) -> None:
        if not healthy.is_set():
            raise ValueError("not today")
        seen.append(message)

    ref = node.spawn(moody)
    for n in range(3):
        ref.tell(n)
    node.sync.until(lambda now: now["dead_letters"] == {"failed": 3}, 30)
    healthy.set()
    first, second, _ = node.dead_letters.list()
    node.dead_letters.requeue(first)
    with pytest.raises(tw.NoSuchTarget):
        node.dead_letters.requeue(first)
    assert node.dead_letters.drop(second) == 1
    assert node.dead_letters.drop() == 1
    node.sync.stop(ref)
    assert seen == [0]


@pytest.mark.promise("P1.11")
def test_exceptions_in_hooks_are_contained(node: tw.Node) -> None:
    class Bad:
        def started(self) -> None:
            raise RuntimeError("never began")

        def receive(self, message: object) -> None:
            pass

    class BadEnd:
        def receive(self, message: object) -> None:
            pass

        def stopped(self) -> None:
            raise RuntimeError("never ended")

    bad = node.spawn(Bad)
    assert node.sync.stop(bad).reason == "failed: RuntimeError: never began"
    end = node.spawn(BadEnd)
    end.tell(1)
    assert node.sync.stop(end).handled == 1
    assert [letter.error for letter in node.dead_letters.list()] == [
        "RuntimeError: never began",
        "RuntimeError: never ended",
    ]


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_a_child_that_waits_for_its_parent_to_stop_is_refused_at_once(node: tw.Node, kind: str) -> None:
    told: list[str] = []

    def parent(message: str, ctx: tw.Context) -> None:
        me = ctx.me

        def plain(_: object) -> None:
            with pytest.raises(tw.AskCycle, match="in that of a child"):
                node.sync.stop(me)
            told.append(message)

        async def later(_: object) -> None:
            with pytest.raises(tw.AskCycle, match="in that of a child"):
                await me.stop()
            told.append(message)

        ctx.spawn(plain if kind == "plain" else later).tell("stop it")

    ref = node.spawn(parent)
    ref.tell("refused")
    node.sync.idle(30)
    assert told == ["refused"]
    assert node.sync.stop(ref, timeout=30).reason == "stopped"
