"""A client of NATS that knows nothing of Tidewire: uses what a story has made, makes what it will
use, says what it saw.

plain_client.py URL STREAM BUCKET OTHER_STREAM OTHER_BUCKET
"""

from __future__ import annotations

import asyncio
import json
import sys

import nats
from nats.js.api import KeyValueConfig, StreamConfig
from nats.js.errors import KeyNotFoundError


async def main(url: str, stream: str, bucket: str, other_stream: str, other_bucket: str) -> None:
    client = await nats.connect(url)
    jetstream = client.jetstream()
    seen: dict[str, object] = {}

    subscription = await jetstream.pull_subscribe(f"{stream}.>", durable="plain", stream=stream)
    messages = await subscription.fetch(2, timeout=5)
    seen["messages"] = [[one.subject, one.data.decode(), dict(one.headers or {})] for one in messages]
    for one in messages:
        await one.ack_sync()
    ack = await jetstream.publish(
        f"{stream}.plain", b'{"from": "plain"}', headers={"Nats-Msg-Id": "p1", "content-type": "application/json"}
    )
    again = await jetstream.publish(f"{stream}.plain", b"twice", headers={"Nats-Msg-Id": "p1"})
    seen["acks"] = [ack.seq, again.duplicate]

    keys = await jetstream.key_value(bucket)
    entry = await keys.get("limits.eu.max")
    seen["entry"] = [entry.key, (entry.value or b"").decode(), entry.revision]
    seen["updated"] = await keys.update("limits.eu.max", b"2", last=entry.revision or 0)
    await keys.put("plain.key", b"of plain")
    seen["keys"] = sorted(await keys.keys())
    try:
        await keys.get("gone")
        seen["gone"] = False
    except KeyNotFoundError:
        seen["gone"] = True

    await jetstream.add_stream(StreamConfig(name=other_stream, subjects=[f"{other_stream}.*"]))
    await jetstream.publish(f"{other_stream}.a", b"theirs")
    theirs = await jetstream.create_key_value(KeyValueConfig(bucket=other_bucket, history=3))
    await theirs.put("a.b", b"1")
    await theirs.put("a.b", b"2")
    await theirs.put("c", b"1")
    await theirs.delete("c")
    await client.close()
    print(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
