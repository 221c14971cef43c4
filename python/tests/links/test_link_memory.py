"""Links: long values, whose memory is let go while they are read, are whole; and broken ones are
refused in the middle of that.
"""

from __future__ import annotations

import asyncio
import platform
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import tidewire as tw
from link_frames import CALL, CHUNK, FAIL, ID, MORE, NORMAL, WINDOW, Raw, called, frame
from link_processes import programs
from link_stories import pattern

KIB, MIB = 1 << 10, 1 << 20
# A window is what a sender may send ahead; half of it is asked for at a time.
WINDOW_BYTES, CHUNK_BYTES = 524_288, 65_536


LONG: dict[str, Callable[[], Any]] = {
    "bytes": lambda: pattern(9 * MIB + 5),
    "bytearray": lambda: bytearray(pattern(9 * MIB + 5)),
    "bytes beside bytes": lambda: [pattern(5 * MIB), b"-", pattern(7 * MIB + 1), pattern(5_000), pattern(4 * MIB)],
    "nearly all": lambda: [pattern(5_001), pattern(9 * MIB), bytearray(pattern(70_000)), "end"],
    "many short ones": lambda: [pattern(100_000 + number) for number in range(80)],
    "ASCII": lambda: "".join(chr(97 + number % 26) for number in range(6 * MIB + 1)),
    "Latin": lambda: "straße " * MIB,
    "Chinese": lambda: "一条很长的路" * (MIB // 2),
    "emoji that a step would cut": lambda: "x" + "😀" * (2 * MIB),
    "one wide character at the end": lambda: "x" * (5 * MIB) + "😀",
    "text beside text": lambda: ["a" * (5 * MIB), 1, "b" * (6 * MIB), {"c" * 40: "c" * (4 * MIB)}],
    "a list of much": lambda: [[number, number / 3, str(number)] for number in range(400_000)],
}


@pytest.mark.parametrize("name", LONG)
async def test_a_long_value_comes_back_as_it_was_sent(workshop_url: str, name: str) -> None:
    async with tw.Node(workshop_url, name="caller") as node:
        value = LONG[name]()
        back = await node.client("workshop").echo(value)
        assert (type(back), back) == (type(value), value)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("beside", [0, 6_000, 5 * MIB])
async def test_a_long_array_may_be_written_to_for_as_long_as_it_is_kept(
    workshop_url: str, order: Any, beside: int
) -> None:
    sent = np.asarray(np.arange(6 * MIB // 8, dtype=np.float64).reshape(512, -1), order=order)
    async with tw.Node(workshop_url, name="caller") as node:
        workshop = node.client("workshop")
        array, rest = await workshop.echo([sent, bytes(beside)])
        assert len(rest) == beside
        assert array.flags.writeable
        assert array.flags.aligned
        assert array.flags.f_contiguous == sent.flags.f_contiguous
        part = array[3:7]
        array[:] += 1.0
        del array
        # Other messages of this length come and go meanwhile.
        assert len(await workshop.echo(bytes(6 * MIB))) == 6 * MIB
        assert np.array_equal(part, sent[3:7] + 1.0)


async def test_a_long_message_is_given_to_each_subscription_whole(workshop_url: str) -> None:
    sent = [pattern(5 * MIB), "y" * (5 * MIB), np.arange(5 * MIB, dtype=np.uint8)]
    async with tw.Node(workshop_url, name="caller") as node, tw.Node(workshop_url, name="listener") as listener:
        came: asyncio.Queue[Any] = asyncio.Queue(1_000)
        for _ in range(2):
            await listener.subscribe("long", listener.spawn(came.put))
        for value in sent:
            node.publish("long", value)
            for _ in range(2):
                assert np.array_equal(await asyncio.wait_for(came.get(), 30), value)


def blob(head: bytes, *parts: bytes) -> bytes:
    """A value with buffers, whose lengths are multiples of 8."""
    start = struct.pack(f">BBHIQ{len(parts)}Q", 0xC1, 1, 0, len(parts), len(head), *map(len, parts)) + head
    return start + bytes(-len(start) % 8) + b"".join(parts)


def text(content: bytes) -> bytes:
    return b"\xdb" + struct.pack(">I", len(content)) + content


ONE, OTHER = b"\xd6\x05\0\0\0\0", b"\xd6\x05\0\0\0\1"
LENGTH = 6 * MIB
BROKEN = {
    "UTF-8 that breaks off": (text(b"x" * (LENGTH - 1) + b"\xe8"), "unexpected end of data"),
    "UTF-8 that is none": (text(b"x" * (5 * MIB) + b"\xff" + b"x" * MIB), "in position 5242880"),
    "half a pair of surrogates": (text(b"\xed\xa0\x80" * (2 * MIB)), "in position 0"),
    "text that is cut off": (text(b"x" * LENGTH)[:-1], "it ends too early"),
    "a list that is cut off": (b"\xdd" + struct.pack(">I", LENGTH) + b"\x01" * (LENGTH - 1), "it ends too early"),
    "bytes after the end": (text(b"x" * LENGTH) + b"\xc0", "bytes after its end"),
    "a buffer that is named twice": (blob(b"\x92" + ONE + ONE, bytes(LENGTH)), "holds what it must not hold"),
    "a buffer that nobody names": (blob(b"\x91" + ONE, bytes(LENGTH), bytes(8)), "a buffer that nothing refers to"),
    "buffers out of order": (blob(b"\x92" + OTHER + ONE, bytes(LENGTH), bytes(LENGTH)), "holds what it must not hold"),
    "a buffer that is cut off": (blob(b"\x91" + ONE, bytes(LENGTH))[:-8], "a buffer is cut off"),
    "a gap with content": (blob(b"\x91" + ONE, bytes(LENGTH)).replace(ONE + b"\0", ONE + b"\1"), "is not zero"),
    "an array of another length": (
        blob(b"\xc7\x13\x13\x94\xa3|u1\x91\xce" + struct.pack(">I", 7) + b"\xa1C" + ONE, bytes(LENGTH)),
        "does not have",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_long_value_that_is_broken_fails_its_call_and_no_other(workshop_url: str, name: str) -> None:
    payload, why = BROKEN[name]
    raw = Raw.joined(workshop_url)
    assert why in call_with(raw, payload)
    raw.close()
    async with tw.Node(workshop_url, name="caller") as node:
        assert await node.client("workshop").echo(1) == 1


def call_with(raw: Raw, payload: bytes) -> str:
    """Call with a payload in chunks, and give what the answer says, which must be an error."""
    raw.send(frame(CALL, called(), struct.pack("<Q", len(payload)), NORMAL | MORE, ID))
    allowed = WINDOW_BYTES
    for at in range(0, len(payload), CHUNK_BYTES):
        chunk = payload[at : at + CHUNK_BYTES]
        while at + len(chunk) > allowed:
            kind, _, head, told = raw.receive() or (None, 0, b"", b"")
            assert kind == WINDOW, told
            allowed += struct.unpack("<I", head)[0]
        raw.send(frame(CHUNK, b"", chunk, NORMAL | (MORE if at + len(chunk) < len(payload) else 0), ID))
    while (found := raw.receive()) is not None:
        if found[0] != WINDOW:
            assert found[0] == FAIL
            return found[3].decode(errors="replace")
    raise AssertionError("the link was closed")


MIRROR = """
import asyncio, resource, sys
import tidewire as tw

class Mirror(tw.Service):
    @tw.method
    async def back(self, data: bytes) -> bytes:
        return data

    @tw.method
    async def faults(self) -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

async def story() -> None:
    async with tw.Node(sys.argv[1], name="there") as node:
        await node.serve(Mirror(), name="mirror")
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(story())
"""


@contextmanager
def mirror(url: str, env: dict[str, str]) -> Iterator[None]:
    """A service in a process of its own, whose memory nobody else has used."""
    with programs() as found:
        program = found.run("-c", MIRROR, url, env=env)
        program.expect("ready")
        yield
        program.end()


def new_pages(url: str, env: dict[str, str]) -> float:
    """Pages that are new at a service for each call with 2 MiB, once others have been made
    before.
    """
    calls, data = 40, bytes(2 * MIB)

    async def story() -> float:
        async with tw.Node(url, name="here") as node:
            there = node.client("mirror")
            for _ in range(2):
                before = await there.faults()
                for _ in range(calls):
                    await there.back(data)
                each = (await there.faults() - before) / calls
            return each

    with mirror(url, env):
        return asyncio.run(story())


of_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have other rules")


@of_glibc
def test_memory_of_long_values_is_used_again(workshop_url: str) -> None:
    assert new_pages(workshop_url, {}) < 256, "512 pages are 2 MiB"


@of_glibc
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MALLOC_MMAP_THRESHOLD_", "131072"),
        ("MALLOC_TRIM_THRESHOLD_", "131072"),
        ("MALLOC_TOP_PAD_", "0"),
        ("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=131072"),
    ],
)
def test_settings_of_the_user_for_the_allocator_hold(workshop_url: str, name: str, value: str) -> None:
    assert new_pages(workshop_url, {name: value}) >= 512, "memory is kept that was to go back to the system"


@of_glibc
def test_memory_of_a_burst_of_short_values_is_used_again(workshop_url: str) -> None:
    calls, data = 200, bytes(20 * KIB)

    async def story() -> None:
        async with tw.Node(workshop_url, name="here") as node:
            there = node.client("mirror")
            for _ in range(4):
                before = await there.faults()
                await asyncio.gather(*(there.back(data) for _ in range(calls)))
                each = (await there.faults() - before) / calls
            assert each < 0.5, "5 pages are 20 KiB"

    with mirror(workshop_url, {}):
        asyncio.run(story())
