"""Links: what breaks the rules over each transport, and who takes the place of whom."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from link_broken import FIRST, HARMLESS, LATER
from link_frames import Raw, hello
from link_processes import Program, Programs

SCHEMES = ["tide", "tide+unix", "tide+tls", "ws", "wss"]


@dataclass
class Place:
    """A hub with a server, and how it is reached."""

    program: Program
    url: str
    ca: Path | None


def opened(processes: Programs, scheme: str, certificates: Path, folder: Path, *options: str) -> Place:
    """Start a hub that listens over a transport, and in clear text for its server."""
    secured = scheme in ("tide+tls", "wss")
    files = [f"--cert={certificates}/hub.pem", f"--key={certificates}/hub.key"] if secured else []
    where = f"{scheme}://{folder}/hub.sock" if scheme == "tide+unix" else f"{scheme}://127.0.0.1:0"
    up = ("-m", "tidewire", "up", "--log-level", "warning")
    program = processes.run(*up, "--listen", where, "--listen", "tide://127.0.0.1:0", *files, *options)
    url, plain = re.findall(r"\S+://\S+", program.line())
    processes.server(plain)
    return Place(program, url, certificates / "ca.pem" if secured else None)


@pytest.fixture(scope="module", params=SCHEMES)
def place(
    request: pytest.FixtureRequest, processes: Programs, certificates: Path, tmp_path_factory: pytest.TempPathFactory
) -> Place:
    return opened(processes, request.param, certificates, tmp_path_factory.mktemp("hub"))


@pytest.fixture
def other(place: Place) -> Iterator[Any]:
    """A client over the same transport, whose calls must go on."""
    tls = None if place.ca is None else tw.Tls(ca=place.ca)
    with tw.Node(place.url, name="other", tls=tls) as node:
        workshop = node.client("workshop").sync
        assert workshop.echo(1) == 1
        yield workshop
        assert workshop.echo(2) == 2


def test_a_frame_that_breaks_a_rule_costs_its_own_link_over_every_transport(place: Place, other: Any) -> None:
    place.program.logged()
    cases = [(Raw, *case) for case in FIRST.values()] + [(Raw.joined, *case) for case in LATER.values()]
    for number, (connect, data, rule) in enumerate(cases):
        raw = connect(place.url, place.ca)
        raw.send(data)
        told = raw.until_end()
        line = place.program.expect_log("is closed")
        # A message that is too long, or ends within a frame, is refused by the WebSocket, which
        # says so in its own way.
        refused = place.url.startswith("ws") and "the WebSocket brought a message that" in line
        assert refused or re.search(rule, told or ""), (rule, told, line)
        assert refused or (told is not None and told in line), line
        assert other.echo(number) == number
        raw.close()
    assert not place.program.logged(), "each is told once"


def test_a_harmless_frame_is_skipped_over_every_transport(place: Place, other: Any) -> None:
    place.program.logged()
    for data in HARMLESS.values():
        raw = Raw.joined(place.url, place.ca)
        raw.send(data)
        assert raw.is_alive()
        raw.close()
    assert not place.program.logged()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_silent_peer_is_closed_in_time_over_every_transport(
    processes: Programs, certificates: Path, tmp_path: Path, scheme: str
) -> None:
    place = opened(processes, scheme, certificates, tmp_path, "--set", "links.link_greeting_ms=500")
    # One says nothing at all, one stops within what comes before HELLO, one within HELLO.
    kind = socket.AF_UNIX if scheme == "tide+unix" else socket.AF_INET
    at = place.url.split("://")[1]
    host, _, port = at.partition(":")
    waiting = []
    for said in (b"", b"GET / HTTP/1.1\r\nHost", bytes.fromhex("1603010200010001fc0303")):
        one = socket.socket(kind)
        one.settimeout(30)
        one.connect(at if scheme == "tide+unix" else (host, int(port)))
        one.sendall(said)
        waiting.append(one)
    slow = Raw(place.url, place.ca)
    if not scheme.startswith("ws"):
        slow.send(hello()[:-1])
    assert "link_greeting_ms" in (slow.until_end() or "")
    for one in waiting:
        while one.recv(4_096):
            pass
        one.close()
    slow.close()
