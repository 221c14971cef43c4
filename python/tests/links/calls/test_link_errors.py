"""Links: errors, limits of values, and calls within calls, between processes."""

from __future__ import annotations

import asyncio
import enum
import re
import traceback
from dataclasses import dataclass
from typing import Any

import pytest
import tidewire as tw
from remote_support import desk_nodes

WHERE = re.compile(r'link_programs\.py", line \d+, in fail')


@dataclass
class Order:
    """Known on both sides, as the types of a package that both import."""

    symbol: str
    price: float = 0.0


class Side(enum.Enum):
    BUY = "buy"


class Desk(tw.Service):
    """Service in the process of the story, so that types of this module are known on both sides."""

    @tw.method
    async def echo(self, value: Any) -> Any:
        return value

    @tw.method
    async def place(self, orders: list[Order], side: Side = Side.BUY, *rest: Any) -> int:
        return len(orders)

    @tw.method
    async def take(self, order: Any) -> Any:
        return order

    @tw.method
    async def hand_over(self) -> Any:
        async def take_later(first: int, later: Any) -> None:
            """Take two."""

        return take_later


async def test_a_value_that_cannot_be_sent_fails_its_call_with_its_path(workshop: Any) -> None:
    for value, path in (({"a": [1, object()]}, r"\['a'\]\[1\]"), ([1 << 64], r"\[0\]"), ({"f": Order}, r"\['f'\]")):
        with pytest.raises(tw.InvalidArgument, match=path):
            await workshop.echo(value)
        assert await workshop.echo(1) == 1
    with pytest.raises(tw.InvalidArgument, match=r"\['a'\]\[1\].*Unsent"):
        await workshop.unsent()
    assert await workshop.echo(1) == 1


def printed(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


async def test_an_error_comes_as_its_type_with_the_traceback_of_the_other_side(workshop: Any) -> None:
    for kind, error in (("key", KeyError("a")), ("value", ValueError("b", 2)), ("tide", tw.NoReply("c"))):
        with pytest.raises(type(error)) as raised:
            await workshop.fail(kind)
        assert raised.value.args == error.args
        assert isinstance(raised.value.__cause__, tw.RemoteError)
        assert "in fail" in raised.value.__cause__.remote_traceback
        assert "link_programs.py" in raised.value.__cause__.remote_traceback
        assert WHERE.search(printed(raised.value))


GOOD, WRONG = Order("X", 1.0), Order("X", "cheap")  # type: ignore[arg-type]


MISFITS: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("place", ([GOOD, WRONG],), {}, r"desk\.place: orders\[1\]: not a .*Order: price: 'cheap' \(a str\) is not float"),
    ("place", (), {"orders": [WRONG]}, r"desk\.place: orders\[0\]: not a .*Order: price: 'cheap'"),
    ("place", ([], Side.BUY, 1, {"a": WRONG}), {}, r"desk\.place: rest\.a: not a .*Order: price"),
    ("take", (WRONG,), {}, r"desk\.take: order: not a .*Order: price"),
    ("take_later", (7, WRONG), {}, r"take_later.*: later: not a .*Order: price"),
]
"""Arguments by position, by name, of the rest, without an annotation, to a function that was given."""


async def test_a_field_that_does_not_fit_is_an_argument_that_does_not() -> None:
    async with desk_nodes(Desk()) as world:
        desk = world.caller.client("desk")
        for method, args, kwargs, where in MISFITS:
            called = await desk.hand_over() if method == "take_later" else getattr(desk, method)
            with pytest.raises(tw.InvalidArgument, match=where) as raised:
                await called(*args, **kwargs)
            assert not isinstance(raised.value, tw.WireError)


class Waiting(tw.Service):
    """Waits, and notes that it was cancelled."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()

    @tw.method
    async def wait(self) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


async def test_cancelling_a_call_cancels_what_its_handler_had_called(caller: tw.Node) -> None:
    waiting = Waiting()
    await caller.serve(waiting, name="third")
    call = asyncio.ensure_future(caller.client("workshop").relay("third", "wait", 20.0))
    await asyncio.wait_for(waiting.begun.wait(), 30)
    call.cancel()
    await asyncio.wait_for(waiting.cancelled.wait(), 30)


async def test_the_error_of_a_nested_call_comes_through(caller: tw.Node) -> None:
    async def fail() -> None:
        raise KeyError("deep")

    await caller.serve({"fail": fail}, name="third")
    with pytest.raises(KeyError, match="deep") as raised:
        await caller.client("workshop").relay("third", "fail", 10.0)
    assert raised.value.__cause__ is not None


async def test_a_call_that_is_not_answered_in_time_is_called_what_its_caller_calls_it(workshop: Any) -> None:
    with pytest.raises(tw.AskTimeout, match=r'^workshop.hold of the instance "server": no answer came in time'):
        await workshop.with_(timeout=0.1).hold()


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
