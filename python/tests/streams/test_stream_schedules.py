"""Schedules of streams, in a folder and at a hub: their beats, over restarts and kills of the
process that has the folder.
"""

from __future__ import annotations

import asyncio
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from home_support import both, home
from link_processes import Programs

HEADER, HOUR = "Tidewire-Schedule", timedelta(hours=1)
pytestmark = pytest.mark.usefixtures("tidewire_clock")


async def beats(stream: tw.Stream, count: int) -> list[tw.Event]:
    reading = aiter(stream.read(follow=True))
    return [await anext(reading) for _ in range(count)]


@both
async def test_a_schedule_beats_while_nobody_publishes_and_is_shown_and_cancelled_by_its_name(home: tw.Node) -> None:
    orders = await home.stream("orders", subjects=["orders.>"])
    pulse = await orders.schedule("pulse", 1, "orders.pulse", {"n": 1}, key="k", headers={"a": "b"}, ttl=90)
    nightly = await orders.schedule("nightly", "0  22 * * mon-fri", "orders.due", "x", time_zone="europe/berlin")
    assert (pulse.change, pulse.when, pulse.time_zone, pulse.ttl) == ("made", "@every 1s", "UTC", 90)
    assert (nightly.when, nightly.time_zone) == ("0 22 * * mon-fri", "Europe/Berlin")
    assert nightly.next_time is not None and nightly.next_time.hour in (20, 21) and nightly.next_time.minute == 0
    assert timedelta(0) < nightly.next_time - datetime.now(UTC) <= timedelta(days=3, hours=1)
    first, second = await beats(orders, 2)
    assert (first.value, first.key, first.id, first.subject) == ({"n": 1}, "k", None, "orders.pulse")
    assert (first.headers[HEADER], first.headers["a"]) == ("pulse", "b")
    assert 0.9 < (second.time - first.time).total_seconds() < 5
    due, again = await orders.schedules()
    assert (due.name, due.value, due.key, due.change) == ("nightly", "x", None, "kept")
    assert (again.name, again.value, again.key, again.change) == ("pulse", {"n": 1}, "k", "kept")
    assert again.headers["a"] == "b" and HEADER not in again.headers
    assert await again.cancel() and not await pulse.cancel()
    assert await orders.cancel_schedule("nightly") and not await orders.cancel_schedule("nightly")
    assert await orders.schedules() == []


@pytest.mark.parametrize("kind", ["folder", "hub"])
async def test_a_program_says_its_schedules_each_time_it_starts(kind: str, tmp_path: Path) -> None:
    nexts = []
    for change in ("made", "kept", "kept"):
        async with home(kind, tmp_path) as node:
            orders = await node.stream("orders", subjects=["orders.>"])
            schedule = await orders.schedule("hourly", 3_600.0, "orders.due", [1, {"a": None}])
            assert schedule.change == change
            nexts.append(schedule.next_time)
    assert len(set(nexts)) == 1, "an interval goes on over restarts"
    async with home(kind, tmp_path) as node:
        orders = await node.stream("orders", subjects=["orders.>"])
        for settings in ({"key": "k"}, {"headers": {"a": "b"}}, {"ttl": 5.0}, {"content": "json"}):
            changed = await orders.schedule("hourly", 3_600.0, "orders.due", [1, {"a": None}], **settings)
            assert changed.change == "replaced", settings
        assert len(await orders.schedules()) == 1


