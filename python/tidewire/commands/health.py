"""``tidewire health URL``: readiness probe of a hub or its HTTP gateway."""

from __future__ import annotations

import asyncio
import json
from http.client import HTTPException
from time import perf_counter
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import tidewire as tw
from tidewire._numbers import check_seconds
from tidewire._urls import without_secrets
from tidewire.commands.talk import Hub

_ANSWER_BYTES_MAX = 65_536


def health(hub: Hub, timeout: float) -> int:
    """Print the readiness. Return 0 if ready, 1 if not ready, and 3 without a reply."""

    async def ask() -> int:
        check_seconds("timeout", timeout)
        began = perf_counter()
        is_http = hub.url.startswith(("http://", "https://"))
        try:
            async with asyncio.timeout(timeout):
                status = await (asyncio.to_thread(_gateway, hub.url, timeout) if is_http else _services(hub))
        except TimeoutError:
            fix = "check whether it runs, or give it more time with --timeout"
            raise tw.LinkLost(f"url: {without_secrets(hub.url)} did not answer in {timeout:g} s: {fix}") from None
        took_ms = round((perf_counter() - began) * 1_000, 1)
        text = f"ready, in {took_ms:g} ms" if status["ready"] else f"not ready: {'; '.join(status['reasons'])}"
        hub.say({**status, "answer_ms": took_ms}, text)
        return 0 if status["ready"] else 1

    return hub.finish(ask)


async def _services(hub: Hub) -> dict[str, Any]:
    async with hub.joined() as node:
        await node.services()
    return {"ready": True, "reasons": []}


def _gateway(url: str, timeout: float) -> dict[str, Any]:
    try:
        try:
            answer = urlopen(f"{url.rstrip('/')}/readyz", timeout=timeout)
        except HTTPError as error:
            # The body of a 503 has the reasons.
            answer = error
        with answer:
            status = json.loads(answer.read(_ANSWER_BYTES_MAX))
        return {"ready": bool(status["ready"]), "reasons": [str(reason) for reason in status["reasons"]]}
    except (ValueError, KeyError, TypeError, HTTPException):
        fix = "give that of `tidewire up --http`, or the URL of the hub itself"
        raise tw.NotFound(f"url: {without_secrets(url)} is no HTTP gateway of a hub: {fix}") from None
    except OSError as error:
        raise tw.LinkLost(f"url: {without_secrets(url)} does not answer ({error}): check whether it runs") from None
