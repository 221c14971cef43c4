"""A node of Python whose streams, buckets and leases are at a hub of Rust."""

import asyncio
import sys

import tidewire as tw


class Desk(tw.Service):
    def __init__(self) -> None:
        self.seen: asyncio.Queue[str] = asyncio.Queue(2_000)

    @tw.on("orders.*", durable="desk")
    async def on_order(self, order: str) -> None:
        await self.seen.put(order)


class Matcher(tw.Service):
    @tw.method
    async def fence(self) -> int:
        return tw.context().fence


async def main(url: str) -> None:
    async with tw.Node(url, name="python") as node:
        orders = await node.stream("orders", subjects=["orders.>"])
        desk = Desk()
        await node.serve(desk)
        ack = await orders.publish("orders.new", "tea", key="anna", id="o-1")
        assert (ack.sequence, ack.durability, ack.duplicate) == (1, "disk", False)
        assert (await orders.publish("orders.new", "tea", id="o-1")).duplicate
        async with orders.publisher(window=100) as out:
            for number in range(1_000):
                await out.publish("orders.many", str(number))
        assert [await desk.seen.get() for _ in range(1_001)] == ["tea", *map(str, range(1_000))]
        async with orders.batch() as batch:
            batch.publish("orders.batch", "salt")
        consumer = await orders.consumer("billing", start="all", max_deliver=1)
        async with consumer:
            event = await consumer.next(timeout=10)
            assert (event.value, event.key, event.id) == ("tea", "anna", "o-1")
            await event.nak(error=ValueError("no such customer"), wait=True)
            [dead] = await consumer.dead_letters()
            assert dead.error == "ValueError: no such customer", dead.error
        try:
            await node.stream("orders", subjects=["other.>"])
        except tw.SettingsDiffer as error:
            assert "subjects" in str(error)
        else:
            raise AssertionError("it has other subjects")
        config = await node.kv("config")
        revision = await config.put("a.b", {"most": 3})
        try:
            await config.create("a.b", 4)
        except tw.RevisionConflict:
            pass
        else:
            raise AssertionError("it has a value")
        async for entry in config.watch("a.>"):
            assert (entry.value, entry.revision) == ({"most": 3}, revision)
            break
        async with node.lease("nightly", timeout=10.0) as lease:
            assert lease.fence >= 1
        served = await node.serve(Matcher(), active="single")
        assert await node.client(Matcher).fence() >= 1
        await served.stop()
        print("done", flush=True)


asyncio.run(main(sys.argv[1]))
