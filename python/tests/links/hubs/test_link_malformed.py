"""Links: what a hub does with bytes that break the rules. It names the rule, closes that link, and
serves the others.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import pytest
import tidewire as tw
from link_broken import FIRST, HARMLESS, LATER
from link_frames import FAIL, ID, PING, SUBSCRIBE, Raw, frame, hello, subscribed
from link_processes import Program, Programs

MIB = 1 << 20


@pytest.fixture(scope="module")
def hub(processes: Programs) -> tuple[Program, str]:
    program, url, _ = processes.hub_and_server()
    return program, url


@pytest.fixture
def others(hub: tuple[Program, str]) -> Iterator[Any]:
    """A client that was there before, whose calls must go on."""
    with tw.Node(hub[1], name=f"other-{os.urandom(4).hex()}") as node:
        workshop = node.client("workshop").sync
        assert workshop.echo(1) == 1
        yield workshop
        assert workshop.echo(2) == 2


def short(processes: Programs, heartbeat_ms: int) -> tuple[Program, str]:
    """Run a hub with a heartbeat of its own."""
    return processes.hub("tide://127.0.0.1:0", "--set", f"links.link_heartbeat_ms={heartbeat_ms}")


def test_a_frame_that_never_ends_is_no_sign_of_life(processes: Programs) -> None:
    program, url = short(processes, 200)
    # The hub asks every 50 ms whether it is there.
    raw = Raw.joined(url, **{"heartbeat-ms": "100"})
    unfinished = iter(frame(SUBSCRIBE, subscribed(b"n" * 200), id=ID, flags=0))
    while (found := raw.receive()) is not None and found[0] == PING:
        raw.send(bytes([next(unfinished)]))
    assert found is not None
    assert b"link_heartbeat_ms=200" in found[3]
    program.expect_log("link_heartbeat_ms=200")
    raw.close()


def test_a_peer_that_has_closed_its_side_is_released_at_once(processes: Programs) -> None:
    _, url = short(processes, 60_000)
    for said in (b"", hello()[:9], hello(), hello() + frame(SUBSCRIBE, subscribed(), id=ID, flags=0)):
        raw = Raw(url)
        raw.send(said)
        raw.socket.shutdown(socket.SHUT_WR)
        since = perf_counter()
        # It goes on reading, until the hub has ended what it says, too.
        raw.until_end()
        assert perf_counter() - since < 30, "it waited for a heartbeat"
        raw.close()


def test_the_memory_of_a_hub_does_not_grow_with_what_it_refuses(processes: Programs) -> None:
    # A hub of its own: nothing that another story did is in its log.
    program, url, _ = processes.hub_and_server()

    def one_round() -> None:
        for data, _ in FIRST.values():
            raw = Raw(url)
            raw.send(data)
            raw.until_end()
            raw.close()
        for data, _ in LATER.values():
            raw = Raw.joined(url)
            raw.send(data)
            raw.until_end()
            raw.close()
        # One line for each. A hub that is not read at all drops lines in the end.
        for _ in range(len(FIRST) + len(LATER)):
            program.expect_log("is closed")

    for _ in range(4):
        one_round()
    before = program.rss_bytes
    for _ in range(12):
        one_round()
    assert program.rss_bytes - before < 8 * MIB
    with tw.Node(url, name="other") as node:
        assert node.client("workshop").sync.echo(1) == 1
    assert not program.logged(), "each is told once"


def test_the_answer_of_a_call_with_a_broken_value_says_so(hub: tuple[Program, str], others: Any) -> None:
    _, url = hub
    raw = Raw.joined(url)
    raw.send(HARMLESS["a value that is none"])
    found = raw.receive()
    assert found is not None
    assert found[:2] == (FAIL, ID)
    raw.close()


def test_clients_that_come_and_go_do_not_use_up_the_hub(hub: tuple[Program, str]) -> None:
    program, url = hub

    async def story() -> None:
        for n in range(20):
            async with tw.Node(url, name=f"guest-{n}") as node:
                assert await node.client("workshop").echo(n) == n

    for _ in range(300):
        Raw.joined(url).close()
    asyncio.run(story())
    assert len(os.listdir(f"/proc/{program.process.pid}/fd")) < 60
