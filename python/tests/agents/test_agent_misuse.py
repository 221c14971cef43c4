"""Bad input of agents: an error at the call that names the field, the value and the fix, with
nothing half done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tidewire as tw
from agent_support import nothing


def generator(payload: object) -> Any:
    yield payload


class Empty:
    """Has no handler."""


class TwoOfInt(tw.Agent):
    @tw.handle
    def one(self, payload: int) -> None:
        """Handle."""

    @tw.handle(payload=int)
    def other(self, payload: object) -> None:
        """Handle."""


class Nameless(tw.Agent):
    @tw.handle
    def on(self, payload):  # type: ignore[no-untyped-def]
        """Handle."""


REGISTRATIONS: list[tuple[Callable[[tw.Node], Any], str]] = [
    (lambda node: node.agent(3), "handler: 3"),
    (lambda node: node.agent(None), "handler: None"),
    (lambda node: node.agent(Empty()), "can't be an agent"),
    (lambda node: node.agent(Empty), "can't be an agent"),
    (lambda node: node.agent(generator), "generator function"),
    (lambda node: node.agent(lambda: None), "must take"),
    (lambda node: node.agent(lambda a, b, c: None), "must take"),
    (lambda node: node.agent(TwoOfInt), "another method handles int already"),
    (lambda node: node.agent(Nameless), "needs kind=, topic= or payload="),
    (lambda node: node.agent(nothing, id=""), "id: ''"),
    (lambda node: node.agent(nothing, id=3), "id: 3"),  # type: ignore[arg-type]
    (lambda node: node.agent(nothing, id="x" * 10_000), "id: "),
    (lambda node: node.agent(nothing, type=3), "type: 3"),  # type: ignore[arg-type]
    (lambda node: node.agent(nothing, capabilities="quote"), "capabilities: 'quote'"),
    (lambda node: node.agent(nothing, capabilities=[1]), "capabilities: 1"),
    (lambda node: node.agent(nothing, id="\ud800"), "id: '\\ud800'"),
    (lambda node: node.agent(nothing, type="\ud800"), "type: '\\ud800'"),
    (lambda node: node.agent(nothing, capabilities=["\ud800"]), "capabilities: '\\ud800'"),
    (lambda node: node.agent(nothing, capabilities=[[]]), "capabilities: []"),  # type: ignore[list-item]
    (lambda node: node.agent(nothing, capabilities=5), "capabilities: 5"),  # type: ignore[arg-type]
    (lambda node: node.agent(nothing, capabilities=map(str, range(5_000))), "capabilities: 5000"),
    (lambda node: node.agent(nothing, retry=3), "retry: 3"),  # type: ignore[arg-type]
    (lambda node: node.agent(nothing, mailbox=0), "mailbox.capacity: 0"),
    (lambda node: node.agent(nothing, concurrency=2), "concurrency: 2 needs coroutines"),
    (lambda node: node.agent(nothing, concurrency=0), "concurrency: 0"),
    (lambda node: node.agent(nothing, supervision="restart"), "supervision: 'restart'"),  # type: ignore[arg-type]
    (lambda node: node.agent(nothing, dispatcher="fast"), "default"),
]


@pytest.mark.parametrize(("register", "named"), REGISTRATIONS)
def test_a_registration_that_is_refused_leaves_nothing_behind(
    node: tw.Node, register: Callable[[tw.Node], Any], named: str
) -> None:
    with pytest.raises((tw.InvalidArgument, tw.UnknownDispatcher)) as caught:
        register(node)
    assert named in str(caught.value)
    assert len(node.agents) == 0
    assert node.statistics()["actors"] == []


SENDS: list[tuple[dict[str, Any], str]] = [
    ({}, "to: no recipient is named"),
    ({"to": 3}, "to: 3"),
    ({"to": b"a"}, "to: b'a'"),
    ({"to": []}, "to: []"),
    ({"to": ["a", 3]}, "to: ['a', 3]"),
    ({"to": "a", "type": "t"}, "to: 'a'"),
    ({"type": 3}, "type: 3"),
    ({"capability": ["x"]}, "capability: ['x']"),
    ({"to": "a", "kind": "shout"}, "kind: 'shout'"),
    ({"to": "a", "priority": "soonest"}, "priority: 'soonest'"),
    ({"to": "a", "priority": 3}, "priority: 3"),
    ({"to": "a", "priority": []}, "priority: []"),
    ({"to": "a", "kind": []}, "kind: []"),
    ({"to": "a", "ttl": 10**400}, "ttl: 1000"),
    ({"to": "a", "correlation_id": 3}, "correlation_id: 3"),
    ({"to": "a", "ttl": -1}, "ttl: -1"),
    ({"to": "a", "ttl": "long"}, "ttl: 'long'"),
    ({"to": "a", "ttl": float("nan")}, "ttl: nan"),
    ({"to": "a", "headers": {"x": 1}}, "headers: {'x': 1}"),
    ({"to": "a", "headers": ["x"]}, "headers: ['x']"),
    ({"to": "a", "retry": 3}, "retry: 3"),
]
OF_REQUESTS = {"to", "type", "capability", "priority", "correlation_id", "headers", "retry", "timeout"}


@pytest.mark.parametrize(("options", "named"), SENDS)
def test_a_send_that_is_refused_sends_nothing(node: tw.Node, options: dict[str, Any], named: str) -> None:
    agent = node.agent(nothing, id="a", type="t")
    sender = node.agent(nothing, id="sender")
    for send in (sender.send, sender.tell, *([sender.request] if options.keys() <= OF_REQUESTS else [])):
        with pytest.raises(tw.InvalidArgument) as caught:
            send("x", **options)
        assert named in str(caught.value)
    assert agent.sync.stop().accepted == 0


REQUESTS: list[tuple[dict[str, Any], str]] = [
    ({"to": ["a"]}, "to: ['a']"),
    ({"to": "a", "timeout": "soon"}, "timeout: 'soon'"),
    ({"to": "a", "timeout": -1}, "timeout: -1"),
    ({"to": "a", "priority": "soonest"}, "priority: 'soonest'"),
    ({"to": "a", "headers": 3}, "headers: 3"),
]


@pytest.mark.parametrize(("options", "named"), REQUESTS)
def test_a_request_that_is_refused_sends_nothing(node: tw.Node, options: dict[str, Any], named: str) -> None:
    agent = node.agent(nothing, id="a")
    sender = node.agent(nothing, id="sender")
    with pytest.raises(tw.InvalidArgument) as caught:
        sender.request("x", **options)
    assert named in str(caught.value)
    assert sender.statistics()["sent"] == 0
    assert agent.sync.stop().accepted == 0


@pytest.mark.parametrize(
    ("use", "named"),
    [
        (lambda agent: agent.publish("a.b", 1, headers=3), "headers: 3"),
        (lambda agent: agent.publish("a.b", 1, headers={"x": 1}), "headers: {'x': 1}"),
        (lambda agent: agent.broadcast(1, type=3), "type: 3"),
        (lambda agent: agent.broadcast(1, capability=[]), "capability: []"),
        (lambda agent: agent.node.agents.get([]), "id: []"),
        (lambda agent: agent.node.agents.list(type=[]), "type: []"),
    ],
)
def test_other_calls_name_what_is_wrong_too(node: tw.Node, use: Callable[[tw.Agent], Any], named: str) -> None:
    agent = node.agent(nothing, id="a")
    with pytest.raises(tw.InvalidArgument) as caught:
        use(agent)
    assert named in str(caught.value)
    assert agent.statistics()["sent"] == 0


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: tw.Retry(-1), "retry.limit: -1"),
        (lambda: tw.Retry(1.5), "retry.limit: 1.5"),  # type: ignore[arg-type]
        (lambda: tw.Retry(True), "retry.limit: True"),
        (lambda: tw.Retry(1, -1), "retry.backoff_ms: -1"),
        (lambda: tw.Retry(1, 1, float("nan")), "retry.backoff_max_ms: nan"),
        (lambda: tw.handle(kind="shout"), "kind: 'shout'"),
        (lambda: tw.handle(topic=3), "topic: 3"),  # type: ignore[arg-type]
        (lambda: tw.handle(payload="int"), "payload: 'int'"),  # type: ignore[arg-type]
        (lambda: tw.Agent().send(1, to="a"), "is not registered"),
        (lambda: tw.Agent().status, "is not registered"),
    ],
)
def test_a_wrong_value_is_named(make: Callable[[], Any], named: str) -> None:
    with pytest.raises(tw.InvalidArgument) as caught:
        make()
    assert named in str(caught.value)


def test_one_object_is_one_agent(node: tw.Node) -> None:
    class One(tw.Agent):
        def receive(self, payload: object) -> None:
            """Handle."""

    one = One()
    assert node.agent(one, id="a") is one
    with pytest.raises(tw.InvalidArgument, match="is registered already"):
        node.agent(one, id="b")
    assert [agent.id for agent in node.agents] == ["a"]
    one.sync.stop()
    assert node.agent(one, id="b") is one


def test_a_malformed_topic_is_refused_and_the_agent_is_not_registered(node: tw.Node) -> None:
    class Reader(tw.Agent):
        @tw.handle(topic="a..b")
        def on(self, payload: object) -> None:
            """Handle."""

    with pytest.raises(tw.InvalidSubject):
        node.agent(Reader, id="r")
    assert len(node.agents) == 0
    agent = node.agent(nothing, id="r")
    for wrong in ("a..b", "", 3, []):
        with pytest.raises(tw.InvalidArgument):
            agent.subscribe(wrong)  # type: ignore[arg-type]
        with pytest.raises(tw.InvalidArgument):
            agent.publish(wrong, 1)  # type: ignore[arg-type]
    assert node.subscriptions(agent.ref) == []


async def test_blocking_calls_are_refused_on_the_loop(node: tw.Node) -> None:
    agent = node.agent(nothing, id="a")
    for call in (agent.sync.send, agent.sync.request, agent.sync.share):
        with pytest.raises(tw.InvalidArgument, match="would block this thread's event loop"):
            call({}, to="a")
    with pytest.raises(tw.InvalidArgument, match="would block"):
        agent.sync.stop()
    receipt = await agent.send(1, to="a", receipt=True)
    with pytest.raises(tw.InvalidArgument, match="would block"):
        receipt.wait_blocking()
    assert await receipt.wait(30) == "handled"


async def test_agents_of_a_stopped_node_say_so() -> None:
    node = tw.Node()
    async with node:
        agent = node.agent(nothing, id="a")
    assert agent.status == "stopped"
    with pytest.raises(tw.NoSuchTarget):
        agent.send(1, to="a")
    with pytest.raises(tw.NodeStopped):
        node.agent(nothing, id="b")
    with pytest.raises(tw.NodeStopped):
        agent.publish("a.b", 1)


def test_a_second_queue_for_a_topic_is_refused_and_the_first_one_stays(node: tw.Node) -> None:
    agent = node.agent(nothing, id="a")
    assert agent.subscribe("x.*", queue="one") == ["x.*"]
    assert agent.subscribe("x.*", queue="one") == ["x.*"]
    for other in ("two", None):
        with pytest.raises(tw.InvalidArgument, match=r"subscribed to 'x\.\*' with queue='one' already: unsubscribe"):
            agent.subscribe("x.*", queue=other)
    assert node.publish("x.y", 1) == 1
    assert agent.unsubscribe("x.*") == []
    assert agent.subscribe("x.*", queue="two") == ["x.*"]


@pytest.mark.parametrize("retry", [None, tw.Retry(1, backoff_ms=1)])
def test_a_plain_handler_that_returns_a_coroutine_fails_its_message(node: tw.Node, retry: tw.Retry | None) -> None:
    async def later(payload: object) -> object:
        return payload

    node.agent(lambda payload: later(payload), id="a", retry=retry)
    desk = node.agent(nothing, id="desk")
    with pytest.raises(tw.InvalidArgument, match=r"handler: it returned <coroutine .* make the handler itself"):
        desk.sync.request(1, to="a", retry=tw.Retry(0))
    receipt = desk.sync.send(1, to="a", receipt=True)
    assert receipt.wait_blocking(30) == "failed"
    assert isinstance(receipt.error, tw.InvalidArgument)


@pytest.mark.promise("P4.4")
def test_beside_coroutines_a_coroutine_of_a_plain_handler_is_awaited(node: tw.Node) -> None:
    class Mixed(tw.Agent):
        @tw.handle(payload=str)
        def on_text(self, payload: str) -> Any:
            return self.on_number(len(payload))

        @tw.handle(payload=int)
        async def on_number(self, payload: int) -> int:
            return payload + 1

    node.agent(Mixed(), id="a")
    desk = node.agent(nothing, id="desk")
    assert [desk.sync.request(payload, to="a") for payload in (1, "xyz")] == [2, 4]
