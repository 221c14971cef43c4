"""Links: processes of one machine pass long payloads on in memory that they share."""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from typing import Any

import numpy as np
import pytest
import tidewire as tw
from link_frames import CALL, ID, MORE, NORMAL, PLACED, WELCOME, Raw, called, frame, hello
from link_processes import Programs
from link_programs import until_served
from link_stories import pattern

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the system has no such memory")

KIB, MIB = 1 << 10, 1 << 20


def laid(node: tw.Node) -> int:
    found: int = node.statistics()["links"]["laid"]
    return found


VALUES: dict[str, Any] = {
    "bytes": pattern(3 * MIB),
    "just too long for one frame": pattern(64 * KIB),
    "as long as may lie there": pattern(8 * MIB - 64),
    "text": "straße " * 300_000,
    "many": [pattern(100_000, number) for number in range(30)],
    "array": np.arange(500_000, dtype=np.float64),
}


@pytest.mark.parametrize("name", VALUES)
async def test_a_value_lies_in_shared_memory_and_comes_back_whole(workshop_url: str, name: str) -> None:
    async with tw.Node(workshop_url, name="caller") as node:
        back = await node.client("workshop").echo(VALUES[name])
        assert type(back) is type(VALUES[name])
        assert np.array_equal(back, VALUES[name]) if name == "array" else back == VALUES[name]
        if name == "array":
            back[0] = 7.0  # it is the caller's own
        assert laid(node) == 1


@pytest.mark.parametrize("value", [pattern(60 * KIB), pattern(8 * MIB + 1)], ids=["short", "very long"])
async def test_short_and_very_long_values_are_sent(workshop_url: str, value: bytes) -> None:
    async with tw.Node(workshop_url, name="caller") as node:
        assert await node.client("workshop").echo(value) == value
        assert laid(node) == 0


async def test_a_node_that_listens_shares_with_those_who_join(started: Programs) -> None:
    _, url = started.listening("tide://127.0.0.1:0")
    async with tw.Node(url, name="caller") as node:
        await until_served(node, "workshop")
        value = pattern(2 * MIB)
        assert await node.client("workshop").echo(value) == value
        assert laid(node) == 1


async def test_calls_to_a_killed_callee_leave_capacity_for_others(started: Programs) -> None:
    _, url, server = started.hub_and_server()
    config = {"links": {"link_shared_bytes": 4 * MIB}}
    async with tw.Node(url, name="caller", config=config) as node:
        workshop = node.client("workshop")
        assert await workshop.label() == "server"
        server.halt()
        calls = [asyncio.ensure_future(workshop.echo(pattern(MIB, number))) for number in range(10)]
        await asyncio.sleep(0)
        server.kill()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        # Those that came to the hub after the end found nobody.
        assert all(isinstance(end, tw.errors.LinkLost | tw.errors.NoResponders) for end in ended), ended
        started.server(url, name="other")
        await until_served(node, "workshop")
        # Payloads in progress for the dead node are in place by the time that the next one lies
        # there.
        assert await workshop.echo(pattern(MIB)) == pattern(MIB)
        before = laid(node)
        for number in range(8):
            assert await workshop.echo(pattern(MIB, number)) == pattern(MIB, number)
        assert laid(node) == before + 8, "what lay there for the dead one is gone"


def test_a_place_that_is_a_lie_is_not_believed(workshop_url: str, tmp_path: Any) -> None:
    """A node could else have the hub's machine read any file of its user."""
    secret, begin = tmp_path / "secret", b"SQLite format 3\x00"
    secret.write_bytes(begin + b"private " * 10_000)
    with secret.open("rb") as file:
        lie = f"{os.getpid()} {file.fileno()} {begin.hex()}"
        for place in (lie, "", "1 2 3", f"{os.getpid()} 99999 {'0' * 32}", "x" * 10_000):
            raw = Raw(workshop_url)
            raw.send(hello(features="shm", place=place))
            kind, _, _, said = raw.receive() or (0, 0, b"", b"")
            assert kind == WELCOME
            assert b"shm" not in said
            stated = struct.pack("<QIIQ", 70_000, os.getpid(), file.fileno(), 0) + begin
            raw.send(frame(CALL, called(), stated, NORMAL | MORE | PLACED, ID))
            assert "shm was not named" in (raw.until_end() or "")


async def test_a_peer_with_a_forged_payload_gets_no_answer_and_harms_nobody(started: Programs) -> None:
    """A process of this user names memory that it has, and a payload that does not lie there: its
    callee asks for chunks.
    """
    _, url, _ = started.hub_and_server()
    memory = os.memfd_create("tidewire")
    os.write(memory, bytes(range(16)) + bytes(4_080))
    raw = Raw(url)
    raw.send(hello(features="shm", place=f"{os.getpid()} {memory} {bytes(range(16)).hex()}"))
    kind, _, _, said = raw.receive() or (0, 0, b"", b"")
    assert kind == WELCOME
    assert b"shm" in said
    places = [(memory, 0, bytes(16)), (memory, 1 << 40, bytes(16)), (99_999, 0, bytes(range(16)))]
    for number, (file, at, mark) in enumerate(places):
        stated = struct.pack("<QIIQ", 70_000, os.getpid(), file, at) + mark
        raw.send(frame(CALL, called(), stated, NORMAL | MORE | PLACED, ID + number))
    raw.send(
        frame(
            CALL,
            called(),
            struct.pack("<QIIQ", 8 << 21, os.getpid(), memory, 0) + bytes(16),
            NORMAL | MORE | PLACED,
            ID + 9,
        )
    )
    assert "link_placed_bytes" in (raw.until_end() or "")
    os.close(memory)
    async with tw.Node(url, name="caller") as node:
        assert await node.client("workshop").echo(pattern(MIB)) == pattern(MIB)
