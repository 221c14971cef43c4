"""`handle_batch`: what has gathered, in one call, and what becomes of it if that call fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import tidewire as tw

WAIT_S = 30


class Batched:
    """Holds its first batch up until what a test wants has gathered behind it."""

    def __init__(
        self, attempts: list[list[int]], failures: int, entered: threading.Event, gate: threading.Event
    ) -> None:
        self.attempts, self.failures = attempts, failures
        self.entered, self.gate = entered, gate

    def handle_batch(self, messages: list[int]) -> None:
        if not self.entered.is_set():
            self.entered.set()
            assert self.gate.wait(WAIT_S)
            return
        self.attempts.append(list(messages))
        if len(self.attempts) <= self.failures:
            messages.clear()
            raise ValueError(f"attempt {len(self.attempts)}")

    def receive(self, message: Any) -> object:
        if message == "fail":
            raise KeyError(message)
        return ("received", message, len(self.attempts))


@pytest.fixture
def gathered(node: tw.Node) -> Callable[..., tuple[tw.ActorRef, list[list[int]], threading.Event]]:
    """An actor that is busy with a first message, while 1 to 5 wait."""

    def gather(failures: int, **options: Any) -> tuple[tw.ActorRef, list[list[int]], threading.Event]:
        entered, gate = threading.Event(), threading.Event()
        attempts: list[list[int]] = []
        ref = node.spawn(Batched, attempts, failures, entered, gate, **options)
        ref.tell(0)
        assert entered.wait(WAIT_S)
        for n in range(1, 6):
            ref.tell(n)
        return ref, attempts, gate

    return gather


def test_a_batch_that_fails_becomes_one_dead_letter_for_each_message(node: tw.Node, gathered: Any) -> None:
    ref, attempts, gate = gathered(failures=1)
    asked, failing = ref.ask("in between"), ref.ask("fail")
    ref.tell(6)
    gate.set()
    # An ask is handled by itself, and gets its own answer or its own error.
    assert asked.wait() == ("received", "in between", 1)
    with pytest.raises(KeyError):
        failing.wait()
    ledger = node.sync.stop(ref)
    assert attempts == [[1, 2, 3, 4, 5], [6]]
    letters = node.dead_letters.list(actor=ref.id)
    assert [letter.message for letter in letters] == [1, 2, 3, 4, 5, "fail"]
    assert {letter.reason for letter in letters} == {"failed"}
    assert [letter.error for letter in letters] == ["ValueError: attempt 1"] * 5 + ["KeyError: 'fail'"]
    assert (ledger.accepted, ledger.handled, ledger.dead_lettered) == (9, 3, 6)
    assert ledger.balanced


@pytest.mark.parametrize("on_failure", ["resume", "restart"])
def test_a_batch_is_handed_out_again_in_order_and_before_what_came_later(
    node: tw.Node, gathered: Any, on_failure: Any
) -> None:
    policy = tw.Supervision(on_failure, max_deliveries=2, backoff_ms=0)
    ref, attempts, gate = gathered(failures=1, supervision=policy)
    asked = ref.ask("later")
    gate.set()
    assert asked.wait() == ("received", "later", 2)
    assert attempts == [[1, 2, 3, 4, 5]] * 2
    assert len(node.dead_letters) == 0
    assert ref.statistics()["restarts"] == (on_failure == "restart")
    assert node.sync.stop(ref).handled == 7


def test_a_batch_alone_in_its_mailbox_is_handed_out_again_at_once(node: tw.Node, gathered: Any) -> None:
    ref, attempts, gate = gathered(failures=2, supervision=tw.Supervision(max_deliveries=2))
    gate.set()
    ledger = node.sync.stop(ref)
    assert attempts == [[1, 2, 3, 4, 5]] * 2
    assert [letter.message for letter in node.dead_letters.list()] == [1, 2, 3, 4, 5]
    assert (ledger.handled, ledger.dead_lettered) == (1, 5)


def test_a_batch_that_stops_its_actor_loses_nothing_silently(node: tw.Node, gathered: Any) -> None:
    ref, _, gate = gathered(failures=1, supervision=tw.Supervision("stop"))
    asked = ref.ask("too late")
    ref.tell(6)
    gate.set()
    with pytest.raises(tw.ActorStopped):
        asked.wait()
    ledger = node.sync.stop(ref)
    letters = {letter.message: letter.reason for letter in node.dead_letters.list(actor=ref.id)}
    assert letters == {**dict.fromkeys(range(1, 6), "failed"), "too late": "stopped", 6: "stopped"}
    assert (ledger.accepted, ledger.handled, ledger.dead_lettered) == (8, 1, 7)
    assert ledger.balanced


def test_a_behaviour_above_a_batched_actor_takes_messages_one_by_one(node: tw.Node, gathered: Any) -> None:
    ref, attempts, gate = gathered(failures=0)
    above: list[int] = []
    ref.request_become(above.append)
    for n in (6, 7):
        ref.tell(n)
    ref.request_unbecome()
    ref.tell(8)
    gate.set()
    assert node.sync.stop(ref).balanced
    assert attempts == [[1, 2, 3, 4, 5], [8]]
    assert above == [6, 7]
