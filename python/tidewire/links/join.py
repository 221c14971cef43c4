"""Join of a hub: attempts and backoff while the hub may not be up yet."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING

from tidewire._log import log
from tidewire._runtime import steps
from tidewire._urls import is_nats, without_secrets
from tidewire.errors import AskTimeout, LinkLost

if TYPE_CHECKING:
    from asyncio import Future

    from tidewire.node import Node

_LEAVE_TIMEOUT_S = 1.0
"""Longest wait of a cancelled caller for the end of its attempt."""
_LEAVE_CLUSTER_TIMEOUT_S = 5.0
"""The same on NATS. An attempt occupies its name while it waits for the other nodes, two seconds at
most after the reply of the server.
"""
_RETRYABLE = LinkLost, AskTimeout
"""Errors of an attempt that allow a retry."""


async def join(node: Node, within_s: float | None) -> None:
    """Join the hub of a node, and list its services, without blocking the event loop; see
    ``join_blocking``. A cancellation leaves the hub.
    """
    import asyncio

    connection = node._link()
    for wait_s in _attempts(node, within_s):
        await asyncio.sleep(wait_s)
        try:
            await _join_once(node)
            return await steps.awaited(connection.open())
        except _RETRYABLE as error:
            last_error = error
            connection.leave()
    raise last_error


async def _join_once(node: Node) -> None:
    import asyncio

    # Connecting blocks.
    joining = asyncio.ensure_future(asyncio.to_thread(_attempt, node))
    try:
        await asyncio.wait({joining})
    except asyncio.CancelledError:
        # The thread continues: close its link at the end.
        joining.add_done_callback(functools.partial(_leave, node))
        limit_s = _LEAVE_CLUSTER_TIMEOUT_S if is_nats(node.url) else _LEAVE_TIMEOUT_S
        await asyncio.wait({joining}, timeout=limit_s)
        raise
    joining.result()


def _leave(node: Node, joining: Future[None]) -> None:
    """Close the link of an attempt that has ended."""
    if not joining.cancelled() and joining.exception() is None:
        node._link().leave()


def join_blocking(node: Node, within_s: float | None) -> None:
    """Join the hub of a node, and block until it has accepted the node and listed its services.

    Args:
        node: The node.
        within_s: Seconds of retries while there is no hub, or its link is lost; None for no limit,
            0 for one attempt.

    Raises:
        LinkLost: if there is no hub in that time; other errors of ``Connection.join`` at once.
        AskTimeout: if the hub accepted the node, but did not reply in time.
    """
    connection = node._link()
    for wait_s in _attempts(node, within_s):
        time.sleep(wait_s)
        try:
            _attempt(node)
            return steps.blocking(connection.open())
        except _RETRYABLE as error:
            last_error = error
            connection.leave()
    raise last_error


def _attempt(node: Node) -> None:
    if is_nats(node.url):
        node._link().bridge(node.url)
    else:
        node._link().join(node.url, node._token, node._tls)


def _attempts(node: Node, within_s: float | None) -> Iterator[float]:
    """Yield the delay before each attempt, until the deadline."""
    yield 0.0
    until = None if within_s is None else monotonic() + within_s
    backoff_s, longest_s = node.links.link_backoff_ms / 1_000, node.links.link_backoff_max_ms / 1_000
    is_logged = False
    while until is None or monotonic() < until:
        if not is_logged:
            limit = "" if within_s is None else f", for up to {within_s:g} s"
            text = f"%(node)s: nobody is at %(url)s yet: waiting for it{limit}"
            log.info("link.waits_for_hub", text, node=node.name, url=without_secrets(node.url))
            is_logged = True
        wait_s = backoff_s * (0.5 + random.random() / 2)
        yield wait_s if until is None else min(wait_s, max(0.0, until - monotonic()))
        backoff_s = min(2 * backoff_s, longest_s)
