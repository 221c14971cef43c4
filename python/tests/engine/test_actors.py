"""Functions, coroutines, classes and objects as actors."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from typing import Any

import pytest
import tidewire as tw


class Counter:
    def __init__(self, start: int = 0, *, step: int = 1) -> None:
        self.total = start
        self.step = step
        self.events: list[str] = []

    def started(self, ctx: tw.Context) -> None:
        self.events.append(f"started {ctx.self.id}")

    def receive(self, message: Any, ctx: tw.Context) -> Any:
        if message == "get":
            return self.total, self.events
        self.total += message * self.step
        return None

    def stopped(self) -> None:
        self.events.append("stopped")


@pytest.mark.promise("P8.2")
def test_a_class_keeps_state_and_takes_arguments(node: tw.Node) -> None:
    ref = node.spawn(Counter, 10, step=2)
    ref.tell(1)
    ref.tell(2)
    total, events = node.sync.ask(ref, "get")
    assert total == 16
    assert events == [f"started {ref.id}"]
    ledger = node.sync.stop(ref)
    assert (ledger.accepted, ledger.handled, ledger.balanced) == (3, 3, True)
    assert events[-1] == "stopped"


@pytest.mark.promise("P4.3")
@pytest.mark.parametrize("value", [0, "", None, [], {}, False, (1, 2), ValueError("a value, not a failure")])
def test_messages_and_replies_can_be_anything_and_are_passed_by_reference(node: tw.Node, value: object) -> None:
    assert node.sync.ask(node.spawn(lambda message: message), value) is value


async def test_the_sender_is_known_and_can_be_answered(node: tw.Node) -> None:
    heard: asyncio.Queue[Any] = asyncio.Queue(10)

    async def listener(message: Any, ctx: tw.Context) -> None:
        if message == "go":
            echo.tell("hello")
        else:
            await heard.put((message, ctx.sender))

    def echo_back(message: Any, ctx: tw.Context) -> None:
        assert ctx.sender is not None
        ctx.sender.tell(message.upper())

    echo = node.spawn(echo_back)
    ref = node.spawn(listener)
    ref.tell("go")
    assert await heard.get() == ("HELLO", echo)


@pytest.mark.promise("P4.3")
def test_a_late_reply_through_a_kept_context(node: tw.Node) -> None:
    kept: list[tw.Context] = []
    entered = threading.Event()

    def keep(message: Any, ctx: tw.Context) -> None:
        if message == "answer":
            assert kept[0].reply(42)
            with pytest.raises(tw.InvalidArgument, match="replied to already"):
                kept[0].reply(43)
        else:
            kept.append(ctx)
            ctx.reply("early")
            entered.set()

    ref = node.spawn(keep)
    assert node.sync.ask(ref, "question") == "early"
    with pytest.raises(tw.InvalidArgument, match="replied to already"):
        kept[0].reply("again")


def test_behaviours_stack_over_a_base_that_stays(node: tw.Node) -> None:
    def base(message: str, ctx: tw.Context) -> str:
        if message == "open":
            ctx.become(above)
        return f"base {message}"

    def above(message: str, ctx: tw.Context) -> str:
        if message == "close":
            ctx.unbecome()
        return f"above {message}"

    ref = node.spawn(base)
    ask = node.sync.ask
    assert [ask(ref, m) for m in ("a", "open", "b", "close", "c")] == [
        "base a",
        "base open",
        "above b",
        "above close",
        "base c",
    ]
    ref.request_unbecome()
    ref.request_become(lambda message: f"lambda {message}")
    assert ask(ref, "d") == "lambda d"
    ref.request_become(lambda message: f"other {message}", stack=False)
    assert ask(ref, "e") == "other e"
    ref.request_unbecome()
    assert ask(ref, "f") == "base f"


@pytest.mark.promise("P7.15")
def test_children_stop_with_their_parent_and_watchers_are_told(node: tw.Node) -> None:
    told: list[tw.Terminated] = []
    done = threading.Event()

    class Parent:
        def receive(self, message: object, ctx: tw.Context) -> Any:
            return ctx.spawn(lambda _: None, name="child")

    def watcher(message: Any, ctx: tw.Context) -> None:
        if isinstance(message, tw.Terminated):
            told.append(message)
            done.set()
        else:
            ctx.watch(message)

    parent = node.spawn(Parent)
    child = node.sync.ask(parent, "spawn")
    node.sync.ask(node.spawn(watcher), child)
    assert node.lookup("child") == child
    node.sync.stop(parent)
    assert done.wait(30)
    assert told == [tw.Terminated(child.id, "child", "parent_stopped")]
    assert node.lookup("child") is None


@pytest.mark.promise("P1.1", "P1.3")
async def test_coroutines_handle_one_message_at_a_time_unless_asked_otherwise(node: tw.Node) -> None:
    inside = most = 0

    async def slow(_: object) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        inside -= 1

    for concurrency, expected in ((1, 1), (8, 8)):
        most = 0
        ref = node.spawn(slow, concurrency=concurrency)
        for n in range(40):
            await ref.send(n)
        assert (await ref.stop()).handled == 40
        assert most == expected


def test_reprs_say_what_something_is(node: tw.Node) -> None:
    ref = node.spawn(lambda _: None, name="named")
    assert repr(ref) == f'<ActorRef #{ref.id} "named">'
    assert "running, 1 actors" in repr(node)
    assert repr(ref.stop()) == "<Pending stop pending>"
    node.sync.stop(ref)
    assert repr(ref).endswith("stopped>")
    assert "0 dead-lettered" in str(node.sync.stop(ref))


@pytest.mark.promise("P10.3")
async def test_handlers_that_await_are_timed_with_what_they_await(node: tw.Node) -> None:
    async def slow(message: float) -> None:
        await asyncio.sleep(message)

    async def fails(message: float) -> None:
        await asyncio.sleep(message)
        raise KeyError(message)

    for handler in (slow, fails):
        ref = node.spawn(handler)
        with contextlib.suppress(KeyError):
            await ref.ask(0.03)
        handling = ref.statistics()["handling"]
        assert handling["samples"] == 1
        assert handling["p50_us"] >= 28_000
    many = node.spawn(slow, concurrency=8)
    await asyncio.gather(*(many.ask(0.0) for _ in range(256)))
    assert 64 <= many.statistics()["handling"]["samples"] < 256


@pytest.mark.promise("P2.2")
async def test_coroutines_of_one_actor_begin_in_the_order_of_its_messages(node: tw.Node) -> None:
    draws = random.Random(13)
    begun: list[int] = []

    async def receive(number: int) -> None:
        begun.append(number)
        for _ in range(draws.choice((0, 0, 1, 2, 5))):
            await asyncio.sleep(0)

    ref = node.spawn(receive, concurrency=8, mailbox=5_000)
    for number in range(5_000):
        await ref.send(number)
        if draws.random() < 0.1:
            await asyncio.sleep(0)
    await node.idle(60)
    assert begun == list(range(5_000))
