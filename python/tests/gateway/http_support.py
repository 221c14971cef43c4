"""A hub with a gateway, services that the stories call over it, and clients that can also be bad
ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import decimal
import http.client
import json
import re
import socket
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import tidewire as tw

PATIENCE = 30.0


@dataclasses.dataclass
class Order:
    """Order of a customer."""

    symbol: str
    qty: int = 1


class Shop(tw.Service):
    """Sells things."""

    def __init__(self) -> None:
        self.gone = threading.Event()
        self.inside = threading.Event()

    @tw.method
    async def price(self, order: Order, factor: float = 2.5) -> float:
        """Say what an order costs."""
        return order.qty * factor

    @tw.method
    async def echo(self, value: Any = None) -> Any:
        """Give back what was given."""
        return value

    @tw.method
    def kinds(self) -> dict[str, Any]:
        """Give values of many types."""
        return {
            "bytes": b"\x00\xff",
            "date": datetime.date(2026, 11, 22),
            "datetime": datetime.datetime(2026, 11, 22, 8, 30, tzinfo=datetime.UTC),
            "decimal": decimal.Decimal("1.10"),
            "uuid": uuid.UUID(int=5),
            "set": {3},
            "tuple": (1, "two"),
            "nan": float("nan"),
            "by number": {1: "one"},
            "big": 2**64 - 1,
            "order": Order("X"),
        }

    @tw.method(safe=True)
    async def find(self, text: str, most: int = 3, tags: list[str] | None = None) -> list[Any]:
        """Say what was asked for."""
        return [text * most, *(tags or [])]

    @tw.method
    async def digest(self, data: bytes, when: datetime.datetime | None = None) -> str:
        """Say which types have come."""
        return f"{type(data).__name__} {len(data)} {type(when).__name__}"

    @tw.method
    async def upload(self, title: str, data: AsyncIterator[bytes], most: int = sys.maxsize) -> tuple[str, int]:
        """Count the bytes of a file while it comes."""
        came = 0
        async for chunk in data:
            came += len(chunk)
            self.inside.set()
            if came >= most:
                break
        return title, came

    @tw.method
    async def count(self, to: int) -> AsyncIterator[int]:
        """Count."""
        for number in range(to):
            yield number

    @tw.method
    async def forever(self) -> AsyncIterator[str]:
        """Count, and never end."""
        self.inside.set()
        try:
            number = 0
            while True:
                yield "x" * 1_000
                number += 1
                await asyncio.sleep(0)
        finally:
            self.gone.set()

    @tw.method
    async def broken(self, after: int) -> AsyncIterator[int]:
        """Fail after some items."""
        for number in range(after):
            yield number
        raise KeyError("lost")

    @tw.method
    async def hang(self) -> None:
        """Wait until nobody waits any more."""
        self.inside.set()
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            self.gone.set()

    @tw.method
    async def fail(self, text: str = "no") -> None:
        """Fail."""
        raise ValueError(text)

    @tw.method
    async def refuse(self, name: str) -> None:
        """Fail with an error of this library."""
        raise getattr(tw, name)("not now")

    @tw.method
    async def who(self) -> dict[str, Any]:
        """Say who calls."""
        call = tw.context()
        return {"user": call.user, "origin": call.origin, "trace": call.trace, "headers": dict(call.headers)}

    @tw.method
    def who_plainly(self) -> str:
        """Say who calls, on a thread."""
        call = tw.context()
        return f"{call.user} {call.origin}"

    @tw.method(visibility="private")
    async def secret(self) -> str:
        """Nobody outside is to know."""
        return "secret"


class Hidden(tw.Service):
    """Is for nodes alone."""

    @tw.method
    async def secret(self) -> str:
        """Nobody outside is to know."""
        return "secret"


@dataclasses.dataclass
class Answer:
    """Response of the gateway."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def problem(self) -> tuple[int, str]:
        """Status and code of a problem."""
        assert self.headers["content-type"] == "application/problem+json", self.body
        told = self.value
        assert told["status"] == self.status
        assert "Traceback" not in self.body.decode()
        return self.status, told["code"]


@dataclasses.dataclass
class Site:
    """A hub with a gateway."""

    node: tw.Node
    url: str
    shop: Shop

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        assert parts.hostname
        assert parts.port
        return parts.hostname, parts.port

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Make one request over a connection of its own. Underscores in names of headers stand for
        hyphens.
        """
        with contextlib.closing(http.client.HTTPConnection(*self.place, timeout=PATIENCE)) as connection:
            return ask(connection, method, path, body, **headers)

    def call(self, path: str, *args: Any, **headers: str) -> Answer:
        """Call a method by position."""
        return self.ask("POST", f"/services/{path}", list(args), **headers)

    def raw(self, *parts: bytes) -> bytes:
        """Say something, and return all that is answered until the connection is closed."""
        with socket.create_connection(self.place, timeout=PATIENCE) as talk:
            for part in parts:
                talk.sendall(part)
            return b"".join(iter(lambda: talk.recv(65_536), b""))

    def statistics(self) -> dict[str, int]:
        """Counters of the gateway in its metrics, without the connection of this request."""
        found = re.findall(r"^tidewire_http_(\w+) (\d+)$", self.ask("GET", "/metrics").body.decode(), re.MULTILINE)
        return {name: int(count) - (name == "connections") for name, count in found}

    def idle(self) -> bool:
        """Wait until no request is under way any more, which the gateway tells; False if that takes
        too long.
        """
        (gateway,) = self.node._link().ends.gateways
        return bool(gateway.idle(PATIENCE).wait())


def ask(connection: http.client.HTTPConnection, method: str, path: str, body: Any = None, **headers: str) -> Answer:
    """Make one request."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        sent.setdefault("content-type", "application/json")
    connection.request(method, path, body, sent)
    answer = connection.getresponse()
    return Answer(answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.read())


def until(holds: Callable[[], object], what: str) -> None:
    """Ask until something is so that nobody tells of. To ask is a request: there is no sleep
    between two of them.
    """
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, what


@contextlib.contextmanager
def site(*, http: tw.Http | None = None, tokens: tuple[tw.Token, ...] = (), data: Path | None = None) -> Iterator[Site]:
    """A hub with a gateway and a shop, until the end of the block."""
    with tw.Node(name="hub", data=data) as node:
        url = node.listen("http://127.0.0.1:0", tokens=tokens, http=http).url
        shop = Shop()
        node.serve(shop, name="shop", visibility="public")
        node.serve(Hidden(), name="hidden", visibility="private")
        yield Site(node, url, shop)
