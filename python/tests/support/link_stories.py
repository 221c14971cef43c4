"""Support for stories of links: a hub with two nodes in one process, and the waits and texts of the
stories.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from time import perf_counter
from typing import Any

import pytest
import tidewire as tw
from link_processes import PATIENCE_S, Program

SOON_S = 10.0


def play(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a story. It fails if it takes too long."""
    asyncio.run(asyncio.wait_for(story(), 2 * PATIENCE_S))


@contextlib.asynccontextmanager
async def three(links: dict[str, Any] | None = None) -> AsyncIterator[tuple[tw.Node, tw.Node, tw.Node]]:
    """A hub, and two nodes that have joined it, each with a link of its own, and these options of
    links.
    """
    config = {"links": links or {}}
    async with tw.Node(name="hub", config=config) as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        async with tw.Node(url, name="a", config=config) as a, tw.Node(url, name="b", config=config) as b:
            yield hub, a, b


def pattern(length: int, seed: int = 0) -> bytes:
    """Bytes of which no two pages are alike."""
    import numpy

    return numpy.arange(seed, seed + length // 4 + 1, dtype=numpy.uint32).tobytes()[:length]


async def said(program: Program, word: str) -> str:
    """Wait for a program to say something."""
    return await asyncio.to_thread(program.expect, word)


async def fails(call: Any, error: type[Exception], within_s: float = SOON_S) -> Exception:
    """Wait for a call to fail, and see that it did so in time."""
    since = perf_counter()
    with pytest.raises(error) as raised:
        await call
    assert perf_counter() - since < within_s, "it waited for its deadline"
    return raised.value


async def joined(node: tw.Node) -> None:
    """Wait until a node has joined a hub again."""
    await node.until(lambda now: now["links"]["hub"] is not None, PATIENCE_S)


async def lost(node: tw.Node) -> None:
    """Wait until a node knows that its link is lost."""
    await node.until(lambda now: now["links"]["hub"] is None, PATIENCE_S)


@contextlib.contextmanager
def logged() -> Iterator[queue.Queue[str]]:
    """The lines that are logged meanwhile, in the order in which they come."""
    lines, log = queue.Queue[str](), logging.getLogger("tidewire")
    handler, level = logging.Handler(), log.level
    handler.emit = lambda record: lines.put(record.getMessage())  # type: ignore[method-assign]
    log.addHandler(handler)
    log.setLevel(logging.WARNING)
    try:
        yield lines
    finally:
        log.setLevel(level)
        log.removeHandler(handler)


async def known(node: tw.Node, agent: str) -> None:
    """Wait until a node knows an agent."""
    await node.until(lambda _: agent in node.agents, PATIENCE_S)