@both
async def test_a_wrong_schedule_is_refused_with_field_value_and_fix(home: tw.Node) -> None:
    orders = await home.stream("orders", subjects=["orders.>"])

    async def refused(says: str, name: str = "a", when: Any = "@daily", subject: str = "orders.x", **more: Any) -> None:
        with pytest.raises(tw.InvalidArgument) as info:
            await orders.schedule(name, when, subject, more.pop("value", 1), **more)
        assert says in str(info.value), info.value

    await refused('hour "24" is not allowed: give *, 0 to 23', when="0 24 * * *")
    await refused("never comes", when="0 0 30 feb *")
    await refused("when: 0.5 is not allowed", when=0.5)
    await refused("when: 0 is not allowed", when=0)
    await refused("when: None is not allowed", when=None)
    await refused("when: True is not allowed", when=True)
    await refused('time_zone: "Mars/Base" is none', time_zone="Mars/Base")
    await refused("time_zone", when=30, time_zone="Europe/Berlin")
    await refused("a b", name="a b")
    await refused("none of its own", subject="other.x")
    await refused("schedule_bytes", value="x" * 70_000)
    await refused("ttl: -1", ttl=-1)
    with pytest.raises(tw.TidewireError, match="subject"):
        await orders.schedule("a", "@daily", "orders.*", 1)
    small = await home.stream("small", subjects=["small.>"], max_messages=5)
    with pytest.raises(tw.Unsupported, match="drop_old"):
        await small.schedule("a", "@daily", "small.x", 1)
    dropping = await home.stream("dropping", subjects=["dropping.>"], max_messages=2, full="drop_old")
    await dropping.schedule("a", 1, "dropping.x", 1)
    assert [event.value for event in await beats(dropping, 3)] == [1, 1, 1]
    await orders.delete()
    with pytest.raises(tw.NotFound):
        await orders.schedules()


HOLDER = """
import asyncio, sys, tidewire as tw
async def main():
    async with tw.Node(data=sys.argv[1]) as node:
        orders = await node.stream("orders", subjects=["orders.>"])
        await orders.schedule("pulse", 1, "orders.pulse", "alive")
        print("ready", flush=True)
        async for event in orders.read(start="new", follow=True):
            print(event.sequence, flush=True)
asyncio.run(main())
"""


@pytest.mark.promise("P17.8")
def test_no_beat_is_lost_or_doubled_by_a_kill(started: Programs, tmp_path: Path) -> None:
    """Each life of the process is killed as soon as it has shown a beat: about when it writes that
    the beat is over.
    """
    for _ in range(3):
        process = started.run("-c", HOLDER, str(tmp_path))
        assert process.line() == "ready" and process.line().isdigit()
        process.kill()

    async def stored() -> tuple[list[tw.Event], datetime]:
        async with tw.Node(data=tmp_path) as node:
            orders = await node.stream("orders", subjects=["orders.>"])
            [pulse] = await orders.schedules()
            assert pulse.next_time is not None
            await pulse.cancel()
            return [event async for event in orders.read()], pulse.next_time

    events, beats_at = asyncio.run(stored())
    assert len(events) >= 3
    numbers = [(event.time - beats_at) // timedelta(seconds=1) for event in events]
    assert numbers == sorted(set(numbers)), "no beat came twice"


@pytest.mark.promise("P17.9")
async def test_beats_that_passed_while_the_folder_was_closed_come_as_one(tmp_path: Path) -> None:
    async with tw.Node(data=tmp_path) as node:
        orders = await node.stream("orders", subjects=["orders.>"])
        first_at = (await orders.schedule("pulse", 3_600, "orders.pulse", "alive")).next_time
    await asyncio.sleep(2.5 * 3_600)  # Nothing runs meanwhile that could say so.
    async with tw.Node(data=tmp_path) as node:
        orders = await node.find_stream("orders")
        [event] = await beats(orders, 1)
        [pulse] = await orders.schedules()
    assert first_at is not None and pulse.next_time is not None
    assert event.time >= first_at + HOUR and pulse.next_time - event.time <= HOUR
    assert (pulse.next_time - first_at) % HOUR == timedelta(0), "the interval goes on as it was counted"


def test_a_folder_of_the_version_before_is_refused(tmp_path: Path) -> None:
    with tw.Node(data=tmp_path) as node:
        node.sync.stream("orders", subjects=["orders.>"])
    [journal] = (tmp_path / "state").glob("*.log")
    journal.write_bytes(_of_version(journal.read_bytes(), 1))
    with pytest.raises(tw.HomeError, match="version 1, and this Tidewire reads 2") as info:
        tw.Node(data=tmp_path).sync.stream("orders", subjects=["orders.>"])
    assert info.value.code != "data_corrupt"


def _of_version(content: bytes, version: int) -> bytes:
    """A file whose head says that it is of another version, with the checksum that goes with it."""
    head, rest = bytearray(content[:45]), content[45:]
    head[17:21] = version.to_bytes(4, "little")
    head[:4] = zlib.crc32(bytes(16) + b"\x01" + bytes(head[9:])).to_bytes(4, "little")
    return bytes(head) + rest
