"""Messages of other nodes go to mailboxes by themselves: without the event loop, in order, and in
bounds.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from link_processes import PATIENCE_S
from link_stories import logged, three

ROUNDS = 20


@dataclass
class Fragile:
    """A value that can't be made while it is told to break."""

    number: int
    breaks: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.breaks:
            raise ValueError("it is broken")


@pytest.mark.promise("P13.11")
async def test_a_plain_handler_gets_messages_while_the_loop_of_its_node_is_blocked() -> None:
    async with three() as (hub, a, _):
        seen, all_came = [], threading.Event()

        def receive(number: int) -> None:
            seen.append(number)
            if number == 99:
                all_came.set()

        await hub.subscribe("news", receive)
        sender = threading.Thread(target=lambda: [a.publish("news", number) for number in range(100)])
        sender.start()
        # This blocks the loop of both nodes.
        assert all_came.wait(PATIENCE_S)
        assert seen == list(range(100))
        sender.join()


async def test_a_message_does_not_overtake_a_request_of_its_sender() -> None:
    async with three() as (hub, a, _):
        seen: list[str] = []
        await hub.subscribe("desk", seen.append)
        for number in range(ROUNDS):
            asked = a.request("desk", f"asked {number}")
            a.publish("desk", f"told {number}")
            await asked
            await a.request("desk", f"again {number}")
        words = ("asked", "told", "again")
        assert seen == [f"{word} {number}" for number in range(ROUNDS) for word in words]


@pytest.mark.promise("P13.11")
@pytest.mark.parametrize("kind", ["plain", "coroutine", "batch"])
async def test_a_message_that_can_not_be_read_is_logged_and_the_next_one_is_handled(kind: str) -> None:
    with logged() as lines:
        async with three() as (_, a, b):
            came: asyncio.Queue[Any] = asyncio.Queue(1_000)
            loop = asyncio.get_running_loop()

            def take(message: Any) -> None:
                loop.call_soon_threadsafe(came.put_nowait, message)

            class Batches:
                def receive(self, message: Any) -> None:
                    take(message)

                def handle_batch(self, messages: list[Any]) -> None:
                    for message in messages:
                        take(message)

            async def receive(message: Any) -> None:
                take(message)

            actor = b.spawn({"plain": take, "coroutine": receive, "batch": Batches}[kind])
            await b.subscribe("values", actor)
            fragile = Fragile(1)
            Fragile.breaks = True
            try:
                a.publish("values", fragile)
                a.publish("values", "whole")
                assert await came.get() == "whole"
            finally:
                Fragile.breaks = False
            assert "could not be taken in" in lines.get_nowait()
            assert not b.dead_letters.list()


async def test_messages_that_wait_at_an_actor_that_stops_become_readable_dead_letters() -> None:
    async with three() as (_, a, b):
        begun, door = asyncio.Event(), asyncio.Event()

        async def receive(_: str) -> None:
            begun.set()
            await door.wait()

        actor = b.spawn(receive, mailbox=1, name="narrow")
        await b.subscribe("flood", actor)
        for number in range(5):
            a.publish("flood", f"message {number}")
        await begun.wait()
        # The last answer on the same link shows that the others are there.
        await b.subscribe("last", lambda _: None)
        await a.request("last", None)
        stopped = actor.stop(drain=False)
        door.set()
        ledger = await stopped
        letters = b.dead_letters.list(name="narrow")
        handled = [f"message {number}" for number in range(5)][: ledger.handled]
        assert [*handled, *ledger.messages, *(letter.message for letter in letters)] == [
            f"message {number}" for number in range(5)
        ]
        assert {letter.reason for letter in letters} == {"stopped"}
