"""Links: calls of every shape take the short road, which runs hardly any Python but that of the two
programs.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from link_programs import until_served

PACKAGE = str(Path(tw.__file__).parent)
PATIENCE = 30.0


@dataclass
class Order:
    symbol: str
    qty: int


class Desk(tw.Service):
    """Says what it was called with."""

    @tw.method
    async def quote(self, symbol: str, qty: int = 1, *, side: str = "buy") -> list[Any]:
        """Quote."""
        return [symbol, qty, side]

    @tw.method
    async def take(self, order: Order) -> str:
        """Take an order."""
        assert isinstance(order, Order)
        return f"{order.qty} {order.symbol}"

    @tw.method
    async def told(self) -> tuple[str, dict[str, str], float]:
        """Say what is known of the call."""
        call = tw.context()
        assert call.remaining is not None
        return call.trace, dict(call.headers), call.remaining


class Front(tw.Service):
    """Calls the desk."""

    def __init__(self, desk: Any) -> None:
        self.desk = desk

    @tw.method
    async def ask(self) -> tuple[str, tuple[str, dict[str, str], float]]:
        """Say what is known of this call, and of the one inside."""
        return tw.context().trace, await self.desk.with_(timeout=20.0).told()


async def counted(call: Callable[[], Awaitable[Any]]) -> tuple[Counter[str], Any]:
    """Return which functions of the package run during a call, in this thread, which is that of
    both sides; and what it gives.
    """
    ran: Counter[str] = Counter()

    def note(frame: Any, event: str, _: object) -> None:
        # The clock of tests stays in a process once a test has used it.
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(PACKAGE) and "/testing/" not in file:
            ran[f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_qualname}"] += 1

    # Finalizers of other garbage are no part of the call.
    gc.disable()
    sys.setprofile(note)
    try:
        value = await call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return ran, value


def play(story: Callable[[Any], Awaitable[None]], instances: int = 1, service: Any = "desk") -> None:
    async def main() -> None:
        async with AsyncExitStack() as nodes:
            hub = await nodes.enter_async_context(tw.Node(name="hub"))
            url = hub.listen("tide://127.0.0.1:0").url
            for number in range(instances):
                node = await nodes.enter_async_context(tw.Node(url, name=f"server {number}"))
                await node.serve(Desk(), name="desk", instance=f"{number}")
            front = await nodes.enter_async_context(tw.Node(url, name="front"))
            await until_served(front, "desk", instances)
            served = Front(front.client("desk"))
            await front.serve(served, name="front")
            caller = await nodes.enter_async_context(tw.Node(url, name="caller"))
            await until_served(caller, "desk", instances)
            await until_served(caller, "front")
            await asyncio.wait_for(story(caller), PATIENCE)

    asyncio.run(main())


SHAPES: dict[str, tuple[Callable[[Any], Awaitable[Any]], Any, int]] = {
    "usual": (lambda desk: desk.quote("X", 2), ["X", 2, "buy"], 4),
    "by name": (lambda desk: desk.quote("X", qty=2), ["X", 2, "buy"], 4),
    "all by name, in another order": (lambda desk: desk.quote(qty=2, symbol="X"), ["X", 2, "buy"], 4),
    "with a timeout": (lambda desk: desk.with_(timeout=20.0).quote("X", 2), ["X", 2, "buy"], 10),
    "with a priority": (lambda desk: desk.with_(priority="high").quote("X", 2), ["X", 2, "buy"], 10),
    "a dataclass": (lambda desk: desk.take(Order("X", 2)), "2 X", 20),
}


@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize("service", ["desk", Desk])
def test_a_call_of_any_shape_takes_the_short_road(service: Any, instances: int) -> None:
    async def story(caller: tw.Node) -> None:
        for shape, (call, wanted, most) in SHAPES.items():
            desk = caller.client(service, "desk") if service is Desk else caller.client(service)
            for _ in range(3):
                assert await call(desk) == wanted
            ran, value = await counted(lambda: call(desk))  # noqa: B023
            assert value == wanted
            assert ran.total() <= most, (shape, ran)

    play(story, instances)


def test_a_call_inside_of_a_handler_is_a_part_of_that() -> None:
    async def story(caller: tw.Node) -> None:
        front = caller.client("front").with_(timeout=10.0)
        trace, (inner, headers, left_s) = await front.ask()
        assert trace == inner
        assert headers == {}
        assert left_s <= 10.0

    play(story)


def test_headers_and_a_named_instance_are_for_their_calls_alone() -> None:
    async def story(caller: tw.Node) -> None:
        desk = caller.client("desk")
        headers = {"a": "1"}
        with_headers = desk.with_(headers=headers)
        for wanted in ({"a": "1"}, {"a": "1"}, {"a": "1"}):
            assert (await with_headers.told())[1] == wanted
            assert (await desk.told())[1] == {}
        assert await desk.with_(instance="1").quote("X") == ["X", 1, "buy"]

    play(story, 2)


def test_arguments_that_do_not_bind_are_named_as_ever() -> None:
    wrong: list[tuple[Callable[[Any], Awaitable[Any]], str]] = [
        (lambda desk: desk.quote(), "symbol"),
        (lambda desk: desk.quote("X", symbol="Y"), "symbol: given twice"),
        (lambda desk: desk.quote("X", quantity=2), "quantity: there is no such parameter"),
        (lambda desk: desk.quote("X", 1, "buy"), "3 positional arguments"),
        (lambda desk: desk.quote(qty=2), "symbol"),
        (lambda desk: desk.take({"symbol": "X", "qty": "many"}), "qty"),
        (lambda desk: desk.take(order=Order("X", "many")), "qty"),  # type: ignore[arg-type]
    ]

    async def story(caller: tw.Node) -> None:
        for desk in (caller.client("desk"), caller.client(Desk, "desk")):
            assert await desk.quote("X", side="sell") == ["X", 1, "sell"]
            for _ in range(2):
                for call, said in wrong:
                    with pytest.raises(tw.InvalidArgument, match=said):
                        await call(desk)

    play(story)


def test_an_option_that_is_wrong_is_refused_after_one_like_it_was_right() -> None:
    async def story(caller: tw.Node) -> None:
        desk = caller.client("desk")
        assert await desk.with_(timeout=1).quote("X") == ["X", 1, "buy"]
        for wrong in (True, [], "1", -1):
            with pytest.raises(tw.InvalidArgument, match="timeout"):
                desk.with_(timeout=wrong)

    play(story)
