"""Links: values, errors and deadlines between processes."""

from __future__ import annotations

from typing import Any

import pytest
import tidewire as tw

MIB = 1 << 20


async def test_a_large_payload_comes_back_whole(workshop: Any) -> None:
    for size in (65_536, 65_537, 2 * MIB, 64 * MIB):
        payload = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        assert await workshop.echo(payload) == payload


async def test_a_payload_over_the_limit_is_refused_at_the_sender(workshop: Any) -> None:
    with pytest.raises(tw.PayloadTooLarge, match="268435456"):
        await workshop.echo(bytes(268_435_457))
    assert await workshop.echo(1) == 1


@pytest.mark.parametrize("call", ["call", "stream"])
async def test_headers_over_their_limits_are_refused_at_the_sender(workshop: Any, call: str) -> None:
    async def send(headers: dict[str, str]) -> Any:
        client = workshop.with_(headers=headers)
        return await client.echo(1) if call == "call" else [n async for n in client.count(1)]

    with pytest.raises(tw.InvalidArgument, match="at most 56"):
        await send({f"name-{n}": "x" for n in range(57)})
    with pytest.raises((tw.LimitExceeded, tw.InvalidArgument), match="link_head_bytes"):
        await send({"name": "x" * 20_000})
    assert await send({"name": "x" * 1_000}) in (1, [0])
