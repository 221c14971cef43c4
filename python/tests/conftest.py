"""What the tests share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import tidewire as tw


@pytest.fixture
def node() -> Iterator[tw.Node]:
    """A node used from a plain thread."""
    with tw.Node() as node:
        yield node


@pytest.fixture
def run() -> Callable[[Callable[[tw.Node], Coroutine[Any, Any, Any]]], Any]:
    """Runs a story in asyncio, in a node of its own."""

    def run(story: Callable[[tw.Node], Coroutine[Any, Any, Any]]) -> Any:
        async def main() -> Any:
            async with tw.Node() as node:
                result = await story(node)
            assert node.ledger is not None
            assert node.ledger.balanced
            return result

        return asyncio.run(main())

    return run


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Failures that a test provokes are looked at by the test, not on the screen."""
    logging.getLogger("tidewire").setLevel(logging.CRITICAL)
