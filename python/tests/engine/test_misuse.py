"""Mistakes of a new user: an error at the call, which names the field, the value and the fix, and
nothing lost.
"""

from __future__ import annotations

import asyncio
import pickle
import re
from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Any

import pytest
import tidewire as tw


def generator(message: object) -> Any:
    yield message


async def async_generator(message: object) -> Any:
    yield message


async def coroutine(message: object) -> object:
    return message


class NoReceive:
    pass


class Batched:
    def receive(self, message: object) -> None: ...
    def handle_batch(self, messages: list[object]) -> None: ...


class GeneratorCall:
    def __call__(self, message: object) -> Any:
        yield message


class StopHookWithContext:
    def receive(self, message: object) -> None: ...
    def stopped(self, ctx: object) -> None: ...


class BatchOfTwo:
    def receive(self, message: object) -> None: ...
    def handle_batch(self, messages: object, ctx: object) -> None: ...


class GeneratorHook:
    def receive(self, message: object) -> None: ...
    def started(self) -> Any:
        yield


class AsyncHookOnly:
    async def started(self) -> None: ...
    def receive(self, message: object) -> None: ...


TARGETS: list[tuple[object, str]] = [
    (None, "None can't be an actor"),
    (42, "42 can't be an actor"),
    (NoReceive, "has no method receive"),
    (generator, "is a generator function"),
    (async_generator, "is a generator function"),
    (lambda: None, "must take"),
    (lambda a, b, c: None, "must take"),
    (AsyncHookOnly, "make both async, or neither"),
    (GeneratorCall(), "is a generator function"),
    (partial(generator), "is a generator function"),
    (GeneratorHook, "started: .* is a generator function"),
    (StopHookWithContext, r"stopped: .* must take nothing"),
    (BatchOfTwo, r"handle_batch: .* must take \(messages\)"),
]

NO_TIMES: list[object] = ["soon", -1, float("nan"), float("inf"), 1e300, 10**400, b"1", [1], False]
NO_HEADERS: list[object] = [[1], {1: 2}, {"a": 2}, {b"a": "b"}, "a=b", 5]


@pytest.mark.parametrize(("target", "says"), TARGETS)
def test_a_target_that_cannot_be_an_actor_is_refused(node: tw.Node, target: Any, says: str) -> None:
    with pytest.raises(tw.InvalidArgument, match=says):
        node.spawn(target)
    assert node.statistics()["actors"] == []


OPTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"mailbox": 0}, tw.InvalidArgument, "capacity: 0"),
    ({"mailbox": -1}, tw.InvalidArgument, "capacity: -1"),
    ({"mailbox": 10**12}, tw.InvalidArgument, "capacity: 1000000000000"),
    ({"mailbox": "big"}, tw.InvalidArgument, "capacity: 'big'"),
    ({"mailbox": True}, tw.InvalidArgument, "capacity: True"),
    ({"name": "x" * 1_000}, tw.InvalidArgument, "name: 1000"),
    ({"dispatcher": "nowhere"}, tw.UnknownDispatcher, "default"),
    ({"concurrency": 4}, tw.InvalidArgument, "needs coroutines"),
    ({"supervision": "restart"}, tw.InvalidArgument, "supervision: 'restart'"),
    ({"mailbx": 5}, tw.InvalidArgument, "mailbx=5"),
]


