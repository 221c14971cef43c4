"""What a new user gets wrong: an error at the call, which names the field, the value and the mend, and nothing lost."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw


def generator(message: object) -> Any:
    yield message


async def async_generator(message: object) -> Any:
    yield message


class NoReceive:
    pass


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
]


@pytest.mark.parametrize(("target", "says"), TARGETS)
def test_what_cannot_be_an_actor_is_refused(node: tw.Node, target: Any, says: str) -> None:
    with pytest.raises(tw.InvalidArgument, match=says):
        node.spawn(target)
    assert node.statistics()["actors"] == []


OPTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"mailbox": 0}, tw.InvalidArgument, "capacity: 0"),
    ({"mailbox": -1}, tw.InvalidArgument, "capacity: -1"),
    ({"mailbox": 10**12}, tw.InvalidArgument, "capacity: 1000000000000"),
    ({"mailbox": "big"}, tw.InvalidArgument, "capacity: 'big'"),
    ({"mailbox": True}, tw.InvalidArgument, "capacity: True"),
    ({"name": ""}, tw.InvalidArgument, "name"),
    ({"name": 7}, tw.InvalidArgument, "name: 7"),
    ({"name": "x" * 1_000}, tw.InvalidArgument, "name: 1000"),
    ({"dispatcher": "nowhere"}, tw.UnknownDispatcher, "default"),
    ({"dispatcher": 7}, tw.InvalidArgument, "dispatcher: 7"),
    ({"concurrency": 0}, tw.InvalidArgument, "concurrency: 0"),
    ({"concurrency": 4}, tw.InvalidArgument, "needs coroutines"),
    ({"supervision": "restart"}, tw.InvalidArgument, "supervision: 'restart'"),
    ({"mailbx": 5}, tw.InvalidArgument, "mailbx=5"),
]


@pytest.mark.parametrize(("options", "error", "says"), OPTIONS)
def test_wrong_options_are_refused(node: tw.Node, options: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        node.spawn(lambda _: None, **options)
    assert node.statistics()["actors"] == []


def test_wrong_settings_of_supervision_and_mailbox_are_refused() -> None:
    for make, says in [
        (lambda: tw.Supervision("explode"), "on_failure: 'explode'"),  # type: ignore[arg-type]
        (lambda: tw.Supervision(max_deliveries=0), "max_deliveries: 0"),
        (lambda: tw.Supervision(backoff_ms=-1), "backoff_ms: -1"),
        (lambda: tw.Mailbox(10, "explode"), "overflow: 'explode'"),  # type: ignore[arg-type]
        (lambda: tw.Mailbox(10.5), "capacity: 10.5"),  # type: ignore[arg-type]
    ]:
        with pytest.raises(tw.InvalidArgument, match=says):
            make()


def test_a_taken_name_is_refused_and_nothing_is_spawned(node: tw.Node) -> None:
    node.spawn(lambda _: None, name="one")
    with pytest.raises(tw.NameTaken, match="one"):
        node.spawn(lambda _: None, name="one")
    assert len(node.statistics()["actors"]) == 1
    with pytest.raises(tw.NoSuchTarget, match="'two'"):
        node.tell(["one", "two"], "hello")
    assert node.statistics()["actors"][0]["accepted"] == 0


CALLS: list[tuple[Callable[[tw.Node, tw.ActorRef], Any], type[Exception], str]] = [
    (lambda node, ref: ref.tell(), TypeError, "message"),  # type: ignore[call-arg]
    (lambda node, ref: ref.tell(1, priority="urgent"), tw.InvalidArgument, '"urgent"'),
    (lambda node, ref: ref.ask(1, timeout=-1), tw.InvalidArgument, "timeout: -1"),
    (lambda node, ref: ref.ask(1, timeout=float("nan")), tw.InvalidArgument, "timeout: NaN"),
    (lambda node, ref: ref.ask(1, timeout="soon"), (TypeError, tw.InvalidArgument), "timeout|must be real number"),  # type: ignore
    (lambda node, ref: node.schedule(-1, ref, 1), tw.InvalidArgument, "delay: -1"),
    (lambda node, ref: node.schedule(1, ref, 1, every=0), tw.InvalidArgument, "every: 0"),
    (lambda node, ref: node.schedule(1, "ref", 1), tw.InvalidArgument, "'ref' is not an actor"),  # type: ignore[arg-type]
    (lambda node, ref: node.subscribe("a", ref, queue=""), tw.InvalidArgument, "queue: ''"),
    (lambda node, ref: node.subscribe("a", 42), tw.InvalidArgument, "42 can't be an actor"),  # type: ignore[arg-type]
    (lambda node, ref: ref.request_become(42), tw.InvalidArgument, "42 is not callable"),
    (lambda node, ref: ref.request_become(generator), tw.InvalidArgument, "generator"),
    (lambda node, ref: pickle.dumps(ref), tw.InvalidArgument, "can't be pickled"),
    (lambda node, ref: node.dead_letters.requeue(99), tw.NoSuchTarget, "no dead letter"),
    (lambda node, ref: tw.Node("nats://x"), tw.InvalidArgument, "nats://x"),
    (lambda node, ref: tw.Node(name=""), tw.InvalidArgument, "name: ''"),
]


@pytest.mark.parametrize(("call", "error", "says"), CALLS)
def test_wrong_calls_are_refused_at_the_call(
    node: tw.Node, call: Callable[[tw.Node, tw.ActorRef], Any], error: Any, says: str
) -> None:
    ref = node.spawn(lambda _: None)
    with pytest.raises(error, match=says):
        call(node, ref)
    assert ref.statistics()["accepted"] == 0


def test_none_is_a_message_like_any_other(node: tw.Node) -> None:
    assert node.sync.ask(node.spawn(lambda message: message is None), None) is True


def test_a_configuration_with_three_errors_names_all_three(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("mailbox_capacity = 0\n")
    config = tw.Config(
        values={"throughputt": 5},
        file=file,
        environment={"TIDEWIRE_DISPATCHERS__IO__THREADS": "many"},
    )
    with pytest.raises(tw.ConfigError) as caught:
        tw.Node(config=config)
    problems = "\n".join(caught.value.problems)
    assert len(caught.value.problems) == 3, problems
    for part in ("throughputt", "mailbox_capacity", "node.toml", "TIDEWIRE_DISPATCHERS__IO__THREADS", "many"):
        assert part in problems


def test_the_environment_wins_over_the_file_and_the_file_over_the_code(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("mailbox_capacity = 20\ndead_letters = 20\n")
    config = tw.Config(
        {"mailbox_capacity": 10, "dead_letters": 10, "lane_burst": 10}, file, {"TIDEWIRE_MAILBOX_CAPACITY": "30"}
    )
    text = tw.Node(config=config)._engine.config()
    assert "mailbox_capacity = 30" in text
    assert "dead_letters = 20" in text
    assert "lane_burst = 10" in text


@pytest.mark.parametrize("config", [7, "/no/such/file.toml", {"mailbox_capacity": object()}, {1: 2}])
def test_what_is_no_configuration_is_refused(config: Any) -> None:
    with pytest.raises(tw.ConfigError):
        tw.Node(config=config)


def test_blocking_on_an_event_loops_thread_is_refused() -> None:
    async def main() -> None:
        async with tw.Node() as node:
            ref = node.spawn(lambda n: n)
            with pytest.raises(tw.InvalidArgument, match="await the same call"):
                node.sync.ask(ref, 1)
            with pytest.raises(tw.InvalidArgument, match="async with"), tw.Node():
                pass

    asyncio.run(main())


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


def test_far_more_threads_than_cores_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", "tidewire")
    tw.Node(config={"dispatchers": {"io": {"threads": 1_000}}})
    assert any("threads on" in record.getMessage() for record in caplog.records)
