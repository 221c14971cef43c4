"""Links to a hub that a test disturbs: TCP proxies in the process of the test."""

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
    """A TCP proxy in front of a hub. It passes bytes on as they come, until a test disturbs it.

    Attributes:
        url: The URL of the hub over this link: ``tw.Node(link.url)``.
    """

    def __init__(self, hub: str) -> None:
        self._hub, self._delay_s, self._refuses = urlsplit(hub), 0.0, False
        self._writers: set[asyncio.StreamWriter] = set()
        self._started: Future[int] = Future()
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(),), name="tidewire-link", daemon=True)
        self._thread.start()
        self.url = f"tide://127.0.0.1:{self._started.result(_START_S)}"

    def partition(self) -> None:
        """Hold back all bytes, both ways, until ``heal``. Connections stay open, and new ones get
        no answer, as on a divided network.
        """
        self._do(self._passes.clear)

    def delay(self, seconds: float) -> None:
        """Pass on what comes so many seconds later, both ways, until ``heal``."""
        self._delay_s = seconds

    def drop(self) -> None:
        """Reset all connections, and new ones at once, until ``heal``."""
        self._refuses = True
        self._do(self._reset)

    def heal(self) -> None:
        """Pass on all bytes again, those that were held first."""
        self._delay_s, self._refuses = 0.0, False
        self._do(self._passes.set)

    def close(self) -> None:
        """Reset all connections, and take no new ones."""
        self.drop()
        self._do(self._closed.set)
        self._thread.join()

    def _do(self, change: Callable[[], Any]) -> None:
        done: Future[None] = Future()
        self._loop.call_soon_threadsafe(lambda: done.set_result(change()))
        done.result()

    async def _run(self) -> None:
        self._loop, self._passes, self._closed = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._passes.set()
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
        there = writer
        with contextlib.suppress(OSError):
            await self._passes.wait()
            if self._refuses:
                self._reset()
            else:
                source, there = await asyncio.open_connection(self._hub.hostname, self._hub.port)
                self._writers.add(there)
                await asyncio.gather(self._pass(reader, there), self._pass(source, writer))
        self._writers -= {writer, there}
        writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                await self._passes.wait()
                writer.write(chunk)
                await writer.drain()
        await self._passes.wait()
        writer.close()
