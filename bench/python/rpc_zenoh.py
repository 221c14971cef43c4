"""Eclipse zenoh: a query and its reply, and publications one way. Forms: router (through a hub),
direct (from peer to peer).

To processes of the same machine zenoh passes what is longer than 3 KiB through shared memory,
unless it is told not to, as in the forms that end with ``-sockets``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import zenoh
from rpc_roles import Contender, Place, Service, free_port, run
from rpc_workloads import Link

QUERY_TIMEOUT_S = 50.0


@asynccontextmanager
async def hub(form: str) -> AsyncIterator[Place]:
    url = f"tcp/127.0.0.1:{free_port()}"
    with zenoh.open(settings(form, "router", listen=url)):
        yield Place(url)


@asynccontextmanager
async def serve(url: str, form: str, service: Service) -> AsyncIterator[str]:
    own = f"tcp/127.0.0.1:{free_port()}"
    direct = form.startswith("direct")
    places = settings(form, "peer", listen=own) if direct else settings(form, "client", connect=url)

    def echo(query: zenoh.Query) -> None:
        with query:
            query.reply("echo", service.echo(query.payload.to_bytes()))

    def take(sample: zenoh.Sample) -> None:
        service.take(sample.payload.to_bytes())

    with zenoh.open(places) as session:
        queryable = session.declare_queryable("echo", echo)
        subscriber = session.declare_subscriber("take", take)
        yield own if direct else url
        subscriber.undeclare()
        queryable.undeclare()


class Caller:
    """A session. Replies come on a thread of zenoh's, and go to the loop from there."""

    def __init__(self, session: zenoh.Session) -> None:
        self._querier = session.declare_querier(
            "echo", target=zenoh.QueryTarget.BEST_MATCHING, congestion_control=BLOCK, timeout=QUERY_TIMEOUT_S
        )
        self._publisher = session.declare_publisher("take", congestion_control=BLOCK)
        self._loop = asyncio.get_running_loop()

    async def echo(self, data: bytes) -> bytes:
        future: asyncio.Future[bytes] = self._loop.create_future()

        def arrived(reply: zenoh.Reply) -> None:
            self._loop.call_soon_threadsafe(future.set_result, reply.ok.payload.to_bytes())

        self._querier.get(arrived, payload=data)
        return await future

    async def stream(self, messages: Sequence[bytes]) -> None:
        for message in messages:
            self._publisher.put(message)

    async def found(self) -> None:
        """Waits until the service and its subscriber are known here."""
        while not (self._querier.matching_status.matching and self._publisher.matching_status.matching):
            await asyncio.sleep(0.01)


@asynccontextmanager
async def connect(url: str, form: str) -> AsyncIterator[Link]:
    with zenoh.open(settings(form, "peer" if form.startswith("direct") else "client", connect=url)) as session:
        caller = Caller(session)
        await caller.found()
        yield caller


def settings(form: str, mode: str, *, listen: str = "", connect: str = "") -> zenoh.Config:
    """Only what is named here takes part: nobody looks around in the network."""
    config = zenoh.Config()
    config.insert_json5("mode", json.dumps(mode))
    config.insert_json5("listen/endpoints", json.dumps([listen] if listen else []))
    config.insert_json5("connect/endpoints", json.dumps([connect] if connect else []))
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("scouting/gossip/enabled", "false")
    config.insert_json5("transport/shared_memory/enabled", json.dumps(not form.endswith("-sockets")))
    return config


BLOCK = zenoh.CongestionControl.BLOCK

if __name__ == "__main__":
    run(Contender(serve, connect, hub))
