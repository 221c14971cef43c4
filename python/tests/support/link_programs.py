"""Programs that the stories about links run as processes of their own; ``link_processes`` holds
them.

A program says one line for each thing that happens. A story waits for those lines, and tells it to
end by closing its input.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import tidewire as tw

PATIENCE_S = 30.0
CREDIT = tw.LinkConfig().stream_credit


class Unsent:
    """A type that no link knows."""


class Workshop(tw.Service):
    """Service of the stories. It reports when a handler begins to wait and how it ends."""

    def __init__(self, label: str = "") -> None:
        self._label = label
        self._gate = asyncio.Event()
        self._late = asyncio.Event()
        self._kept: Any = None
        self.written = 0
        self._tries = 0

    @tw.method
    async def echo(self, value: Any) -> Any:
        return value

    @tw.method
    async def size(self, value: Any) -> int:
        return len(value)

    @tw.method
    def plain(self, number: int) -> int:
        return number + 1

    @tw.method
    async def label(self) -> str:
        return self._label

    @tw.method
    async def hold(self) -> str:
        say("holding")
        try:
            await self._gate.wait()
        except asyncio.CancelledError:
            say("cancelled")
            raise
        return self._label

    @tw.method(idempotent=True)
    async def steady(self, holder: str) -> str:
        """Wait for ever at the first try, if this is the instance that is to do so."""
        self._tries += 1
        say("trying", self._tries)
        if self._label == holder and self._tries == 1:
            await asyncio.Event().wait()
        return f"{self._label} {self._tries}"

    @tw.method
    async def block(self, seconds: float) -> None:
        """Keep the event loop from going round."""
        say("blocking")
        time.sleep(seconds)  # noqa: ASYNC251

    @tw.method
    def work(self, seconds: float) -> None:
        say("working")
        time.sleep(seconds)

    @tw.method
    async def linger(self) -> None:
        """Wait, and take one's time with the end when the caller has gone."""
        say("lingering")
        try:
            await asyncio.Event().wait()
        finally:
            await self._late.wait()
            say("over")

    def release(self) -> None:
        """Let those end that linger; not for callers."""
        self._late.set()

    def open_gate(self) -> None:
        """Let those go on that hold; not for callers."""
        self._gate.set()

    @tw.method
    async def keep(self, function: Any) -> None:
        self._kept = function

    @tw.method
    async def call_kept(self) -> Any:
        return await self._kept()

    @tw.method
    async def caller(self) -> list[Any]:
        call = tw.context()
        return [call.node, call.user, call.remaining]

    @tw.method
    async def fail(self, kind: str) -> None:
        raise {"key": KeyError("a"), "value": ValueError("b", 2), "tide": tw.NoReply("c")}[kind]

    @tw.method
    async def unsent(self) -> Any:
        return {"a": [1, Unsent()]}

    @tw.method
    async def relay(self, service: str, method: str, timeout: float | None) -> Any:
        """Call another service out of this handler."""
        await until_served(NODE[0], service)
        return await getattr(NODE[0].client(service).with_(timeout=timeout), method)()

    @tw.method
    async def count(self, most: int) -> AsyncIterator[int]:
        self.written = 0
        try:
            for number in range(most):
                self.written += 1
                if self.written == CREDIT:
                    say("ahead")
                yield number
        finally:
            say("closed")

    @tw.method
    def count_plainly(self, most: int) -> Iterator[int]:
        try:
            yield from range(most)
        finally:
            say("closed")

    @tw.method
    async def blocks(self, most: int, size: int) -> AsyncIterator[bytes]:
        for _ in range(most):
            yield bytes(size)

    @tw.method
    async def ahead(self) -> int:
        """Return how many items the last stream has written."""
        return self.written


NODE: list[tw.Node] = []


def say(*words: object) -> None:
    print(*words, flush=True)


# Programs in processes of their own


async def _serve(url: str, name: str, service: str, instance: str) -> None:
    async with tw.Node(url, name=name) as node:
        NODE.append(node)
        workshop = Workshop(name)
        await node.serve(workshop, name=service, instance=instance)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, workshop.open_gate)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, workshop.release)
        say("ready")
        await asyncio.to_thread(sys.stdin.read)


async def _listen(url: str, name: str, service: str, instance: str) -> None:
    async with tw.Node(name=name) as node:
        NODE.append(node)
        listener = node.listen(url)
        await node.serve(Workshop(name), name=service, instance=instance)
        say("ready", listener.url)
        await asyncio.to_thread(sys.stdin.read)


async def _call(url: str, name: str, service: str, method: str) -> None:
    async with tw.Node(url, name=name) as node:
        await until_served(node, service)
        say("ready")
        say("answer", json.dumps(await getattr(node.client(service), method)()))


async def _hear(url: str, name: str, *_: str) -> None:
    heard = 0

    def hear(message: str | None) -> int:
        nonlocal heard
        if message == "end":
            say("total", heard)
        elif message is not None:
            heard += 1
            if heard % 1_000 == 0:
                say("heard", heard)
        return heard

    async with tw.Node(url, name=name) as node:
        actor = node.spawn(hear)
        for subject in ("burst", "total"):
            await node.subscribe(subject, actor)
        say("ready")
        await asyncio.to_thread(sys.stdin.read)


async def until_served(node: tw.Node, service: str, instances: int = 1) -> None:
    """Wait until a node knows a service with so many instances."""
    await node.until(lambda now: now["links"]["services"].get(service, 0) == instances, PATIENCE_S)


if __name__ == "__main__":
    role, *arguments = sys.argv[1:] or json.loads(sys.stdin.readline())
    roles = {"serve": _serve, "listen": _listen, "call": _call, "hear": _hear}
    asyncio.run(roles[role](*arguments))
