"""Links: values, errors and deadlines between processes."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import uuid
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pydantic
import pytest
import tidewire as tw
from link_programs import Workshop, until_served

MIB = 1 << 20


@dataclass
class Point:
    x: int
    y: float


class Order(msgspec.Struct):
    item: str
    count: int


class Price(pydantic.BaseModel):
    item: str
    cents: int


PLAIN = [
    None,
    True,
    -(1 << 63),
    (1 << 64) - 1,
    1.5,
    "ä\x00€",
    b"",
    bytearray(b"ab"),
    [1, [2, []]],
    (1, (2,)),
    {1: "a", (2, 3): "b", None: 0, "c": {}},
    {1, "a"},
    dt.datetime(2026, 11, 21, 12, 30, 1, 5, tzinfo=dt.UTC),
    decimal.Decimal("1.10"),
    uuid.UUID(int=7),
]


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def test_a_plain_value_comes_back_as_it_was_sent(at_workshop: Any) -> None:
    async def story(node: tw.Node, workshop: Any) -> None:
        for value in PLAIN:
            assert same(await workshop.echo(value), value), value
            assert same(await workshop.echo(value=value), value), value

    at_workshop(story)


def test_a_record_comes_back_as_its_type_where_both_sides_know_it(at_workshop: Any) -> None:
    async def story(node: tw.Node, _: Any) -> None:
        async with tw.Node(node.url, name="desk") as desk:
            await desk.serve(Workshop(), name="desk")
            await until_served(node, "desk")
            for value in (Point(1, 2.5), Order("nut", 3), Price(item="bolt", cents=5)):
                assert same(await node.client("desk").echo(value), value)

    at_workshop(story)


def test_arrays_come_back_writable_with_their_shape_and_type(at_workshop: Any) -> None:
    async def story(node: tw.Node, workshop: Any) -> None:
        for array in (
            np.arange(12, dtype=np.int32).reshape(3, 4),
            np.zeros((0, 2)),
            np.arange(500_000, dtype=np.float64),
        ):
            back = await workshop.echo(array)
            assert (back.dtype, back.shape) == (array.dtype, array.shape)
            assert np.array_equal(back, array)
            assert back.flags.writeable
        assert same(await workshop.echo(np.float32(1.5)), np.float32(1.5))

    at_workshop(story)


def test_a_large_payload_comes_back_whole(at_workshop: Any) -> None:
    async def story(node: tw.Node, workshop: Any) -> None:
        for size in (65_536, 65_537, 2 * MIB, 64 * MIB):
            payload = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
            assert await workshop.echo(payload) == payload

    at_workshop(story)


def test_small_calls_pass_by_large_ones(at_workshop: Any) -> None:
    async def story(node: tw.Node, workshop: Any) -> None:
        large = [asyncio.ensure_future(workshop.echo(bytes(16 * MIB))) for _ in range(3)]
        ended = []
        for number in range(50):
            assert await workshop.echo(number) == number
            ended.append(sum(call.done() for call in large))
        assert ended[0] == 0, "the first small call waited for large ones"
        assert [len(back) for back in await asyncio.gather(*large)] == [16 * MIB] * 3

    at_workshop(story)


def test_a_payload_over_the_limit_is_refused_at_the_sender(at_workshop: Any) -> None:
    async def story(node: tw.Node, workshop: Any) -> None:
        with pytest.raises(tw.PayloadTooLarge, match="268435456"):
            await workshop.echo(bytes(268_435_457))
        assert await workshop.echo(1) == 1

    at_workshop(story)


@pytest.mark.parametrize("call", ["call", "stream"])
def test_headers_over_their_limits_are_refused_at_the_sender(at_workshop: Any, call: str) -> None:
    async def story(node: tw.Node, workshop: Any) -> None:
        async def send(headers: dict[str, str]) -> Any:
            client = workshop.with_(headers=headers)
            return await client.echo(1) if call == "call" else [n async for n in client.count(1)]

        with pytest.raises(tw.InvalidArgument, match="at most 56"):
            await send({f"name-{n}": "x" for n in range(57)})
        with pytest.raises((tw.LimitExceeded, tw.InvalidArgument), match="link_head_bytes"):
            await send({"name": "x" * 20_000})
        assert await send({"name": "x" * 1_000}) in (1, [0])

    at_workshop(story)


def test_a_thousand_calls_at_once_get_their_own_answers(at_workshop: Any) -> None:
    async def story(node: tw.Node, workshop: Any) -> None:
        assert await asyncio.gather(*(workshop.echo(n) for n in range(1_000))) == list(range(1_000))
        assert await asyncio.gather(*(workshop.plain(n) for n in range(1_000))) == list(range(1, 1_001))

    at_workshop(story)
