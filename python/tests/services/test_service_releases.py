"""Versions and metadata of instances, and watches of those that come and go."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
import tidewire as tw
from link_processes import Program
from service_support import PATIENCE

METADATA_BYTES = 4_096


class Pricing(tw.Service):
    """Prices of things."""

    @tw.method
    async def quote(self) -> float:
        return 2.5


class Changes:
    """Changes of a watch, one after the other."""

    def __init__(self, watch: AsyncIterator[tw.InstanceChange]) -> None:
        self._watch = watch

    async def next(self) -> tuple[str, str, str, str]:
        """Return the kind, the service, the id and the version of the next change."""
        change = await asyncio.wait_for(self._watch.__anext__(), PATIENCE)
        return change.kind, change.service, change.instance.id, change.instance.version


@contextlib.asynccontextmanager
async def hub() -> AsyncIterator[tuple[tw.Node, str]]:
    """A hub, and its address."""
    async with tw.Node(name="hub") as node:
        listener = await node.listen("tide://127.0.0.1:0")
        yield node, listener.url


async def test_an_instance_tells_its_version_and_its_metadata_to_all_nodes() -> None:
    async with hub() as (node, url), tw.Node(url, name="ann") as ann, tw.Node(url, name="ben") as ben:
        await ann.serve(Pricing(), instance="a", version="1.4.2-rc.1", metadata={"zone": "eu", "commit": "8c0ffee"})
        await ben.serve(Pricing(), instance="b")
        said = [
            tw.InstanceInfo("a", "ann", "1.4.2-rc.1", {"zone": "eu", "commit": "8c0ffee"}),
            tw.InstanceInfo("b", "ben"),
        ]
        for one in (node, ann, ben):
            watch = one.watch_services("pricing")
            found = [(await asyncio.wait_for(watch.__anext__(), PATIENCE)).instance for _ in said]
            assert sorted(found, key=lambda info: info.id) == said
            (info,) = [info for info in await one.services() if info.name == "pricing"]
            assert sorted(info.details, key=lambda info: info.id) == said
            assert {detail["id"] for detail in info.to_dict()["details"]} == set(info.instances) == {"a", "b"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"version": "1.4"}, r"version: \"1.4\" is not allowed .*semantic version such as \"1.4.2\""),
        ({"version": "nightly"}, "metadata"),
        ({"version": 2}, "version: 2 is not allowed: give a text"),
        ({"version": None}, "version: None is not allowed"),
        ({"metadata": {"zone": 1}}, "metadata: .* is not allowed: give texts by name"),
        ({"metadata": {1: "zone"}}, "metadata: .* is not allowed: give texts by name"),
        ({"metadata": ["zone"]}, "metadata: .* is not allowed: give texts by name"),
        ({"metadata": {"": "eu"}}, 'metadata: "" is not allowed as a name'),
        (
            {"metadata": {"note": "n" * (METADATA_BYTES - 3)}},
            f"service_metadata_bytes={METADATA_BYTES}: it has {METADATA_BYTES + 1} bytes",
        ),
    ],
)
async def test_a_version_that_is_none_and_metadata_that_are_none_are_refused(
    options: dict[str, Any], problem: str, node: tw.Node
) -> None:
    with pytest.raises(tw.InvalidArgument, match=problem):
        node.serve(Pricing(), **options)
    assert await node.services() == []
    await node.serve(Pricing(), metadata={"note": "n" * (METADATA_BYTES - 4)})


async def test_a_thousand_methods_are_announced() -> None:
    async with hub() as (node, url), tw.Node(url, name="ann") as ann:
        await ann.serve({f"method_{number}": lambda value=1: value for number in range(1_000)}, name="many")
        assert await node.client("many").method_999(5) == 5
        (info,) = await node.services()
        assert (len(info.methods), info.methods[999]) == (1_000, tw.MethodInfo("method_999"))
        longer = {"m" * 60 + str(number): lambda: 1 for number in range(1_000)}
        with pytest.raises(tw.LimitExceeded, match="link_announcement_bytes=61440: 'longer' has too many methods"):
            await ann.serve(longer, name="longer")
        assert len(await node.services()) == 1


async def test_a_watch_says_who_is_there_and_then_who_comes_and_goes() -> None:
    async with hub() as (node, url), tw.Node(url, name="ann") as ann:
        await node.serve(Pricing(), instance="first", version="1.0.0")
        await node.serve(Pricing(), name="other")
        changes = Changes(ann.watch_services("pricing"))
        assert await changes.next() == ("joined", "pricing", "first", "1.0.0")
        served = await ann.serve(Pricing(), instance="own")
        assert await changes.next() == ("joined", "pricing", "own", "")
        await served.stop()
        assert await changes.next() == ("left", "pricing", "own", "")
        program = Program("-c", SERVES, url)
        program.expect("serves")
        assert await changes.next() == ("joined", "pricing", "killed", "2.0.0")
        program.process.kill()
        program.process.wait()
        assert await changes.next() == ("left", "pricing", "killed", "2.0.0")


SERVES = """
import asyncio, sys
import tidewire as tw

class Pricing(tw.Service):
    @tw.method
    async def quote(self) -> float:
        return 2.5

async def main():
    async with tw.Node(sys.argv[1], name="program") as node:
        await node.serve(Pricing(), instance="killed", version="2.0.0")
        print("serves", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_reader_that_is_slow_gets_the_difference() -> None:
    async with tw.Node() as node:
        old = await node.serve(Pricing(), instance="one", version="1.0.0")
        changes = Changes(node.watch_services())
        assert await changes.next() == ("joined", "pricing", "one", "1.0.0")
        await old.stop()
        for number in range(20):
            await (await node.serve(Pricing(), instance=f"passing-{number}")).stop()
        await node.serve(Pricing(), instance="one", version="1.1.0")
        assert await changes.next() == ("left", "pricing", "one", "1.0.0")
        assert await changes.next() == ("joined", "pricing", "one", "1.1.0")
        await node.serve(Pricing(), name="last", instance="last")
        assert await changes.next() == ("joined", "last", "last", "")


async def test_a_watch_ends_with_its_node() -> None:
    async with tw.Node() as node:
        watch = node.watch_services("nobody")
        waiting = asyncio.ensure_future(watch.__anext__())
        await asyncio.sleep(0)
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(waiting, PATIENCE)
    for name in ("a.b", "", 7):
        with pytest.raises(tw.InvalidArgument, match="name: "):
            tw.Node().watch_services(name)  # type: ignore[arg-type]


def test_a_plain_thread_watches() -> None:
    found: list[str] = []
    begun = threading.Event()

    def reads() -> None:
        for change in node.sync.watch_services("pricing"):
            found.append(f"{change.kind} {change.instance.id}")
            begun.set()

    with tw.Node() as node:
        reader = threading.Thread(target=reads)
        reader.start()
        node.serve(Pricing(), instance="one")
        assert begun.wait(PATIENCE)
    reader.join(PATIENCE)
    assert not reader.is_alive()
    assert found[0] == "joined one" and set(found[1:]) <= {"left one"}
