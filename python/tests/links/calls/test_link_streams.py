"""Links: streams between processes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator

import pytest
import tidewire as tw
from link_processes import Programs
from link_stories import three


class Long(tw.Service):
    @tw.method
    async def items(self, count: int, size: int) -> AsyncIterator[bytes]:
        for n in range(count):
            yield bytes([n]) * size
        raise ValueError(count)

    @tw.method
    def plainly(self, count: int, size: int) -> Iterator[bytes]:
        for n in range(count):
            yield bytes([n]) * size
        raise ValueError(count)


# Three megabytes in one write fit no socket; of the others more is credited than may wait for a
# link.
@pytest.mark.promise("P13.27", "P13.32")
@pytest.mark.parametrize("count, size", [(20, 70_000), (5, 3_000_000), (48, 2 << 20)])
@pytest.mark.parametrize("method", ["items", "plainly"])
@pytest.mark.parametrize("links", [{}, {"link_shared_bytes": 0}], ids=["shared", "sent"])
async def test_long_items_come_in_order_to_a_slow_reader_and_an_error_after_them(
    count: int, size: int, method: str, links: dict[str, int]
) -> None:
    async with three(links) as (hub, a, b):
        for server, reader in ((a, b), (hub, a), (b, hub)):
            served = await server.serve(Long(), name="long")
            seen = 0
            with pytest.raises(ValueError):
                async for item in getattr(reader.client("long"), method)(count, size):
                    assert len(item) == size and item[0] == item[-1] == seen
                    seen += 1
                    # The writer has its turn, and would run far ahead.
                    await asyncio.sleep(0.001)
            assert seen == count
            await served.stop()


async def test_a_writer_that_is_killed_ends_the_stream_after_what_came(started: Programs) -> None:
    _, url, server = started.hub_and_server()
    async with tw.Node(url, name="caller") as node:
        stream = node.client("workshop").count(1_000_000_000)
        assert await anext(stream) == 0
        server.signal(signal.SIGKILL)
        last = 0
        with pytest.raises(tw.LinkLost):
            async for n in stream:
                assert n == last + 1
                last = n


class Otherwise(tw.Service, name="workshop"):
    """The workshop, as a caller wrongly declares it."""

    @tw.method
    async def count(self, most: int) -> int:
        raise NotImplementedError

    @tw.method
    async def count_plainly(self, most: int) -> int:
        raise NotImplementedError

    @tw.method
    async def hold(self) -> AsyncIterator[str]:
        yield ""


def test_a_stream_and_a_value_that_are_taken_for_each_other_are_refused_before_the_handler_begins(
    started: Programs,
) -> None:
    _, url, server = started.hub_and_server()

    async def story() -> None:
        async with tw.Node(url, name="caller") as node:
            for method in ("count", "count_plainly"):
                with pytest.raises(tw.InvalidArgument, match=r"it is a stream.*async for"):
                    await getattr(node.client(Otherwise), method)(3)
            with pytest.raises(tw.InvalidArgument, match=r"it gives one value.*await it"):
                async for _ in node.client(Otherwise).hold():
                    pass
            assert await node.client("workshop").steady("") == "server 1"

    asyncio.run(asyncio.wait_for(story(), 20))
    assert server.line() == "trying 1"
