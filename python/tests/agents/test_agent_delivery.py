"""Delivery of messages: retries, expiry, dead letters, and receipts."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import tidewire as tw
from agent_support import PATIENCE, nothing


class Flaky:
    """Fails so many times for each payload, and then handles it."""

    def __init__(self, failures: int) -> None:
        self._failures = failures
        self.attempts: list[tuple[Any, int]] = []
        self.done = threading.Semaphore(0)

    def receive(self, payload: object, message: tw.Message) -> object:
        self.attempts.append((payload, message.delivery))
        if message.delivery <= self._failures:
            raise ValueError(f"{payload}, attempt {message.delivery}")
        self.done.release()
        return payload


class FlakyLater(Flaky):
    async def receive(self, payload: object, message: tw.Message) -> object:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().receive(payload, message)


@pytest.mark.promise("P11.12", "P11.13")
@pytest.mark.parametrize("kind", [Flaky, FlakyLater])
@pytest.mark.parametrize("priority", ["low", "normal", "high", "urgent"])
def test_a_message_is_tried_again_until_it_is_handled(node: tw.Node, kind: type[Flaky], priority: str) -> None:
    flaky = kind(2)
    agent = node.agent(flaky, id="a", retry=tw.Retry(2, backoff_ms=1))
    sender = node.agent(nothing, id="sender")
    receipt = sender.sync.send("x", to="a", priority=priority, receipt=True)
    assert receipt.wait_blocking(PATIENCE) == "handled"
    assert flaky.attempts == [("x", 1), ("x", 2), ("x", 3)]
    statistics = agent.statistics()
    assert (statistics["retried"], statistics["waiting_again"], statistics["failed"]) == (2, 0, 0)
    assert len(node.dead_letters) == 0


@pytest.mark.promise("P11.19")
@pytest.mark.parametrize("kind", [Flaky, FlakyLater])
def test_after_the_last_attempt_it_is_a_dead_letter_with_its_error(node: tw.Node, kind: type[Flaky]) -> None:
    flaky = kind(10)
    node.agent(flaky, id="a")
    sender = node.agent(nothing, id="sender")
    receipt = sender.sync.send("x", to="a", retry=tw.Retry(2, backoff_ms=1), receipt=True)
    assert receipt.wait_blocking(PATIENCE) == "failed"
    assert str(receipt.error) == "x, attempt 3"
    node.agents.find("a").sync.stop()
    (letter,) = node.dead_letters.list()
    assert (letter.reason, letter.error, letter.message.delivery) == ("failed", "ValueError: x, attempt 3", 3)
    assert "raise ValueError" in (letter.traceback or "")
    assert [delivery for _, delivery in flaky.attempts] == [1, 2, 3]


@pytest.mark.promise("P11.16")
def test_only_the_recipient_that_failed_gets_it_again(node: tw.Node) -> None:
    flaky, steady = Flaky(1), Flaky(0)
    node.agent(flaky, id="flaky", retry=tw.Retry(3, backoff_ms=1))
    node.agent(steady, id="steady", retry=tw.Retry(3, backoff_ms=1))
    sender = node.agent(nothing, id="sender")
    assert sender.broadcast("all") == 2
    sender.tell("both", to=["flaky", "steady"])
    for semaphore in (flaky.done, flaky.done, steady.done, steady.done):
        assert semaphore.acquire(timeout=PATIENCE)
    assert sorted(flaky.attempts) == [("all", 1), ("all", 2), ("both", 1), ("both", 2)]
    assert sorted(steady.attempts) == [("all", 1), ("both", 1)]


@pytest.mark.promise("P11.17")
async def test_a_request_is_asked_again_by_the_requester(node: tw.Node) -> None:
    flaky = Flaky(2)
    node.agent(flaky, id="a")
    asker = node.agent(nothing, id="asker")
    with pytest.raises(ValueError, match="attempt 1"):
        await asker.request("once", to="a", timeout=PATIENCE)
    assert await asker.request("again", to="a", timeout=PATIENCE, retry=tw.Retry(2, 1)) == "again"
    with pytest.raises(ValueError, match="attempt 2"):
        await asker.request("less", to="a", timeout=PATIENCE, retry=tw.Retry(1, 1))
    assert (
        await asyncio.to_thread(lambda: asker.sync.request("thread", to="a", timeout=PATIENCE, retry=tw.Retry(2, 1)))
        == "thread"
    )


@pytest.mark.promise("P11.23")
def test_retries_end_when_the_agent_stops(node: tw.Node) -> None:
    failed = threading.Event()

    def handler(payload: object) -> None:
        failed.set()
        raise ValueError(payload)

    agent = node.agent(handler, id="a", retry=tw.Retry(5, backoff_ms=3_600_000, backoff_max_ms=3_600_000))
    sender = node.agent(nothing, id="sender")
    receipt = sender.sync.send("x", to="a", receipt=True)
    assert failed.wait(PATIENCE)
    agent.sync.stop()
    assert receipt.wait_blocking(PATIENCE) == "failed"
    (letter,) = node.dead_letters.list(name="a")
    assert (letter.reason, letter.error, letter.message.payload) == ("stopped", "ValueError: x", "x")
    assert node.statistics()["timers"] == 0


@pytest.mark.promise("P11.13")
def test_waits_double_up_to_the_longest_and_vary() -> None:
    retry = tw.Retry(100, backoff_ms=100, backoff_max_ms=1_000)
    for failures, longest in ((1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (5, 1.0), (90, 1.0)):
        waits = [retry.wait_s(failures) for _ in range(200)]
        assert all(longest / 2 <= wait <= longest for wait in waits)
        assert len(set(waits)) > 1


@pytest.mark.promise("P11.10", "P11.18")
@pytest.mark.parametrize("later", [False, True])
def test_an_expired_message_is_not_handled_and_its_receipt_says_so(node: tw.Node, later: bool) -> None:
    seen: list[Any] = []
    inside, release = threading.Event(), threading.Event()

    def handler(payload: object) -> None:
        if payload == "hold":
            inside.set()
            assert release.wait(PATIENCE)
        seen.append(payload)

    async def handler_later(payload: object) -> None:
        await asyncio.to_thread(handler, payload)

    agent = node.agent(handler_later if later else handler, id="a")
    sender = node.agent(nothing, id="sender")
    sender.tell("hold", to="a")
    assert inside.wait(PATIENCE)
    short = sender.sync.send("short", to="a", ttl=0.0, receipt=True)
    long = sender.sync.send("long", to="a", ttl=3_600, receipt=True)
    release.set()
    assert short.wait_blocking(PATIENCE) == "expired"
    assert long.wait_blocking(PATIENCE) == "handled"
    assert agent.sync.stop().balanced
    assert seen == ["hold", "long"]
    (letter,) = node.dead_letters.list(reason="expired")
    assert letter.message.payload == "short"
    assert agent.statistics()["expired"] == 1
    assert agent.statistics()["failed"] == 0


def test_an_expired_letter_gets_new_time_when_it_is_requeued(node: tw.Node) -> None:
    seen = threading.Event()
    node.agent(lambda payload: seen.set(), id="a")
    sender = node.agent(nothing, id="sender")
    receipt = sender.sync.send("x", to="a", ttl=0.0, receipt=True)
    assert receipt.wait_blocking(PATIENCE) == "expired"
    (letter,) = node.dead_letters.list()
    letter.message.ttl = 3_600.0
    node.dead_letters.requeue(letter)
    assert seen.wait(PATIENCE)


async def test_a_request_that_expires_tells_the_requester_and_is_not_begun(node: tw.Node) -> None:
    inside, release = asyncio.Event(), asyncio.Event()
    seen: list[Any] = []

    async def handler(payload: object) -> None:
        seen.append(payload)
        inside.set()
        await release.wait()

    agent = node.agent(handler, id="a")
    asker = node.agent(nothing, id="asker")
    first = asyncio.ensure_future(asker.request("first", to="a", timeout=PATIENCE))
    await asyncio.wait_for(inside.wait(), PATIENCE)
    with pytest.raises(tw.AskTimeout):
        await asker.request("second", to="a", timeout=0.01)
    release.set()
    await first
    await agent.stop()
    assert seen == ["first"]
    assert node.statistics()["ask_timeouts"] == 1
    assert [letter.reason for letter in node.dead_letters.list(name="a")] == ["expired"]


@pytest.mark.promise("P11.18")
async def test_a_receipt_tells_each_state_with_its_time(node: tw.Node) -> None:
    release = asyncio.Event()

    async def handler(payload: object) -> None:
        await release.wait()

    node.agent(handler, id="a")
    node.agent(nothing, id="b")
    sender = node.agent(nothing, id="sender")
    receipts = await sender.send("x", to=["a", "b"], receipt=True)
    assert sorted(receipts) == ["a", "b"]
    assert await receipts["b"].wait(PATIENCE) == "handled"
    with pytest.raises(TimeoutError, match="'a' is"):
        await receipts["a"].wait(0.01)
    release.set()
    assert await receipts["a"].wait(PATIENCE) == "handled"
    times = receipts["a"].times
    assert list(times) == ["accepted", "delivered", "handled"]
    assert times["accepted"] <= times["delivered"] <= times["handled"]


def test_a_queue_that_grows_over_the_level_is_warned_about_once_per_crossing(caplog: Any) -> None:
    with tw.Node(config={"broker": {"queue_warning": 100}}) as node:
        inside, release = threading.Event(), threading.Semaphore(0)

        def handler(payload: object) -> None:
            if payload == "hold":
                inside.set()
                assert release.acquire(timeout=PATIENCE)

        agent = node.agent(handler, id="slow")
        sender = node.agent(nothing, id="sender")
        caplog.set_level("WARNING", logger="tidewire")
        for crossing in (1, 2):
            inside.clear()
            sender.tell("hold", to="slow")
            assert inside.wait(PATIENCE)
            for n in range(500):
                sender.tell(n, to="slow")
            warnings = [record.message for record in caplog.records if record.message.startswith("slow:")]
            assert len(warnings) == crossing
            assert warnings[-1].endswith("messages wait, the warning level is 100")
            release.release()
            sender.sync.request("done", to="slow", timeout=PATIENCE)
            for _ in range(64):
                sender.tell("look", to="slow")
            sender.sync.request("done", to="slow", timeout=PATIENCE)
            for _ in range(64):
                sender.tell("look", to="slow")
            sender.sync.request("done", to="slow", timeout=PATIENCE)
        agent.sync.stop()


@pytest.mark.promise("P11.12")
@pytest.mark.parametrize("how", ["publish", "publish_with_headers", "publish_of_an_agent", "tell"])
def test_the_retries_of_an_agent_hold_for_what_has_no_message_around_it(node: tw.Node, how: str) -> None:
    flaky = Flaky(2)
    agent = node.agent(flaky, id="flaky", retry=tw.Retry(2, backoff_ms=1))
    agent.subscribe("news.*")
    if how == "tell":
        agent.ref.tell("x")
    elif how == "publish_of_an_agent":
        assert node.agent(nothing, id="sender").publish("news.x", "x") == 1
    else:
        assert node.publish("news.x", "x", {"a": "b"} if how == "publish_with_headers" else None) == 1
    assert flaky.done.acquire(timeout=PATIENCE)
    assert flaky.attempts == [("x", 1), ("x", 2), ("x", 3)]
    assert node.dead_letters.list(name="flaky") == []


@pytest.mark.promise("P11.19")
@pytest.mark.parametrize("kind", ["plain", "coroutine", "with message"])
def test_a_receipt_is_not_final_while_the_engine_delivers_again(node: tw.Node, kind: str) -> None:
    attempts: list[object] = []

    def plain(payload: object) -> None:
        attempts.append(payload)
        if len(attempts) < 3:
            raise ValueError("not yet")

    async def later(payload: object) -> None:
        plain(payload)

    def with_message(payload: object, message: tw.Message) -> None:
        plain(payload)

    handler = {"plain": plain, "coroutine": later, "with message": with_message}[kind]
    node.agent(handler, id="a", supervision=tw.Supervision(max_deliveries=3))
    sender = node.agent(nothing, id="sender")
    receipt = sender.sync.send("x", to="a", receipt=True)
    assert receipt.wait_blocking(PATIENCE) == "handled"
    assert attempts == ["x"] * 3
    attempts[:] = []
    node.agent(handler, id="b", supervision=tw.Supervision(max_deliveries=2))
    failed = sender.sync.send("y", to="b", receipt=True)
    assert failed.wait_blocking(PATIENCE) == "failed"
    assert (attempts, str(failed.error)) == (["y"] * 2, "not yet")


@pytest.mark.promise("P11.15")
@pytest.mark.parametrize("kind", [Flaky, FlakyLater])
def test_a_message_that_had_its_retries_is_not_delivered_again_by_the_engine(node: tw.Node, kind: type[Flaky]) -> None:
    flaky = kind(9)
    node.agent(flaky, id="a", retry=tw.Retry(2, backoff_ms=1), supervision=tw.Supervision(max_deliveries=3))
    sender = node.agent(nothing, id="sender")
    receipt = sender.sync.send("x", to="a", receipt=True)
    assert receipt.wait_blocking(PATIENCE) == "failed"
    node.sync.idle(PATIENCE)
    assert flaky.attempts == [("x", 1), ("x", 2), ("x", 3)]
    (letter,) = node.dead_letters.list()
    assert (letter.reason, letter.error) == ("failed", "ValueError: x, attempt 3")


class Asked(tw.Agent):
    """Fails, with a handler for a topic."""

    def __init__(self) -> None:
        self.attempts: list[object] = []

    @tw.handle(topic="news.*")
    def on_news(self, payload: object) -> None:
        self.receive(payload)

    def receive(self, payload: object) -> None:
        self.attempts.append(payload)
        raise ValueError(payload)


@pytest.mark.promise("P11.17")
@pytest.mark.parametrize("kind", ["function", "object"])
def test_a_request_without_an_agent_gets_the_error_at_once(node: tw.Node, kind: str) -> None:
    asked = Asked()
    retry = tw.Retry(5, backoff_ms=3_600_000, backoff_max_ms=3_600_000)
    agent = node.agent(asked if kind == "object" else asked.receive, id="a", retry=retry)
    if kind == "function":
        agent.subscribe("news.*")
    with pytest.raises(ValueError, match="by ask"):
        node.sync.ask(agent.ref, "by ask", timeout=PATIENCE)
    with pytest.raises(ValueError, match="by topic"):
        node.sync.request("news.x", "by topic", timeout=PATIENCE)
    assert asked.attempts == ["by ask", "by topic"]
    assert agent.statistics()["waiting_again"] == 0
