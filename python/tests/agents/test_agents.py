"""Agents: who gets a message, in which order, and what the sender learns of it."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest
import tidewire as tw
from agent_support import PATIENCE, Gate, nothing


@pytest.mark.promise("P11.9")
@pytest.mark.parametrize("value", [0, "", None, [], {}, False, 0.0, (), {"a": 1}, [1, 2], b"x", object()])
async def test_a_request_gets_whatever_the_handler_returns(node: tw.Node, value: object) -> None:
    async def later(payload: object) -> object:
        return payload

    node.agent(lambda payload: payload, id="plain")
    node.agent(later, id="later")
    asker = node.agent(nothing, id="asker")
    for to in ("plain", "later"):
        assert await asker.request(value, to=to) is value


def test_a_message_is_handled_before_those_of_lower_priority(node: tw.Node) -> None:
    gate, sender = Gate(node), node.agent(nothing, id="sender")
    gate.hold(sender)
    lanes = ("low", "normal", "high", "urgent")
    for lane in lanes:
        sender.tell(lane, to="gate", priority=lane)
        sender.sync.send(lane, to="gate", priority=lane)
    gate.open.set()
    gate.agent.sync.stop()
    assert gate.seen == [lane for lane in reversed(lanes) for _ in range(2)]


@pytest.mark.promise("P11.5")
def test_nobody_to_send_to_is_an_error_at_the_call(node: tw.Node) -> None:
    sender = node.agent(nothing, id="sender", type="t")
    for options in ({"to": "nobody"}, {"type": "x"}, {"capability": "x"}, {"type": "t", "capability": "x"}):
        for send in (sender.send, sender.request, sender.tell):
            with pytest.raises(tw.NoSuchTarget, match="registered are 'sender'"):
                send(1, **options)  # type: ignore[operator]
    with pytest.raises(tw.NoSuchTarget):
        sender.tell(1, to=["sender", "nobody"])
    assert sender.statistics()["accepted"] == 0, "one that is missing: nobody gets anything"


@pytest.mark.promise("P11.2")
def test_an_id_is_taken_until_its_agent_has_stopped(node: tw.Node) -> None:
    sender = node.agent(nothing, id="sender")
    first = node.agent(nothing, id="a", capabilities=["x"])
    node.spawn(nothing, name="plain")
    for taken in ("a", "plain"):
        with pytest.raises(tw.NameTaken):
            node.agent(nothing, id=taken)
    assert list(node.agents) == [sender, first]
    first.sync.stop()
    assert first.status == "stopped"
    assert node.agents.get("a") is None
    with pytest.raises(tw.NoSuchTarget):
        sender.tell(1, capability="x")
    second = node.agent(nothing, id="a", capabilities=["x"])
    assert node.agents.get("a") is second
    assert node.lookup("a") == second.ref


@pytest.mark.promise("P11.4")
def test_the_one_with_the_least_outstanding_work_is_chosen_and_equal_ones_in_turn(node: tw.Node) -> None:
    gate = Gate(node, capabilities=["work"])
    free = [node.agent(nothing, id=f"free-{n}", capabilities=["work"]) for n in range(3)]
    sender = node.agent(nothing, id="sender")
    gate.hold(sender)
    for n in range(300):
        sender.sync.request(n, capability="work")
    gate.open.set()
    counts = [agent.sync.stop().handled for agent in free]
    assert sum(counts) == 300, "the one that is held got none"
    assert min(counts) >= 50


@pytest.mark.promise("P11.1", "P11.3")
def test_a_thousand_agents_are_found_by_capability(node: tw.Node) -> None:
    for n in range(1_000):
        node.agent(nothing, id=f"agent-{n}", type="even" if n % 2 == 0 else "odd", capabilities=["all", f"only-{n}"])
    assert len(node.agents) == 1_000
    assert [agent.id for agent in node.agents.list(capability="only-617")] == ["agent-617"]
    assert len(node.agents.list(type="odd", capability="all")) == 500
    sender = node.agent(nothing, id="sender")
    for n in range(1_000):
        sender.tell(n, capability="all")
    for n in range(1_000):
        sender.tell(n, capability=f"only-{n}")
    handled = [agent.sync.stop().handled for agent in node.agents.list(capability="all")]
    assert sum(handled) == 2_000
    assert min(handled) >= 1
    assert max(handled) <= 3, "of many, the choice moves on"


@pytest.mark.promise("P11.8")
def test_a_broadcast_reaches_everybody_else_and_a_full_one_harms_nobody(node: tw.Node) -> None:
    seen: dict[str, list[Any]] = {}
    arrived = threading.Semaphore(0)

    def keeper(name: str) -> Callable[[Any], None]:
        def handler(payload: object) -> None:
            seen.setdefault(name, []).append(payload)
            arrived.release()

        return handler

    gate = Gate(node, mailbox=1)
    for name in ("a", "b", "c"):
        node.agent(keeper(name), id=name, type="keeper")
    sender = node.agent(keeper("sender"), id="sender")
    gate.hold(sender)
    sender.tell("fills the mailbox", to="gate")
    assert sender.broadcast("x") == 3
    assert sender.broadcast("y", type="keeper") == 3
    assert sender.broadcast("z", include_self=True) == 4
    for _ in range(10):
        assert arrived.acquire(timeout=PATIENCE)
    gate.open.set()
    assert seen == {"a": ["x", "y", "z"], "b": ["x", "y", "z"], "c": ["x", "y", "z"], "sender": ["z"]}
    letters = node.dead_letters.list(reason="mailbox_full", name="gate")
    assert [letter.message.payload for letter in letters] == ["x", "z"]


async def test_a_thousand_cancelled_requests_leave_nothing_behind(node: tw.Node) -> None:
    release = asyncio.Event()
    begun = asyncio.Event()

    async def handler(payload: object) -> None:
        begun.set()
        await release.wait()

    node.agent(handler, id="a")
    asker = node.agent(nothing, id="asker")
    tasks = [asyncio.ensure_future(asker.request(n, to="a")) for n in range(1_000)]
    await asyncio.wait_for(begun.wait(), PATIENCE)
    for task in tasks:
        task.cancel()
    assert all(isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*tasks, return_exceptions=True))
    statistics = node.statistics()
    assert (statistics["timers"], statistics["waiting_for_others"]) == (0, 0)
    release.set()
    ledger = await node.agents.list()[0].stop()
    assert ledger.accepted == 1_000
    assert ledger.handled + ledger.dead_lettered == 1_000
    assert ledger.handled <= 1, "what nobody waits for is not begun"


@pytest.mark.promise("P11.3", "P11.24")
def test_shared_context_is_a_copy_that_the_recipient_keeps(node: tw.Node) -> None:
    seen: list[Any] = []
    a = node.agent(lambda payload: len(seen), id="a")

    class Curious(tw.Agent):
        @tw.handle(kind="context")
        def on_context(self, context: object, message: tw.Message) -> None:
            seen.append((context, message.sender, message.kind))

        def receive(self, payload: object) -> int:
            return len(seen)

    curious = node.agent(Curious, id="curious")
    sender = node.agent(nothing, id="sender")
    facts = {"season": "winter"}
    sender.sync.share(facts, to=["a", "curious"])
    facts["season"] = "summer"
    assert sender.sync.request(1, to="curious") == 1
    sender.sync.request(1, to="a")
    assert a.context == {"season": "winter"}
    assert seen == [({"season": "winter"}, "sender", "context")]
    assert curious.context == {}


def test_topics_reach_agents_and_plain_subscribers_alike(node: tw.Node) -> None:
    got: list[Any] = []
    arrived = threading.Semaphore(0)

    def note(*what: object) -> None:
        got.append(what)
        arrived.release()

    class Reader(tw.Agent):
        @tw.handle(topic="news.*")
        def on_news(self, payload: object, message: tw.Message) -> None:
            note("reader", payload, message.topic, message.sender, message.headers.get("x"))

    node.agent(Reader, id="reader")
    later = node.agent(lambda payload: note("later", payload), id="later")
    node.subscribe("news.>", lambda payload: note("plain", payload))
    sender = node.agent(nothing, id="sender")
    assert later.subscribe("news.sport") == ["news.sport"]
    assert sender.publish("news.sport", 1, headers={"x": "y"}) == 3
    for _ in range(3):
        assert arrived.acquire(timeout=PATIENCE)
    assert sorted(got) == [("later", 1), ("plain", 1), ("reader", 1, "news.sport", "sender", "y")]
    assert later.unsubscribe("news.sport") == []
    assert sender.publish("news.sport", 2) == 2
    assert node.publish("news.x", 3) == 2, "a node's publish reaches agents too"


@pytest.mark.promise("P11.3", "P11.25")
def test_handlers_are_found_by_topic_then_type_then_kind_then_receive(node: tw.Node) -> None:
    class Base:
        pass

    class Derived(Base):
        pass

    class Clerk(tw.Agent):
        type = "clerk"
        capabilities = ("file",)

        @tw.handle
        def of_base(self, payload: Base) -> str:
            return "base"

        @tw.handle(payload=int)
        async def of_int(self, payload: int) -> str:
            return "int"

        @tw.handle(kind="status")
        def of_status(self, payload: object) -> str:
            return "status"

        def receive(self, payload: object) -> str:
            return f"receive {payload}"

    clerk = node.agent(Clerk)
    assert (clerk.type, clerk.capabilities) == ("clerk", {"file"})
    assert clerk.id.startswith("clerk-")
    sender = node.agent(nothing, id="sender")
    found = [sender.sync.request(payload, type="clerk") for payload in (Derived(), 3, "x")]
    assert found == ["base", "int", "receive x"]
    receipt = sender.sync.send(None, to=clerk.id, kind="status", receipt=True)
    assert receipt.wait_blocking(PATIENCE) == "handled"


@pytest.mark.promise("P11.26")
def test_a_message_that_no_handler_takes_is_an_error_or_goes_to_unhandled(node: tw.Node) -> None:
    class Picky(tw.Agent):
        @tw.handle
        def of_int(self, payload: int) -> int:
            return payload

    class Open(Picky):
        def unhandled(self, message: tw.Message) -> str:
            return f"left: {message.payload}"

    node.agent(Picky, id="picky")
    node.agent(Open, id="open")
    sender = node.agent(nothing, id="sender")
    with pytest.raises(tw.Unhandled, match="with a str"):
        sender.sync.request("x", to="picky")
    assert sender.sync.request("x", to="open") == "left: x"


@pytest.mark.promise("P11.9")
async def test_a_handler_can_answer_early_and_go_on(node: tw.Node) -> None:
    answered = asyncio.Event()
    after: list[Any] = []

    async def handler(payload: object, message: tw.Message) -> str:
        assert message.respond("early")
        await answered.wait()
        after.append(payload)
        with pytest.raises(tw.InvalidArgument, match="replied to already"):
            message.respond("again")
        return "late"

    agent = node.agent(handler, id="a")
    asker = node.agent(nothing, id="asker")
    assert await asker.request(1, to="a", timeout=PATIENCE) == "early"
    answered.set()
    await agent.stop()
    assert after == [1]
    with pytest.raises(tw.InvalidArgument, match="second parameter"):
        asker.respond(tw.Message(1), 2)


def test_status_follows_what_an_agent_does(node: tw.Node) -> None:
    started = threading.Event()

    class Slow(tw.Agent):
        def started(self) -> None:
            assert started.wait(PATIENCE)

        def receive(self, payload: object) -> object:
            if payload == "fail":
                raise ValueError(payload)
            return payload

    slow = node.agent(Slow, id="slow")
    assert slow.status == "starting"
    started.set()
    sender = node.agent(nothing, id="sender")
    sender.sync.request(1, to="slow")
    with pytest.raises(ValueError, match="fail"):
        sender.sync.request("fail", to="slow")
    assert slow.status == "failing"
    gate = Gate(node)
    gate.hold(sender)
    assert gate.agent.status == "busy"
    gate.open.set()
    slow.sync.stop()
    assert slow.status == "stopped"
    assert repr(slow) == "<Slow 'slow', stopped>"


@pytest.mark.promise("P7.19")
@pytest.mark.parametrize("start", [0, 5], ids=["class", "partial"])
def test_each_restart_of_an_agent_gives_new_state_and_the_same_handle(node: tw.Node, start: int) -> None:
    class Counter(tw.Agent):
        def __init__(self, start: int = 0) -> None:
            self.count = start

        def receive(self, payload: object) -> int:
            if payload == "fail":
                raise ValueError(payload)
            self.count += 1
            return self.count

    target = functools.partial(Counter, start) if start else Counter
    counter = node.agent(target, id="c", supervision=tw.Supervision("restart", backoff_ms=0))
    sender = node.agent(nothing, id="sender")
    for restarts in range(3):
        assert [sender.sync.request(1, to="c") for _ in range(2)] == [start + 1, start + 2]
        assert counter.statistics()["restarts"] == restarts
        with pytest.raises(ValueError, match="fail"):
            sender.sync.request("fail", to="c")


@pytest.mark.promise("P7.19")
def test_a_restart_of_one_object_is_refused_and_says_what_to_give(node: tw.Node) -> None:
    class Keeps:
        def receive(self, payload: object) -> None:
            """Handle."""

    restart = tw.Supervision("restart")
    for make, field in ((node.agent, "handler"), (node.spawn, "target")):
        with pytest.raises(tw.InvalidArgument, match=f"on_failure='restart' .*give its class, {field}=.*Keeps"):
            make(Keeps(), supervision=restart)  # type: ignore[operator]
    for durable in (Keeps, nothing):
        with pytest.raises(tw.InvalidArgument, match="on_failure='restart' is not allowed with durable="):
            node.agent(durable, id="a", durable="inbox", supervision=restart)
    assert node.statistics()["actors"] == [] and list(node.agents) == []
