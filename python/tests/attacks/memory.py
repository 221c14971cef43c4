"""The memory of a hub beside the formula of ``docs/guides/security.md``: each term filled as far as
clients can.

``python -m attacks --memory`` starts a hub with small limits for each term, and prints by how much
it grew beside the bound.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from link_frames import CALL, ERROR, PUBLISH, SUBSCRIBE, Raw, called, fields, frame, published, subscribed
from link_processes import Programs

from attacks import memory_folder, memory_gateway
from attacks.target import TOKENS, Target

KIB, MIB = 1 << 10, 1 << 20
LIMITS = {
    "link_greetings": 200,
    "link_hello_bytes": 16 * KIB,
    "link_frame_bytes": 128 * KIB,
    "link_in_flight": 20_000,
    "link_subscriptions": 2_000,
    "link_said_bytes": 256 * KIB,
    "link_queue_bytes": 16 * MIB,
    "hub_queue_bytes": 32 * MIB,
    "hub_links": 100,
    "payload_bytes": memory_folder.PAYLOAD_BYTES,
}
LINKS = 40
"""Joined links of a term; fewer than ``hub_links``, so that those who measure have room."""
SLACK_MIB = 6.0
"""What a hub takes once for code and tables that it uses for the first time, and the allocator
keeps in blocks.
"""
_STEADY_S = 0.3


@dataclass
class Term:
    """A line of the formula.

    Attributes:
        name: Purpose of the memory.
        bound: Bytes, by the formula.
        fill: Fills it as far as clients can, and returns what has to stay meanwhile.
    """

    name: str
    bound: float
    fill: Callable[[Target], Sequence[Raw | socket.socket]]


def terms() -> list[Term]:
    """The lines of the formula, for these limits."""
    link = max(272 * KIB, 2 * LIMITS["link_frame_bytes"]) + (320 + 128) * KIB
    said = LIMITS["link_subscriptions"] * KIB + 3 * LIMITS["link_said_bytes"]
    greeting = 2 * LIMITS["link_hello_bytes"] + 128 * KIB
    http = memory_gateway.LIMITS
    queues = 1.25 * LIMITS["hub_queue_bytes"] + LINKS * LIMITS["link_frame_bytes"]
    return [
        Term("connections that have not joined", LIMITS["link_greetings"] * greeting, _greetings),
        Term("joined, with a frame begun", LINKS * link, _begun),
        Term("what waits for links", queues + LINKS * link, _waiting),
        Term("subscriptions and what they say", LINKS * (said + link), _said),
        Term("exchanges", 2 * LIMITS["link_in_flight"] * 256 * (LINKS // 2) + LINKS * link, _exchanges),
        Term("names that are kept", len(TOKENS) * 1_000 * KIB, _names),
        Term("heads over HTTP", http["http_connections"] * memory_gateway.CONNECTION, memory_gateway.heads),
        Term("bodies over HTTP", http["http_bodies_bytes"] + memory_gateway.SENDING, memory_gateway.bodies),
        Term("subscribers over HTTP", memory_gateway.UNREAD, memory_gateway.unread),
        Term(
            "events that wait to be stored", memory_folder.WAITING + memory_folder.CLIENTS * link, memory_folder.events
        ),
        Term("values of buckets", memory_folder.VALUES, memory_folder.values),
        Term("ids that a stream remembers", memory_folder.REMEMBERED, memory_folder.ids),
    ]


def report() -> int:
    """Fill each term, and print a line for it; 1 if one takes more than its bound."""
    print(f"{'term':<36}{'bound MiB':>12}{'grew MiB':>12}")
    too_much = 0
    for term in terms():
        with _hub() as (target, resident):
            with contextlib.closing(target.joined("good")):
                before = resident()
            kept = term.fill(target)
            grew = (_steady(resident) - before) / MIB
            for raw in kept:
                raw.close()
        holds = grew <= term.bound / MIB + SLACK_MIB
        too_much += not holds
        print(
            f"{term.name:<36}{term.bound / MIB:>12.1f}{grew:>12.1f}{'' if holds else '  MORE THAN ITS BOUND'}",
            flush=True,
        )
    return 1 if too_much else 0


@contextlib.contextmanager
def _hub() -> Iterator[tuple[Target, Callable[[], int]]]:
    with tempfile.TemporaryDirectory(prefix="tw-", dir="/tmp") as place:
        programs = Programs(Path(place))
        try:
            settings = Path(place) / "hub.toml"
            lines = ["[links]", *(f"{name} = {value}" for name, value in LIMITS.items())]
            lines += ["[hub]", 'listen = ["tide://127.0.0.1:0", "ws://127.0.0.1:0"]', 'http = ["127.0.0.1:0"]']
            limits = ", ".join(f"{name} = {value}" for name, value in memory_gateway.LIMITS.items())
            lines += [f'data = "{place}/data"', f"http_limits = {{ {limits} }}"]
            for user, token in TOKENS.items():
                lines += ["[[hub.tokens]]", f'token = "{token}"', f'user = "{user}"']
            settings.write_text("\n".join(lines))
            hub = programs.run("-m", "tidewire", "up", "--json", "--config", str(settings))
            tide, ws, web = json.loads(hub.line())["urls"]
            yield Target(tide, ws, hub.process.pid, web), lambda: hub.rss_bytes
        finally:
            programs.end()


def _steady(resident: Callable[[], int]) -> int:
    """Resident memory once it grows no more: the hub reads earlier frames before that."""
    most = resident()
    while True:
        time.sleep(_STEADY_S)
        now = resident()
        if now <= most + 64 * KIB:
            return max(most, now)
        most = now


def _joined(target: Target, count: int = LINKS) -> list[Raw]:
    return [target.joined() for _ in range(count)]


def _greetings(target: Target) -> list[Raw]:
    """Half of them over WebSocket; each sends as much of a greeting as it may, but the end of
    it.
    """
    begun = struct.pack("<IBBHQ", LIMITS["link_hello_bytes"], 1, 0, 12, 0) + b"tidewire\1\0\1\0"
    links = [target.raw("ws" if number % 2 else "tide") for number in range(LIMITS["link_greetings"])]
    for link in links:
        link.send(begun + bytes(LIMITS["link_hello_bytes"] - len(begun) - 64))
    return links


def _begun(target: Target) -> list[Raw]:
    """Each sends the longest frame that there is, but the last byte."""
    links = _joined(target)
    whole = frame(PUBLISH, published(b"raw.none"), bytes(LIMITS["link_frame_bytes"] - 64))
    for link in links:
        link.send(whole[:-1])
    return links


def _waiting(target: Target) -> list[Raw]:
    """All but one subscribe, and read nothing of what that one publishes."""
    links = _joined(target)
    for link in links[1:]:
        link.send(frame(SUBSCRIBE, subscribed(b"raw.loud"), id=1 << 32))
        link.receive()
    message = frame(PUBLISH, published(b"raw.loud"), bytes(32 * KIB))
    for _ in range(3 * LIMITS["hub_queue_bytes"] // (32 * KIB)):
        links[0].send(message)
    assert links[0].is_alive()
    return links


def _said(target: Target) -> list[Raw]:
    """Each subscribes as often as it may, and says as much of itself as it may."""
    links = _joined(target)
    count, most = LIMITS["link_subscriptions"], LIMITS["link_said_bytes"]
    for number, link in enumerate(links):
        describing = 32
        text = json.dumps({"id": f"a{number}", "type": "a", "capabilities": ["c" * (most // describing - 400)]})
        for slot in range(count):
            says = fields(agent=text.replace(f"a{number}", f"a{number}-{slot}", 1)) if slot < describing else fields()
            pattern = f"agent.a{number}-{slot}" if slot < describing else f"raw.{number}.{slot}.{'x' * 200}"
            link.send(frame(SUBSCRIBE, subscribed(pattern.encode()), says, id=1 << 32 | slot))
            link.receive()
    return links


def _exchanges(target: Target) -> list[Raw]:
    """Half of them call the others, as often as they may, and nobody answers."""
    links = _joined(target)
    half = LINKS // 2
    for number, answerer in enumerate(links[:half]):
        answerer.send(frame(SUBSCRIBE, subscribed(f"raw.{number}".encode()), id=1 << 32))
        answerer.receive()
    for number, caller in enumerate(links[half:]):
        subject = f"raw.{number}".encode()
        for begin in range(0, LIMITS["link_in_flight"] - 16, 1_000):
            slots = range(begin, min(begin + 1_000, LIMITS["link_in_flight"] - 16))
            calls = (frame(CALL, called(subject, deadline_ms=0), b"\xc0", id=1 << 32 | slot) for slot in slots)
            caller.send(b"".join(calls))
            _drain(links[number], len(slots))
    return links


def _drain(link: Raw, calls: int) -> None:
    """Take so many calls in, so that none of them waits."""
    while calls:
        came = link.receive()
        assert came is not None and came[0] != ERROR, came
        calls -= came[0] == CALL


def _names(target: Target) -> list[Raw]:
    """A thousand of each token come under the longest names, and are lost."""
    for user in TOKENS:
        for number in range(1_000):
            target.joined(user, name=f"{user}-{number}-{'n' * 40}").close()
    return []
