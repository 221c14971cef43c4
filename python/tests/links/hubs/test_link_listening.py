"""Links: where a hub listens, and whom it lets in to do what."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import stat
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import tidewire as tw
from link_processes import PATIENCE_S, Programs, free_port
from link_programs import Workshop
from tidewire.testing import Recorder

SECRET = "correct horse"


def test_the_first_place_decides_about_tokens_and_later_ones_that_differ_are_refused() -> None:
    place = "tide://127.0.0.1:0"
    secret = tw.Token(SECRET)
    with tw.Node() as hub:
        hub.listen(place)
        with pytest.raises(tw.InvalidArgument, match=r"tokens: .* in its first listen"):
            hub.listen(place, tokens=[secret])
    with tw.Node() as hub:
        hub.listen(place, tokens=[secret])
        for later in (hub.listen(place), hub.listen(place, tokens=[secret])):
            with pytest.raises(tw.Unauthorized), tw.Node(later.url):
                pass


async def test_a_place_may_be_awaited_as_what_is_served_is() -> None:
    async with tw.Node(name="hub") as hub:
        listener = await hub.listen("tide://127.0.0.1:0")
        async with tw.Node(listener.url, name="node"):
            assert hub.statistics()["links"]["nodes"] == 2
        with pytest.raises(tw.ConfigError, match="can't listen at"):
            await hub.listen(listener.url)


def test_one_token_is_no_list_of_them() -> None:
    with tw.Node() as hub, pytest.raises(tw.InvalidArgument, match=r"tokens: .* tokens=\[token\]"):
        hub.listen("tide://127.0.0.1:0", tokens=tw.Token(SECRET))  # type: ignore[arg-type]


@pytest.mark.promise("P13.10")
async def test_a_publish_that_the_token_forbids_reaches_nobody() -> None:
    quiet = tw.Token("say this only", publish=("news.small",))
    async with tw.Node(name="hub") as hub:
        url = hub.listen("tide://127.0.0.1:0", tokens=[tw.Token("all of it all"), quiet]).url
        async with (
            tw.Node(url, name="quiet", token=quiet.token) as node,
            Recorder(hub, "news.*") as heard,
            Recorder(node, "news.large") as own,
        ):
            with pytest.raises(
                tw.Unauthorized, match=r"^news\.large: the token of this node allows to publish on news\.small: "
            ):
                node.publish("news.large", 1)
            node.publish("news.small", 2)
            assert [(one.subject, one.message) for one in await heard.next(timeout=30)] == [("news.small", 2)]
            assert len(heard.seen) == 1 and not own.seen


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "example.org"])
def test_listening_where_others_reach_it_needs_a_word(host: str) -> None:
    with tw.Node(name="hub") as hub:
        with pytest.raises(tw.Unauthorized, match="insecure"):
            hub.listen(f"tide://{host}:0")
        with pytest.raises(tw.Unauthorized, match="TLS"):
            hub.listen(f"tide://{host}:0", tokens=[tw.Token(SECRET)])
        listener = hub.listen("tide://0.0.0.0:0", insecure=True)
        with tw.Node(listener.url.replace("0.0.0.0", "127.0.0.1"), name="caller"):
            pass


def test_a_second_signal_does_not_wait_for_the_calls_in_progress(started: Programs) -> None:
    hub, url, server = started.hub_and_server("tide://127.0.0.1:0", "--timeout", "1000")
    caller = started.caller(url, "hold")
    server.expect("holding")
    hub.signal(signal.SIGTERM)
    hub.expect_log("takes no new calls")
    hub.signal(signal.SIGTERM)
    assert hub.ended() == 0
    server.expect("cancelled")
    assert caller.ended() != 0


async def test_a_hub_that_closes_a_place_keeps_those_who_joined_there() -> None:
    async def late(url: str) -> None:
        async with tw.Node(url, name="late") as node:
            assert await node.client("workshop").label() == "here"

    async with tw.Node(name="hub") as hub:
        first, second = hub.listen("tide://127.0.0.1:0"), hub.listen("tide://127.0.0.1:0")
        await hub.serve(Workshop("here"), name="workshop")
        async with tw.Node(first.url, name="caller") as node:
            first.close()
            with pytest.raises(tw.LinkLost):
                await late(first.url)
            assert await node.client("workshop").label() == "here"
            await late(second.url)


def test_a_socket_that_a_killed_hub_left_behind_is_replaced(started: Programs) -> None:
    url = started.url("unix")
    path = url.removeprefix("tide+unix://")
    hub, _ = started.hub(url)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    hub.kill()
    assert os.path.exists(path)
    again, _ = started.hub(url)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with tw.Node(url, name="caller"):
        pass
    again.signal(signal.SIGTERM)
    assert again.ended() == 0
    assert not os.path.exists(path)


def test_a_socket_that_is_in_use_or_is_none_is_not_replaced(started: Programs) -> None:
    url = started.url("unix")
    started.hub(url)
    file = Path(started.place) / "file"
    file.write_text("mine")
    with tw.Node(name="other") as other:
        with pytest.raises(tw.ConfigError, match="can't listen"):
            other.listen(url)
        with pytest.raises(tw.ConfigError, match="can't listen"):
            other.listen(f"tide+unix://{file}")
        with pytest.raises(tw.ConfigError, match="can't listen"):
            other.listen(f"tide+unix://{started.place}/missing/hub.sock")
    assert file.read_text() == "mine"
    with tw.Node(url, name="caller"):
        pass


def test_a_node_that_joined_can_not_be_a_hub(started: Programs) -> None:
    _, url = started.hub()
    with tw.Node(url, name="caller") as node, pytest.raises(tw.InvalidArgument, match="has joined the hub"):
        node.listen("tide://127.0.0.1:0")


MANY_SERVICES = """
import sys
import tidewire as tw

place, data = sys.argv[1:]
with tw.Node(name="hub", data=data) as hub:
    for number in range(200):
        hub.serve({"number": lambda number=number: number}, name=f"service-{number}", visibility="public")
    print("ready", flush=True)
    sys.stdin.readline()
    hub.listen(place)
    sys.stdin.readline()
"""


@pytest.mark.promise("P13.92")
def test_a_hub_serves_before_a_node_or_a_client_can_reach_it(started: Programs, tmp_path: Path) -> None:
    url, path = started.url("unix"), f"http://127.0.0.1:{free_port()}"
    for number, place in enumerate((url, path)):
        hub = started.run("-c", MANY_SERVICES, place, str(tmp_path / f"data-{number}"))
        hub.expect("ready")
        hub.tell("listen")
        if place == url:
            until_listened(socket.AF_UNIX, url.removeprefix("tide+unix://"))
            with tw.Node(url, name="caller") as node:
                assert node.client("service-199").sync.number() == 199
                assert node.sync.stream("orders", subjects=["orders.>"]) is not None
        else:
            client = http.client.HTTPConnection(*until_listened(socket.AF_INET, ("127.0.0.1", urlsplit(path).port)))
            client.request("POST", "/services/service-199/number")
            assert client.getresponse().read() == b"199"
            client.close()


def until_listened(family: socket.AddressFamily, address: Any) -> Any:
    """Return an address as soon as a process listens there: no node is so quick."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with socket.socket(family) as probe, contextlib.suppress(OSError):
            probe.connect(address)
            return address
    raise AssertionError(f"no process listens at {address}")
