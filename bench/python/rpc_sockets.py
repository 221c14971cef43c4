"""A bare socket of asyncio between caller and service, without a hub: the floor for Python. Forms:
tcp, unix.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from rpc_frames import NUMBER, Requests, answer
from rpc_roles import Contender, Service, run
from rpc_workloads import Link


class Frames(asyncio.Protocol):
    """Frames with their length before them."""

    def __init__(self, arrived: Callable[[Frames, bytes], None]) -> None:
        self._arrived = arrived
        self._parts = bytearray()
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parts += data
        at, have = 0, len(self._parts)
        while have - at >= NUMBER.size:
            [length] = NUMBER.unpack_from(self._parts, at)
            end = at + NUMBER.size + length
            if end > have:
                break
            self._arrived(self, bytes(memoryview(self._parts)[at + NUMBER.size : end]))
            at = end
        if at:
            del self._parts[:at]

    def write(self, frame: bytes) -> None:
        """Sends a frame at once, or as soon as the socket takes it."""
        self._transport.writelines((NUMBER.pack(len(frame)), frame))

    async def send(self, frame: bytes) -> None:
        """Sends a frame when the one before it has gone, but for what a socket's buffer holds."""
        await self._writable.wait()
        self.write(frame)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()


@asynccontextmanager
async def serve(url: str, form: str, service: Service) -> AsyncIterator[str]:
    def arrived(frames: Frames, frame: bytes) -> None:
        reply = answer(service, frame)
        if reply is not None:
            frames.write(reply)

    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "echo"))
        if form == "unix":
            server = await loop.create_unix_server(partial(Frames, arrived), path)
            yield path
        else:
            server = await loop.create_server(partial(Frames, arrived), "127.0.0.1", 0)
            yield str(server.sockets[0].getsockname()[1])
        server.close()
        with suppress(FileNotFoundError):
            Path(path).unlink()


@asynccontextmanager
async def connect(url: str, form: str) -> AsyncIterator[Link]:
    loop = asyncio.get_running_loop()
    make = partial(Frames, lambda frames, frame: requests.arrived(frame))
    if form == "unix":
        transport, frames = await loop.create_unix_connection(make, url)
    else:
        transport, frames = await loop.create_connection(make, "127.0.0.1", int(url))
    requests = Requests(frames.send)
    yield requests
    transport.close()


if __name__ == "__main__":
    run(Contender(serve, connect))
