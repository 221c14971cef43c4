"""Asks: replies, errors, deadlines, cancellation, rings; in asyncio and in plain threads."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import threading
import traceback
from typing import Any

import pytest
import tidewire as tw
from tidewire.testing import Clock


def broken(message: object) -> None:
    raise KeyError(message)


@pytest.mark.promise("P4.9")
async def test_a_handler_goes_on_after_the_deadline_of_its_ask_and_can_look(
    node: tw.Node, tidewire_clock: Clock
) -> None:
    gate, looks = asyncio.Event(), asyncio.Queue[bool](10)

    async def look(_: str, ctx: tw.Context) -> None:
        looks.put_nowait(ctx.cancelled)
        await gate.wait()
        looks.put_nowait(ctx.cancelled)

    with pytest.raises(tw.AskTimeout):
        await node.spawn(look).ask("x", timeout=3_600.0)
    gate.set()
    assert [await looks.get() for _ in range(2)] == [False, True]


@pytest.mark.promise("P16.22")
@pytest.mark.filterwarnings("ignore:ask was never awaited")
async def test_an_ask_that_is_thrown_away_was_sent_and_is_cancelled(node: tw.Node) -> None:
    gate, looks = asyncio.Event(), asyncio.Queue[tuple[str, bool]](10)

    async def look(message: str, ctx: tw.Context) -> None:
        await gate.wait()
        looks.put_nowait((message, ctx.cancelled))

    asked = node.spawn(look)
    asked.tell("first")
    asked.ask("thrown away")
    asked.ask("awaited", timeout=None).cancel()
    gc.collect()
    gate.set()
    asked.tell("last")
    assert [await looks.get() for _ in range(2)] == [("first", False), ("last", False)]


async def test_an_error_arrives_as_it_was_raised_with_its_traceback(node: tw.Node) -> None:
    async def broken_coroutine(message: object) -> None:
        broken(message)

    for target in (broken, broken_coroutine):
        ref = node.spawn(target)
        with pytest.raises(KeyError) as caught:
            await ref.ask("x")
        lines = traceback.format_exception(caught.value)
        assert any("in broken" in line and __file__ in line for line in lines), lines


@pytest.mark.promise("P7.1", "P7.2", "P16.6")
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()])
def test_an_actor_and_its_thread_survive_any_error_of_a_handler(node: tw.Node, error: BaseException) -> None:
    def fragile(message: object) -> str:
        if message == "raise":
            raise error
        return "fine"

    ref = node.spawn(fragile)
    with pytest.raises(type(error)):
        node.sync.ask(ref, "raise")
    assert node.sync.ask(ref, "more") == "fine"
    assert node.dead_letters.list()[0].reason == "failed"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_error_whose_message_can_not_be_made_is_logged_and_arrives(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidewire")

    def fails(_: object) -> None:
        raise Unprintable

    # Each node has an actor with this id, and the first failure of each is logged.
    for count in range(1, 4):
        with tw.Node() as node, pytest.raises(Unprintable):
            node.sync.ask(node.spawn(fails), 1)
        assert caplog.text.count("failed in receive: Unprintable: <its message can't be made: RuntimeError>") == count


@pytest.mark.promise("P4.7", "P4.8", "P4.10")
async def test_a_deadline_ends_the_wait_and_the_message_is_not_handled(node: tw.Node) -> None:
    gate, handled = asyncio.Event(), []

    async def slow(message: str) -> None:
        handled.append(message)
        await gate.wait()

    ref = node.spawn(slow)
    first = asyncio.ensure_future(ref.ask("first"))
    await asyncio.sleep(0)
    with pytest.raises(tw.AskTimeout):
        await ref.ask("second", timeout=0.01)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(ref.ask("third"), 0.01)
    gate.set()
    await first
    ledger = await ref.stop()
    assert handled == ["first"]
    assert (ledger.handled, ledger.dead_lettered) == (1, 2)
    assert sorted(letter.reason for letter in node.dead_letters.list()) == ["cancelled", "expired"]


@pytest.mark.promise("P1.4", "P4.11")
@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_a_ring_of_asks_is_reported_with_its_path(node: tw.Node, kind: str) -> None:
    def plain(next_name: str, ctx: tw.Context) -> Any:
        following = {"a": "b", "b": "c", "c": "a"}[next_name]
        return ctx.node.sync.ask(ctx.node.lookup(next_name), following)

    async def coroutine(next_name: str, ctx: tw.Context) -> Any:
        following = {"a": "b", "b": "c", "c": "a"}[next_name]
        return await ctx.node.lookup(next_name).ask(following)

    for name in ("a", "b", "c"):
        node.spawn(plain if kind == "plain" else coroutine, name=name)
    with pytest.raises(tw.AskCycle) as caught:
        await node.lookup("a").ask("b", timeout=20)
    assert [part.split()[0] for part in caught.value.path] == ["c", "a", "b", "c"]


@pytest.mark.promise("P4.13")
@pytest.mark.parametrize("kind", ["plain", "coroutine"])
async def test_actors_of_two_nodes_with_the_same_id_are_no_ring(node: tw.Node, kind: str) -> None:
    async with tw.Node(name="other") as other:
        answers = other.spawn(lambda message: message + 1, mailbox=tw.Mailbox(capacity=1))

        def plain(message: int, ctx: tw.Context) -> Any:
            return ctx.node.sync.ask(answers, message)

        async def coroutine(message: int) -> Any:
            return await answers.ask(message), (await answers.stop()).handled

        asks = node.spawn(plain if kind == "plain" else coroutine)
        assert asks.id == answers.id
        assert await asks.ask(1, timeout=20) == (2 if kind == "plain" else (2, 1))


@pytest.mark.promise("P4.13")
async def test_a_task_that_outlives_its_handler_asks_and_stops_the_same_actor(node: tw.Node) -> None:
    over = asyncio.Event()
    tasks: list[asyncio.Task[Any]] = []

    async def later(actor: tw.ActorRef) -> Any:
        await over.wait()
        return await actor.ask("from the task")

    async def stop(actor: tw.ActorRef) -> int:
        return (await actor.stop(timeout=20)).handled

    async def receive(message: str, ctx: tw.Context) -> str:
        if message in ("begin", "end"):
            tasks.append(asyncio.create_task(later(ctx.me) if message == "begin" else stop(ctx.me)))
            await asyncio.sleep(0)
        return message

    ref = node.spawn(receive)
    assert await ref.ask("begin") == "begin"
    over.set()
    assert await tasks[0] == "from the task"
    assert await ref.ask("end") == "end"
    assert await tasks[1] == 3


def test_waiting_for_what_is_done_already_returns_at_once(node: tw.Node) -> None:
    ref = node.spawn(lambda message: message)
    for _ in range(3):
        assert ref.send(1).wait() is True
    asked = ref.ask(5)
    assert asked.wait() == 5
    assert asked.wait() == 5


@pytest.mark.promise("P8.12")
@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize("how", ["directly", "wait_for", "gather"])
async def test_a_coroutine_can_not_wait_for_its_own_stop(node: tw.Node, how: str, concurrency: int) -> None:
    async def stops_itself(_: object, ctx: tw.Context) -> str:
        stopping: Any = ctx.me.stop(timeout=30)
        with pytest.raises(tw.AskCycle, match="its own stop"):
            await {
                "directly": lambda: stopping,
                "wait_for": lambda: asyncio.wait_for(stopping, 50),
                "gather": lambda: asyncio.gather(stopping),
            }[how]()
        return "goes on"

    ref = node.spawn(stops_itself, concurrency=concurrency)
    assert await asyncio.wait_for(ref.ask(1, timeout=40), 20) == "goes on"
    assert (await ref.stop()).handled == 1


async def test_an_agent_can_not_wait_for_its_own_stop(node: tw.Node) -> None:
    class Ends(tw.Agent):
        async def receive(self, payload: object) -> str:
            with pytest.raises(tw.AskCycle, match="its own stop"):
                await self.stop(timeout=30)
            return "goes on"

    agent = node.agent(Ends)
    other = node.agent(lambda payload: None)
    assert await asyncio.wait_for(other.request("end", to=agent.id, timeout=40), 20) == "goes on"


def pipes() -> set[str]:
    """Names of the pipes that this process has open."""
    # Leftovers of earlier tests for the collector count as closed.
    gc.collect()
    found = set()
    for descriptor in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/dev/fd/{descriptor}"))
    return {name for name in found if name.startswith("pipe:")}


def test_a_thread_that_asks_again_and_again_opens_one_pipe_and_closes_it_at_its_end(node: tw.Node) -> None:
    ref = node.spawn(lambda n: n)
    asked, more = threading.Barrier(2, timeout=30), threading.Barrier(2, timeout=30)

    def ask() -> None:
        for _ in range(3):
            node.sync.ask(ref, 1)
            asked.wait()
            more.wait()

    # Files of other tests in this process may close meanwhile.
    before, during = pipes(), []
    thread = threading.Thread(target=ask)
    thread.start()
    for _ in range(3):
        asked.wait()
        during.append(pipes() - before)
        more.wait()
    thread.join(30)
    assert during == [during[0]] * 3
    # A pipe is one file with two descriptors.
    assert len(during[0]) == 1
    assert not pipes() & during[0]


def test_a_signal_handler_can_ask_while_its_thread_waits_for_another_ask(node: tw.Node) -> None:
    answers: list[int] = []
    echo, gate = node.spawn(lambda n: n), threading.Event()

    def interrupts(n: int) -> int:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert gate.wait(30)
        return n

    def nested(*_: object) -> None:
        answers.append(node.sync.ask(echo, 1))
        gate.set()

    before = signal.signal(signal.SIGUSR1, nested)
    try:
        answers.append(node.sync.ask(node.spawn(interrupts), 2))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert answers == [1, 2]
    assert node.sync.ask(echo, 3) == 3


@pytest.mark.promise("P4.5")
@pytest.mark.parametrize("takes_context", [False, True])
def test_a_plain_function_that_returns_a_coroutine_fails_its_asker_and_its_message(
    node: tw.Node, takes_context: bool
) -> None:
    async def later(message: object) -> object:
        return message

    def plain(message: object) -> Any:
        return later(message)

    def with_context(message: object, ctx: tw.Context) -> Any:
        assert ctx.asked is (message == "asked")
        return later(message)

    ref = node.spawn(with_context if takes_context else plain, name="a")
    with pytest.raises(tw.InvalidArgument, match=r"handler: it returned <coroutine .* make the handler itself"):
        node.sync.ask(ref, "asked")
    ref.tell("told")
    ledger = node.sync.stop(ref)
    assert (ledger.accepted, ledger.dead_lettered) == (2, 2)


@pytest.mark.promise("P7.8")
@pytest.mark.parametrize("kind", range(4), ids=["plain", "with context", "coroutine", "coroutine with context"])
def test_an_ask_that_is_delivered_again_gets_the_answer_of_the_attempt_that_gave_one(node: tw.Node, kind: int) -> None:
    attempts: list[object] = []

    def plain(message: str) -> str:
        attempts.append(message)
        if len(attempts) % 3:
            raise ValueError("not yet")
        return message.upper()

    def with_context(message: str, ctx: tw.Context) -> str:
        return plain(message)

    async def later(message: str) -> str:
        await asyncio.sleep(0)
        return plain(message)

    async def later_with_context(message: str, ctx: tw.Context) -> str:
        return plain(message)

    handlers = [plain, with_context, later, later_with_context]
    ref = node.spawn(handlers[kind], supervision=tw.Supervision(max_deliveries=3))
    assert node.sync.ask(ref, "hello", timeout=30) == "HELLO"
    assert attempts == ["hello"] * 3
    node.sync.idle(30)
    assert node.sync.stop(ref).handled == 1


@pytest.mark.promise("P7.7")
@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_a_message_that_comes_again_has_its_subject_its_headers_and_its_sender(node: tw.Node, kind: str) -> None:
    seen: list[object] = []
    fails = True

    def plain(message: object, ctx: tw.Context) -> None:
        seen.append((message, ctx.subject, ctx.headers, ctx.sender))
        if fails:
            raise ValueError("not yet")

    async def later(message: object, ctx: tw.Context) -> None:
        plain(message, ctx)

    ref = node.spawn(plain if kind == "plain" else later, supervision=tw.Supervision(max_deliveries=2))
    node.subscribe("a.b", ref)
    publishes = node.spawn(lambda message: node.publish("a.b", message, headers={"h": "1"}))
    publishes.tell("hello")
    node.sync.idle(30)
    fails = False
    (letter,) = node.dead_letters.list()
    node.dead_letters.requeue(letter.number)
    node.sync.idle(30)
    assert seen == [("hello", "a.b", {"h": "1"}, publishes)] * 3
