"""Links to a hub that a test can disturb: TCP proxies in the process of the test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any
from urllib.parse import urlsplit

_CHUNK_BYTES = 65_536
_START_S = 30.0
_RESET = struct.pack("ii", 1, 0)


class Link:
    """TCP proxy in front of a hub. It forwards all bytes at once until a test disturbs it.

    Attributes:
        url: URL of the hub through this link: ``tw.Node(link.url)``.
    """

    def __init__(self, hub: str) -> None:
        self._hub, self._delay_s, self._is_dropping = urlsplit(hub), 0.0, False
        self._writers: set[asyncio.StreamWriter] = set()
        self._started: Future[int] = Future()
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(),), name="tidewire-link", daemon=True)
        self._thread.start()
        self.url = f"tide://127.0.0.1:{self._started.result(_START_S)}"

    def partition(self) -> None:
        """Hold all bytes in both directions until ``heal``, as in a network partition. Connections
        stay open, and new ones get no reply.
        """
        self._run_on_loop(self._open.clear)

    def delay(self, seconds: float) -> None:
        """Delay bytes in both directions by this number of seconds until ``heal``."""
        self._delay_s = seconds

    def drop(self) -> None:
        """Reset all connections, and each new one, until ``heal``."""
        self._is_dropping = True
        self._run_on_loop(self._reset)

    def heal(self) -> None:
        """Forward all bytes again, held bytes first."""
        self._delay_s, self._is_dropping = 0.0, False
        self._run_on_loop(self._open.set)

    def close(self) -> None:
        """Reset all connections, and accept no new ones."""
        self.drop()
        self._run_on_loop(self._closed.set)
        self._thread.join()

    def _run_on_loop(self, change: Callable[[], Any]) -> None:
        done: Future[None] = Future()
        self._loop.call_soon_threadsafe(lambda: done.set_result(change()))
        done.result()

    async def _run(self) -> None:
        self._loop, self._open, self._closed = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._open.set()
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self._started.set_result(server.sockets[0].getsockname()[1])
        await self._closed.wait()
        server.close()

    def _reset(self) -> None:
        for writer in self._writers:
            with contextlib.suppress(OSError):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        hub_writer = writer
        with contextlib.suppress(OSError):
            await self._open.wait()
            if self._is_dropping:
                self._reset()
            else:
                hub_reader, hub_writer = await asyncio.open_connection(self._hub.hostname, self._hub.port)
                self._writers.add(hub_writer)
                await asyncio.gather(self._forward(reader, hub_writer), self._forward(hub_reader, writer))
        self._writers -= {writer, hub_writer}
        writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                await self._open.wait()
                writer.write(chunk)
                await writer.drain()
        await self._open.wait()
        writer.close()
