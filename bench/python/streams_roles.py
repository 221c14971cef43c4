"""Streams from Python: one run of a role and a workload, whose rate goes to standard output as
JSON.

``python streams_roles.py tidewire PLACE pipelined 100000``: ``PLACE`` is a folder or file that is
not there, a hub, a nats-server or a Redis server.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

WINDOW = 4_096
GATHERED = 100
VALUE = bytes(256)


async def tidewire(place: str, workload: str, count: int) -> float:
    """Ours, in a folder of this process, at a hub, or on NATS."""
    import tidewire as tw

    node = tw.Node(place) if "://" in place else tw.Node(data=place)
    async with node:
        stream = await node.stream("orders", subjects=["orders.>"])
        if workload == "consume":
            async with stream.publisher(WINDOW) as out:
                for _ in range(count):
                    await out.publish("orders.a", VALUE, content="bytes")
            consumer = await stream.consumer("c", start="all")
            begun, left = time.perf_counter(), count
            async with consumer:
                async for event in consumer:
                    await event.ack()
                    left -= 1
                    if not left:
                        break
        elif workload == "pipelined":
            begun = time.perf_counter()
            async with stream.publisher(WINDOW) as out:
                for _ in range(count):
                    await out.publish("orders.a", VALUE, content="bytes")
        elif workload == "batches":
            begun = time.perf_counter()
            for _ in range(count // GATHERED):
                async with stream.batch() as batch:
                    for _ in range(GATHERED):
                        batch.publish("orders.a", VALUE, content="bytes")
        elif workload == "one":
            begun = time.perf_counter()
            for _ in range(count):
                await stream.publish("orders.a", VALUE, content="bytes")
        else:
            begun = time.perf_counter()
            for _ in range(count // GATHERED):
                await asyncio.gather(*(stream.publish("orders.a", VALUE, content="bytes") for _ in range(GATHERED)))
        spent = time.perf_counter() - begun
        await stream.delete()
        return count / spent


async def nats_py(place: str, workload: str, count: int) -> float:
    """JetStream by nats-py."""
    import nats

    connection = await nats.connect(place)
    context = connection.jetstream(publish_async_max_pending=WINDOW)
    await context.add_stream(name="bare", subjects=["bare.>"])
    begun = time.perf_counter()
    if workload == "one":
        for _ in range(count):
            await context.publish("bare.a", VALUE)
    elif workload == "gathers":
        for _ in range(count // GATHERED):
            await asyncio.gather(*(context.publish("bare.a", VALUE) for _ in range(GATHERED)))
    else:
        waiting: deque[Any] = deque()
        for _ in range(count):
            waiting.append(await context.publish_async("bare.a", VALUE))
            if len(waiting) >= WINDOW:
                await waiting.popleft()
        for ack in waiting:
            await ack
    if workload == "consume":
        subscription = await context.pull_subscribe("bare.>", durable="c")
        begun, left = time.perf_counter(), count
        while left:
            for message in await subscription.fetch(min(1_000, left)):
                await message.ack()
                left -= 1
        await connection.flush()
    spent = time.perf_counter() - begun
    await context.delete_stream("bare")
    await connection.close()
    return count / spent


async def redis_streams(place: str, workload: str, count: int) -> float:
    """Streams of Redis, which syncs its file before it answers (appendfsync always); pipelines of
    1,000.
    """
    import redis.asyncio as redis

    connection = redis.from_url(place)
    await connection.config_set("appendonly", "yes")
    await connection.config_set("appendfsync", "always")
    await connection.delete("bare")
    begun = time.perf_counter()
    size = {"one": 1, "gathers": GATHERED, "batches": GATHERED}.get(workload, 1_000)
    for _ in range(count // size):
        async with connection.pipeline(transaction=workload == "batches") as pipeline:
            for _ in range(size):
                pipeline.xadd("bare", {"value": VALUE})
            await pipeline.execute()
    if workload == "consume":
        await connection.xgroup_create("bare", "c", "0")
        begun, left = time.perf_counter(), count
        while left:
            [(_, found)] = await connection.xreadgroup("c", "me", {"bare": ">"}, count=1_000)
            await connection.xack("bare", "c", *(number for number, _ in found))
            left -= len(found)
    spent = time.perf_counter() - begun
    await connection.delete("bare")
    await connection.aclose()
    return count / spent


async def bare(place: str, workload: str, count: int) -> float:
    """A file whose space was taken before: what the disk gives."""
    size = 1 if workload == "one" else 1_000
    file = os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.posix_fallocate(file, 0, count * len(VALUE))
    group = VALUE * size
    begun = time.perf_counter()
    for number in range(count // size):
        os.pwrite(file, group, number * len(group))
        os.fdatasync(file)
    spent = time.perf_counter() - begun
    os.close(file)
    return count / spent


async def sqlite(place: str, workload: str, count: int) -> float:
    """A table of SQLite, which syncs each transaction (WAL, synchronous=FULL)."""
    size = {"one": 1, "gathers": GATHERED, "batches": GATHERED}.get(workload, 1_000)
    base = sqlite3.connect(place, isolation_level=None)
    base.executescript(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE log (n INTEGER PRIMARY KEY, value BLOB)"
    )
    group = [(VALUE,)] * size
    begun = time.perf_counter()
    for _ in range(count // size):
        base.execute("BEGIN")
        base.executemany("INSERT INTO log (value) VALUES (?)", group)
        base.execute("COMMIT")
    spent = time.perf_counter() - begun
    base.close()
    return count / spent


async def fill(place: str, count: int) -> None:
    """Fill a folder that is to be opened anew."""
    import tidewire as tw

    async with tw.Node(data=place) as node:
        stream = await node.stream("orders", subjects=["orders.>"])
        async with stream.publisher(WINDOW) as out:
            for _ in range(count):
                await out.publish("orders.a", VALUE, content="bytes")
        for number in range(100):
            await stream.consumer(f"c{number}")


async def reopened(place: str) -> dict[str, float]:
    """Open a folder, and measure until the first ack; then what memory this process takes."""
    import tidewire as tw

    async with tw.Node(data=place) as node:
        begun = time.perf_counter()
        stream = await node.find_stream("orders")
        await stream.publish("orders.a", VALUE, content="bytes")
        spent = time.perf_counter() - begun
        status = Path("/proc/self/status").read_text()
    resident_kb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
    return {"restart_ms": spent * 1e3, "resident_mb": resident_kb / 1_024}


ROLES = {"tidewire": tidewire, "nats-py": nats_py, "redis": redis_streams, "bare": bare, "sqlite": sqlite}


def figures(role: str, place: str, workload: str, count: int) -> dict[str, float]:
    """Return what one run has found."""
    if role == "reopened":
        return asyncio.run(reopened(place))
    if workload == "restart":
        asyncio.run(fill(place, count))
        fresh = [sys.executable, __file__, "reopened", place, workload, "0"]
        return dict(json.loads(subprocess.run(fresh, capture_output=True, text=True, check=True).stdout))
    return {"rate": asyncio.run(ROLES[role](place, workload, count))}


if __name__ == "__main__":
    role, where, what, number = sys.argv[1:]
    print(json.dumps(figures(role, where, what, int(number))))