@pytest.mark.promise("P1.3")
@pytest.mark.parametrize(("options", "error", "says"), OPTIONS)
def test_wrong_options_are_refused(node: tw.Node, options: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        node.spawn(lambda _: None, **options)
    assert node.statistics()["actors"] == []


@pytest.mark.promise("P1.8")
def test_a_taken_name_is_refused_and_nothing_is_spawned(node: tw.Node) -> None:
    node.spawn(lambda _: None, name="one")
    with pytest.raises(tw.NameTaken, match="one"):
        node.spawn(lambda _: None, name="one")
    assert len(node.statistics()["actors"]) == 1
    with pytest.raises(tw.NoSuchTarget, match="'two'"):
        node.tell(["one", "two"], "hello")
    assert node.statistics()["actors"][0]["accepted"] == 0


CALLS: list[tuple[Callable[[Any, Any], Any], type[Exception], str]] = [
    (lambda node, ref: ref.tell(), TypeError, "message"),
    (lambda node, ref: ref.tell(1, urgency="high"), TypeError, "urgency"),
    (lambda node, ref: node.schedule(1, "ref", 1), tw.InvalidArgument, "'ref' is not an actor"),
    (lambda node, ref: node.subscribe("a", 42), tw.InvalidArgument, "42 can't be an actor"),
    (lambda node, ref: node.subscribe("a..b", ref), tw.InvalidSubject, "a..b"),
    (lambda node, ref: node.subscribe("\ud800", ref), tw.InvalidSubject, "pattern: .* surrogates"),
    (lambda node, ref: node.publish("\ud800", 1), tw.InvalidSubject, "subject: .* surrogates"),
    (lambda node, ref: node.publish("a.*", 1), tw.InvalidSubject, r"a\.\*"),
    (lambda node, ref: node.set_subscriptions(ref, ["a", "b..c"]), tw.InvalidSubject, r"b\.\.c"),
    (lambda node, ref: ref.request_become(42), tw.InvalidArgument, "handler: 42 is not callable"),
    (lambda node, ref: ref.request_become(generator), tw.InvalidArgument, "generator"),
    (lambda node, ref: ref.request_become(lambda a, b, c: None), tw.InvalidArgument, "must take"),
    (lambda node, ref: ref.request_become(coroutine), tw.InvalidArgument, "handler: coroutine is a coroutine function"),
    (lambda node, ref: ref.request_become(partial(coroutine)), tw.InvalidArgument, "is a coroutine function"),
    (lambda node, ref: pickle.dumps(ref), tw.InvalidArgument, "can't be pickled"),
    (lambda node, ref: node.dead_letters.requeue(99), tw.NoSuchTarget, "no dead letter"),
    (lambda node, ref: node.spawn(coroutine, dispatcher="nowhere"), tw.UnknownDispatcher, "nowhere"),
    (lambda node, ref: node.spawn(Batched, dispatcher="asyncio"), tw.InvalidArgument, "dispatcher: 'asyncio'"),
    (lambda node, ref: tw.Node("ftp://x"), tw.InvalidArgument, "ftp://x"),
    (lambda node, ref: tw.Node(name=""), tw.InvalidArgument, "name: ''"),
]


@pytest.mark.parametrize(("call", "error", "says"), CALLS)
def test_wrong_calls_are_refused_at_the_call(
    node: tw.Node, call: Callable[[Any, Any], Any], error: Any, says: str
) -> None:
    ref = node.spawn(lambda _: None)
    before = what_there_is(node)
    with pytest.raises(error, match=says):
        call(node, ref)
    assert what_there_is(node) == before


ARGUMENTS: list[tuple[Callable[[Any, Any, Any], Any], str, list[object]]] = [
    (lambda node, ref, x: ref.tell(1, priority=x), "priority", ["soonest", 3, b"high", "\ud800"]),
    (lambda node, ref, x: ref.try_tell(1, priority=x), "priority", ["soonest", 3]),
    (lambda node, ref, x: ref.send(1, priority=x), "priority", ["soonest", 3]),
    (lambda node, ref, x: ref.try_send(1, priority=x), "priority", ["soonest", 3]),
    (lambda node, ref, x: node.sync.send(ref, 1, priority=x), "priority", ["soonest", 3]),
    (lambda node, ref, x: node.sync.send(x, 1), "actor", [None, 7, "name"]),
    (lambda node, ref, x: node.sync.ask(x, 1), "ref", [None, 3, "name"]),
    (lambda node, ref, x: node.sync.stop(x), "ref", [None, 3, "name"]),
    (lambda node, ref, x: ref.ask(1, timeout=x), "timeout", [*NO_TIMES, True]),
    (lambda node, ref, x: node.sync.ask(ref, 1, timeout=x), "timeout", NO_TIMES),
    (lambda node, ref, x: ref.stop(timeout=x), "timeout", NO_TIMES),
    (lambda node, ref, x: ref.stop(drain=x), "drain", ["no", 0, None]),
    (lambda node, ref, x: ref.request_become(print, stack=x), "stack", ["yes", 1, None]),
    (lambda node, ref, x: node.tell(x, 1), "name", [5, None, "\ud800"]),
    (lambda node, ref, x: node.tell(["known", x], 1), "name", [7, b"x", None]),
    (lambda node, ref, x: node.tell("known", 1, priority=x), "priority", ["soonest", 3]),
    (lambda node, ref, x: node.lookup(x), "name", [b"x", 7, None, "\ud800"]),
    (lambda node, ref, x: node.spawn(print, name=x), "name", [b"x", 7, "", "\ud800"]),
    (lambda node, ref, x: node.spawn(print, dispatcher=x), "dispatcher", [b"x", 7, None, "\ud800"]),
    (lambda node, ref, x: node.spawn(coroutine, concurrency=x), "concurrency", [0, 10_001, True, 2.0, "many"]),
    (lambda node, ref, x: node.subscribe(x, ref), "pattern", [5, None, b"a", ["a"]]),
    (lambda node, ref, x: node.subscribe(x, print), "pattern", [5, None, b"a", ["a"]]),
    (lambda node, ref, x: node.subscribe("a", ref, queue=x), "queue", [5, "", b"q", "\ud800"]),
    (lambda node, ref, x: node.subscription(x), "pattern", [5, None]),
    (lambda node, ref, x: node.subscription("a", capacity=x), "capacity", [0, -1, 10**7, True, 1.5, "all"]),
    (lambda node, ref, x: node.subscription("a", overflow=x), "mailbox.overflow", ["explode", 5, ["wait"]]),
    (lambda node, ref, x: node.subscription("a", queue=x), "queue", [5, ""]),
    (lambda node, ref, x: node.set_subscriptions(ref, x), "patterns", ["a.b", 5, None]),
    (lambda node, ref, x: node.set_subscriptions(ref, ["a", x]), "pattern", [5, None]),
    (lambda node, ref, x: node.set_subscriptions(x, ["a"]), "actor", [None, 7]),
    (lambda node, ref, x: node.unsubscribe(ref, x), "pattern", [5, None]),
    (lambda node, ref, x: node.unsubscribe(x, "a"), "actor", [None, 7]),
    (lambda node, ref, x: node.unsubscribe_all(x), "actor", [None, 7]),
    (lambda node, ref, x: node.subscriptions(x), "actor", [None, 7]),
    (lambda node, ref, x: node.publish(x, 1), "subject", [5, None, b"a"]),
    (lambda node, ref, x: node.publish("known", 1, headers=x), "headers", NO_HEADERS),
    (lambda node, ref, x: node.request(x, 1), "subject", [5, None, b"a"]),
    (lambda node, ref, x: node.request("known", 1, headers=x), "headers", NO_HEADERS),
    (lambda node, ref, x: node.request("known", 1, timeout=x), "timeout", NO_TIMES),
    (lambda node, ref, x: node.schedule(x, ref, 1), "delay", [*NO_TIMES, None]),
    (lambda node, ref, x: node.schedule(1, ref, 1, every=x), "every", [*NO_TIMES, 0, 0.0, 1e-9]),
    (lambda node, ref, x: node.schedule(1, x, 1), "ref", [None, 7]),
    (lambda node, ref, x: node.dead_letters.requeue(x), "letter", ["1", -1, None, True, 1.0, 2**64]),
    (lambda node, ref, x: node.dead_letters.drop(x), "letter", ["1", -1, True, 1.0, 2**64]),
    (lambda node, ref, x: node.dead_letters.list(limit=x), "limit", ["1", -1, True, 1.0]),
    (lambda node, ref, x: node.dead_letters.list(actor=x), "actor", ["1", True, object()]),
    (lambda node, ref, x: node.dead_letters.list(reason=x), "reason", [1, ["failed"]]),
    (lambda node, ref, x: tw.Mailbox(x), "mailbox.capacity", [0, 10.5, 1_000_001, True]),
    (lambda node, ref, x: tw.Mailbox(10, x), "mailbox.overflow", ["explode", 5]),
    (lambda node, ref, x: tw.Supervision(max_deliveries=x), "supervision.max_deliveries", [0, 1_001, 1.5]),
    (lambda node, ref, x: tw.Supervision(max_restarts=x), "supervision.max_restarts", [-1, 1_000_001, "1"]),
    (lambda node, ref, x: tw.Supervision(backoff_ms=x), "supervision.backoff_ms", [-1, 86_400_001]),
    (lambda node, ref, x: tw.Supervision(backoff_max_ms=x), "supervision.backoff_max_ms", [-1, True]),
    (lambda node, ref, x: tw.Supervision(window_ms=x), "supervision.window_ms", [0, "1", True, float("nan")]),
    (lambda node, ref, x: tw.Supervision(on_failure=x), "supervision.on_failure", ["explode", ["stop"], None]),
]
NAMED = [
    pytest.param(call, field, x, id=re.sub(" at 0x[0-9a-f]+", "", f"{n}-{field}-{x!a}")[:60])
    for n, (call, field, values) in enumerate(ARGUMENTS)
    for x in values
]


@pytest.mark.parametrize(("call", "field", "value"), NAMED)
def test_the_error_names_the_field_and_the_value_and_nothing_is_left_behind(
    node: tw.Node, call: Callable[[Any, Any, Any], Any], field: str, value: object
) -> None:
    ref = node.spawn(lambda _: None, name="known")
    node.subscribe("known", ref)
    before = what_there_is(node)
    with pytest.raises(tw.InvalidArgument) as caught:
        call(node, ref, value)
    said = str(caught.value)
    assert said.startswith(f"{field}: "), said
    # The engine, which looks at the length of names, shows them in quotes of its own.
    assert repr(value)[:100] in said or value == "", said
    assert what_there_is(node) == before
    assert node.sync.stop(ref).accepted == 0


def what_there_is(node: tw.Node) -> object:
    """Everything that a refused call could leave behind."""
    now = node.statistics()
    actors = [(row["id"], row["accepted"], row["failed"], row["dropped"]) for row in now["actors"]]
    return actors, now["timers"], now["subscriptions"], now["dead_letters"]


def test_a_class_whose_actor_is_refused_is_not_called(node: tw.Node) -> None:
    called: list[object] = []

    class Actor:
        def __init__(self) -> None:
            called.append(self)

        def receive(self, message: object) -> None: ...

    for wrong in ({"name": 7}, {"mailbox": 0}, {"concurrency": 0}, {"supervision": "stop"}, {"dispatcher": None}):
        with pytest.raises(tw.InvalidArgument):
            node.spawn(Actor, **wrong)  # type: ignore[arg-type]
    assert called == []


def test_a_stop_that_is_refused_has_stopped_nothing(node: tw.Node) -> None:
    async def stop(timeout: Any) -> None:
        await node.stop(timeout)

    for timeout in NO_TIMES:
        with pytest.raises(tw.InvalidArgument, match="timeout: "):
            asyncio.run(stop(timeout))
    assert node.ledger is None
    assert node.sync.ask(node.spawn(lambda n: n), 1) == 1


def test_any_mapping_of_strings_can_be_headers(node: tw.Node) -> None:
    ref = node.spawn(lambda _, ctx: dict(ctx.headers))
    node.subscribe("a", ref)
    for headers in ({"a": "1"}, MappingProxyType({"a": "1"})):
        assert node.sync.request("a", None, headers=headers) == {"a": "1"}


def test_a_long_value_is_cut_in_the_error(node: tw.Node) -> None:
    with pytest.raises(tw.InvalidArgument) as caught:
        node.lookup([0] * 100_000)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 300


async def test_a_plain_block_of_a_node_is_refused_on_an_event_loop() -> None:
    with pytest.raises(tw.InvalidArgument, match="async with"), tw.Node():
        pass


def test_a_stopped_actor_takes_nothing(node: tw.Node) -> None:
    ref = node.spawn(lambda n: n)
    node.sync.stop(ref)
    for call in (lambda: ref.tell(1), lambda: node.sync.send(ref, 1), lambda: node.sync.ask(ref, 1)):
        with pytest.raises(tw.ActorStopped, match="takes no more messages"):
            call()
    assert ref.try_tell(1) is False
    with pytest.raises(tw.ActorStopped):
        node.subscribe("a.b", ref)


def test_every_error_has_a_code_and_says_whether_to_try_again() -> None:
    assert tw.MailboxFull.code == "mailbox_full"
    assert tw.MailboxFull.retryable and not tw.NameTaken.retryable
    for name in tw.__all__:
        thing = getattr(tw, name)
        if isinstance(thing, type) and issubclass(thing, Exception):
            assert issubclass(thing, tw.TidewireError)
            assert isinstance(thing.code, str) and isinstance(thing.retryable, bool)
