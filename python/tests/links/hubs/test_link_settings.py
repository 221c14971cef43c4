"""Links: how they work can be said in code, files, the environment and on the command line, and
both sides keep to it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from command_support import run_all
from link_processes import Programs
from link_programs import until_served


class Echo(tw.Service):
    @tw.method
    async def echo(self, value: Any) -> Any:
        return value

    @tw.method
    async def hold(self) -> None:
        await asyncio.Event().wait()


def links(**settings: int) -> dict[str, Any]:
    return {"links": settings}


def test_settings_are_read_like_all_of_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("[links]\nlink_heartbeat_ms = 200\nlink_in_flight = 100\n")
    config = tw.Config(
        {"links": tw.LinkConfig(link_heartbeat_ms=100, payload_bytes=4096)},
        file,
        {"TIDEWIRE_LINKS__LINK_IN_FLIGHT": "300"},
        {"links.link_batch_frames": "10"},
    )
    found = tw.Node(config=config).links
    assert (found.link_heartbeat_ms, found.link_in_flight, found.payload_bytes) == (200, 300, 4096)
    assert (found.link_batch_frames, found.hub_links) == (10, 10_000)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(tw.ConfigError) as raised:
        tw.Node(config=links(link_heartbeat=5, link_queue_bytes=1, payload_bytes=-1))
    assert raised.value.problems == [
        "links.link_heartbeat: unknown key; did you mean link_heartbeat_ms? (from code)",
        "links.link_queue_bytes: 1 is out of range; 1048576 to 4294967296 bytes are allowed (from code)",
        "links.payload_bytes: -1 is out of range; 1024 to 4294967296 bytes are allowed (from code)",
    ]
    with pytest.raises(tw.ConfigError, match=r"links\.hub_links: 0 is out of range; 1 to 1000000 links are allowed"):
        tw.LinkConfig(hub_links=0)
    with pytest.raises(tw.ConfigError, match="2 problems"):
        tw.LinkConfig(hub_links=True, link_batch_frames="soon")  # type: ignore[arg-type]


def test_wrong_settings_are_refused_by_their_receiver() -> None:
    with pytest.raises(
        tw.ConfigError, match="link_backoff_ms: 2000 is above link_backoff_max_ms=1500: lower it, or raise"
    ):
        tw.LinkConfig(link_backoff_ms=2_000, link_backoff_max_ms=1_500)
    with pytest.raises(tw.ConfigError, match="link_backoff_ms: 30000 is above link_backoff_max_ms"):
        tw.Node(config=links(link_backoff_ms=30_000))
    with pytest.raises(tw.InvalidArgument, match=r"name: 'nnn.* has 300 bytes: give at most name_bytes=255"):
        tw.Node(name="n" * 300)
    with pytest.raises(
        tw.InvalidArgument, match=r"publish: 'a\.\.b' is not allowed: give tokens divided by single dots"
    ):
        tw.Token("long enough", publish=("ok.>", "a..b"))
    with tw.Node() as node:
        twice = [tw.Token("long enough", user="max"), tw.Token("long enough", user="rita")]
        with pytest.raises(
            tw.InvalidArgument, match="tokens: those of the users 'max' and 'rita' are the same: give each"
        ):
            node.listen("tide://127.0.0.1:0", tokens=twice)
        with pytest.raises(tw.InvalidArgument, match=r"tokens\[0\].admin: True is not allowed: the hub itself uses"):
            node.listen("tide://127.0.0.1:0", tokens=[tw.Token("long enough", admin=True)])


def test_up_takes_settings_and_names_what_is_wrong_with_them() -> None:
    wrong = ["--set", "links.link_heartbeat=1", "--set", "links.hub_links=many", "--set", "lane_burst=0"]
    done, other = run_all(("up", *wrong), ("up", "--set", "x"))
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "config_invalid: configuration: 3 problems",
        "  links.link_heartbeat: unknown key; did you mean link_heartbeat_ms? (from --set)",
        '  links.hub_links: "many" is not a whole number; 1 to 1000000 links are allowed (from --set)',
        "  lane_burst: 0 is out of range; 1 to 255 messages are allowed (from --set)",
    ]
    assert (other.returncode, other.stderr) == (
        2,
        "invalid_argument: set: 'x' is not allowed: give KEY=VALUE, such as links.link_heartbeat_ms=1000\n",
    )


async def test_a_hub_keeps_what_it_was_told_to(started: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = ("--set", "links.payload_bytes=100000", "--set", "links.link_subscriptions=9")
    monkeypatch.setenv("TIDEWIRE_LINKS__LINK_IN_FLIGHT", "24")
    _, url = started.hub("tide://127.0.0.1:0", *sets)
    monkeypatch.delenv("TIDEWIRE_LINKS__LINK_IN_FLIGHT")
    server = started.server(url)
    async with tw.Node(url, name="caller") as node:
        workshop = node.client("workshop")
        assert len(await workshop.echo(bytes(90_000))) == 90_000
        with pytest.raises(tw.PayloadTooLarge, match=r"payload_bytes=100000 of the other side: send less"):
            await workshop.echo(bytes(110_000))
        held = [asyncio.ensure_future(workshop.hold()) for _ in range(22)]
        for _ in held:
            await asyncio.to_thread(server.expect, "holding")
        with pytest.raises(tw.LimitExceeded, match="link_in_flight=24: so many calls are open"):
            await workshop.label()
        for call in held:
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        assert await workshop.label() == "server"
        with pytest.raises(tw.LimitExceeded, match="link_subscriptions=9 is exceeded"):
            for number in range(10):
                await node.subscribe(f"some.{number}", print)


async def test_small_chunks_and_small_writes_carry_the_same_values() -> None:
    settings = links(link_chunk_bytes=1024, link_batch_bytes=4096, link_batch_frames=7)
    async with tw.Node(name="hub", config=settings) as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        async with tw.Node(url, name="server", config=settings) as server, tw.Node(url, name="caller") as caller:
            await server.serve(Echo(), name="echo")
            echo = caller.client("echo")
            values = [bytes([number]) * (number * 1_000) for number in range(60)]
            assert await asyncio.gather(*(echo.echo(value) for value in values)) == values


async def test_streams_and_what_is_given_keep_to_the_settings_of_their_nodes() -> None:
    written = 0

    async def count() -> AsyncIterator[int]:
        nonlocal written
        for number in range(1_000):
            written += 1
            yield number

    async def keep(functions: list[Any]) -> None:
        kept.extend(functions)

    kept: list[Any] = []
    async with tw.Node(name="hub") as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        small = links(stream_credit=2, remote_objects=3, remote_lease_ms=200)
        async with tw.Node(url, name="server") as server, tw.Node(url, name="caller", config=small) as caller:
            await server.serve({"count": count, "keep": keep}, name="desk")
            await until_served(caller, "desk")
            desk = caller.client("desk")
            async with desk.count() as stream:
                assert await anext(stream) == 0
                await desk.keep([])
                assert written <= 2 + tw.ServiceConfig().stream_ahead + 2
            with pytest.raises(tw.LimitExceeded, match="remote_objects=3"):
                await desk.keep([functools.partial(int, n) for n in range(4)])
            await desk.keep([functools.partial(int, "7")])
            assert await kept[0]() == 7
            await caller.until(lambda now: now["remote"]["given"] == 0, timeout=20)
            with pytest.raises(tw.RemoteGone):
                await kept[0]()
