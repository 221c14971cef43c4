"""Requests over a connection that carries frames and knows no requests: a frame is the number of
its request, then the payload.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Awaitable, Callable

from rpc_roles import Service

NUMBER = struct.Struct("<I")
ONE_WAY = NUMBER.pack(0)
"""A message of a stream has the number of no request."""


class Requests:
    """The caller's side: which reply belongs to which request."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        self._send = send
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._numbers = itertools.count(1)
        self._loop = asyncio.get_running_loop()

    async def echo(self, data: bytes) -> bytes:
        """Sends a request and waits for its reply."""
        number = next(self._numbers)
        future = self._waiting[number] = self._loop.create_future()
        await self._send(NUMBER.pack(number) + data)
        return await future

    async def stream(self, messages: list[bytes]) -> None:
        """Sends messages that nobody answers."""
        for message in messages:
            await self._send(ONE_WAY + message)

    def arrived(self, frame: bytes) -> None:
        """A reply."""
        [number] = NUMBER.unpack_from(frame)
        self._waiting.pop(number).set_result(frame[NUMBER.size :])


def answer(service: Service, frame: bytes) -> bytes | None:
    """The service's side: the reply to a request; a message of a stream has none."""
    number, data = frame[: NUMBER.size], frame[NUMBER.size :]
    if number == ONE_WAY:
        service.take(data)
        return None
    return number + service.echo(data)
