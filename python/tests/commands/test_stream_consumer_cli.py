"""``tidewire stream dead|requeue|drop-dead|pause|resume|seek|rm-consumer`` at each storage
backend.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import tidewire as tw
from command_support import run_all
from home_support import PATIENCE, every_home, nats_server

SETTINGS: dict[str, Any] = {"start": "all", "max_deliver": 1, "backoff": (0.01,)}
OF_BILLING = ("orders", "billing")


@contextmanager
def place(kind: str, folder: Path) -> Iterator[str]:
    """A storage backend, as ``--at`` names it."""
    if kind == "folder":
        yield str(folder)
    elif kind == "hub":
        with tw.Node(data=folder) as hub:
            yield hub.listen("tide://127.0.0.1:0").url
    else:
        with nats_server() as url:
            yield url


def opened(at: str) -> tw.Node:
    return tw.Node(at) if "://" in at else tw.Node(data=at)


async def fail(at: str, count: int) -> None:
    """Publish events, and have each become a dead letter of the consumer ``billing``."""
    async with opened(at) as node:
        orders = await node.stream("orders", subjects=["orders.>"])
        async with await orders.consumer("billing", **SETTINGS) as billing:
            for number in range(1, count + 1):
                await orders.publish("orders.created", {"n": number}, key="k")
                event = await billing.next(timeout=PATIENCE)
                assert event is not None
                await event.nak(error=ValueError(f"no customer {number}"), wait=True)


async def take(at: str, count: int) -> list[int]:
    async with opened(at) as node:
        orders = await node.find_stream("orders")
        async with await orders.consumer("billing", **SETTINGS) as billing:
            taken = []
            for _ in range(count):
                event = await billing.next(timeout=PATIENCE)
                assert event is not None
                await event.ack(wait=True)
                taken.append(event.sequence)
            return taken


def run(at: str, *commands: tuple[str, ...]) -> list[tuple[int, Any]]:
    """Run commands with ``--json``: their exit codes, and what they printed."""
    ended = run_all(*[["stream", *command, "--at", at, "--json"] for command in commands])
    return [(one.returncode, json.loads(one.stdout or one.stderr)) for one in ended]


@every_home
def test_dead_letters_are_listed_requeued_and_dropped(kind: str, tmp_path: Path) -> None:
    with place(kind, tmp_path) as at:
        asyncio.run(fail(at, 5))
        (code, dead), (_, page), *changes = run(
            at,
            ("dead", *OF_BILLING),
            ("dead", *OF_BILLING, "--start", "2", "--limit", "2"),
            ("drop-dead", *OF_BILLING, "5"),
            ("drop-dead", *OF_BILLING, "5"),
            ("requeue", *OF_BILLING, "1", "2"),
            ("requeue", *OF_BILLING),
            ("requeue", *OF_BILLING),
            ("dead", *OF_BILLING),
        )
        assert code == 0 and [one["sequence"] for one in dead] == [1, 2, 3, 4, 5]
        assert [one["sequence"] for one in page] == [2, 3]
        first = dead[0]
        assert (first["subject"], first["value"], first["key"]) == ("orders.created", {"n": 1}, "k")
        assert (first["deliveries"], first["reason"], first["error"]) == (1, "max_deliver", "ValueError: no customer 1")
        assert "ValueError" in first["traceback"] and datetime.fromisoformat(first["time"]).tzinfo is not None
        assert changes == [
            (0, {"dropped": 1}),
            (1, {"dropped": 0}),
            (0, {"requeued": 2}),
            (0, {"requeued": 2}),
            (1, {"requeued": 0}),
            (0, []),
        ]
        assert sorted(asyncio.run(take(at, 4))) == [1, 2, 3, 4]


@every_home
def test_a_consumer_is_paused_resumed_moved_and_deleted(kind: str, tmp_path: Path) -> None:
    with place(kind, tmp_path) as at:
        asyncio.run(fail(at, 3))
        paused, info, resumed, moved = run(
            at, ("pause", *OF_BILLING), ("info", "orders"), ("resume", *OF_BILLING), ("seek", *OF_BILLING, "all")
        )
        assert (paused, resumed, moved) == ((0, {"paused": True}), (0, {"paused": False}), (0, {"start": "all"}))
        assert info[1]["consumers"][0]["is_paused"] is True
        assert asyncio.run(take(at, 3)) == [1, 2, 3]
        assert run(at, ("seek", *OF_BILLING, "2")) == [(0, {"start": 2})]
        assert asyncio.run(take(at, 2)) == [2, 3]
        before = (datetime.now(UTC) - timedelta(hours=1)).isoformat(timespec="seconds")
        assert run(at, ("seek", *OF_BILLING, before.replace("+00:00", "Z"))) == [(0, {"start": before})]
        assert asyncio.run(take(at, 1)) == [1]
        deleted, info, *gone = run(
            at,
            ("rm-consumer", *OF_BILLING),
            ("info", "orders"),
            ("rm-consumer", *OF_BILLING),
            ("dead", *OF_BILLING),
            ("requeue", *OF_BILLING),
            ("drop-dead", *OF_BILLING, "1"),
            ("pause", *OF_BILLING),
            ("resume", *OF_BILLING),
            ("seek", *OF_BILLING, "new"),
        )
        assert (deleted, info[1]["consumers"]) == ((0, {"deleted": "billing"}), [])
        assert [(code, told["error"]["code"]) for code, told in gone] == [(1, "not_found")] * 7


def test_what_people_read_of_dead_letters_and_wrong_positions(tmp_path: Path) -> None:
    at = str(tmp_path)
    asyncio.run(fail(at, 1))
    commands = [["dead"], ["requeue"], ["dead"], ["pause"], ["seek", "noon"], ["seek", "2026-11-23T21:00:00"]]
    ended = run_all(*[["stream", name, *OF_BILLING, *more, "--at", at] for name, *more in commands])
    dead, requeued, none, paused, *wrong = ended
    assert "1 " in dead.stdout and "max_deliver after 1 deliveries: ValueError: no customer 1" in dead.stdout
    assert (requeued.stdout, none.stdout) == ("billing: 1 requeued\n", "no dead letters\n")
    assert paused.stdout == "billing is paused\n"
    for one, text in zip(wrong, ("'noon'", "'2026-11-23T21:00:00'"), strict=True):
        assert one.returncode == 2 and f"TO: {text} is not allowed: give new, all, a sequence or a time" in one.stderr
        assert "2026-11-23T21:00:00Z" in one.stderr
    [info] = run_all(["stream", "info", "orders", "--at", at])
    assert "billing: " in info.stdout and ", paused" in info.stdout
