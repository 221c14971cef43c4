"""Openings of what a node needs for commands and durable messages: callers that come at once share
one.
"""

from __future__ import annotations

import asyncio

import pytest
import tidewire as tw

COUNT = 600


@pytest.mark.promise("P17.105")
async def test_many_commands_that_a_fresh_node_starts_at_once_are_stored(homes: list[tw.Node]) -> None:
    earlier, node = homes
    # Opening their bucket must not read all of these.
    for _ in range(5):
        await asyncio.gather(*(earlier.start_command("books", "add", number) for number in range(COUNT)))
    starting = [asyncio.ensure_future(node.start_command("books", "count", number)) for number in range(COUNT)]
    await asyncio.sleep(0)
    # The others do not depend on the first one.
    starting[0].cancel()
    started = await asyncio.gather(*starting, return_exceptions=True)
    assert isinstance(started[0], asyncio.CancelledError)
    assert [one for one in started[1:] if isinstance(one, BaseException)] == []
    assert len(await node.commands(service="books", command="count")) >= COUNT - 1


@pytest.mark.promise("P17.105")
async def test_an_opening_that_failed_is_tried_again_by_the_next_caller(home: tw.Node) -> None:
    other = await home.stream("tidewire-commands", subjects=["tidewire.command.>"], max_messages=1)
    failed = await asyncio.gather(
        *(home.start_command("books", "count", number) for number in range(20)), return_exceptions=True
    )
    assert [type(one) for one in failed] == [tw.SettingsDiffer] * 20
    await other.delete()
    run = await home.start_command("books", "count", 1)
    assert (await run.info()).stage == "queued"


@pytest.mark.promise("P17.105")
async def test_many_durable_messages_that_a_fresh_node_sends_at_once_are_stored(home: tw.Node) -> None:
    seen: set[int] = set()
    done = asyncio.Event()

    async def note(message: int) -> None:
        seen.add(message)
        if len(seen) == COUNT:
            done.set()

    agents = [home.agent(note, id=f"ledger-{number}", durable="inbox") for number in range(10)]
    desk = home.agent(note, id="desk")
    await asyncio.gather(*(desk.send(number, to=agents[number % 10].id, durable=True) for number in range(COUNT)))
    await asyncio.wait_for(done.wait(), 60.0)
    assert seen == set(range(COUNT))
