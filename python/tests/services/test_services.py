"""Services: calls within one process, and events."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
import tidewire as tw
from service_support import PATIENCE, Pricing, Quote, soon
from tidewire.testing import fake


async def test_a_typed_client_calls_coroutines_and_plain_functions(node: tw.Node) -> None:
    served = await node.serve(Pricing())
    pricing = node.client(Pricing)
    assert await pricing.quote("X", qty=3) == Quote("X", 6.0)
    assert await pricing.quote(qty=2, symbol="Y") == Quote("Y", 4.0)
    where = await node.client("pricing").where()
    assert where != threading.current_thread().name, "a plain function must not hold the loop up"
    assert served.statistics()["calls"] == 3


async def test_a_call_is_awaited_once(node: tw.Node) -> None:
    node.serve(Pricing())
    call = node.client(Pricing).quote("Z")
    await call
    with pytest.raises(RuntimeError, match="awaited already"):
        await call


@pytest.mark.promise("P16.21")
def test_a_plain_function_learns_of_sync_at_its_own_line(node: tw.Node) -> None:
    node.serve(Pricing())
    actor = node.spawn(lambda message: message)
    forgotten = [
        (lambda: node.client(Pricing).quote("X"), "pricing.quote", 'node.client("pricing").sync.quote(...)'),
        (lambda: actor.ask(1), "ask", "node.sync.ask(...)"),
    ]
    for make, title, form in forgotten:
        with pytest.warns(RuntimeWarning) as caught:
            make()
        text = f"{title} was never awaited: use .sync from a plain function, as in {form}"
        assert [(str(one.message), one.filename) for one in caught] == [(text, __file__)]


FORGOTTEN = [
    dict,
    list,
    tuple,
    bool,
    len,
    lambda call: call["price"],
    lambda call: call.price,
    lambda call: "X" in call,
]


@pytest.mark.parametrize("use", FORGOTTEN)
def test_a_call_is_not_taken_for_its_result(node: tw.Node, use: Callable[[Any], Any]) -> None:
    node.serve(Pricing())
    actor = node.spawn(lambda message: {"price": message})
    call = node.client("pricing").quote("X")
    for called, name in ((call, r"pricing\.quote"), (actor.ask(1), "ask")):
        with pytest.raises((TypeError, AttributeError), match=rf"{name}: this is not its result.*await it.*\.sync"):
            use(called)
    with pytest.raises(asyncio.InvalidStateError, match=r"ask: this is not its result.*await it.*\.sync"):
        node.spawn(asyncio.sleep).ask(0).result()
    call.close()


def test_plain_threads_have_a_blocking_form(node: tw.Node) -> None:
    served = node.serve(Pricing())
    pricing = node.client(Pricing)
    assert pricing.sync.quote("X", 2) == Quote("X", 4.0)
    with pytest.raises(LookupError, match="plainly"):
        pricing.sync.fail_plainly()
    assert served.sync.stop().balanced
    with pytest.raises(tw.NoResponders):
        pricing.sync.quote("X")


async def test_errors_of_a_handler_reach_the_caller_and_nobody_else(node: tw.Node) -> None:
    served = node.serve(Pricing())
    pricing = node.client(Pricing)
    with pytest.raises(KeyError, match="key"):
        await pricing.fail("key")
    with pytest.raises(LookupError, match="plainly"):
        await node.client("pricing").fail_plainly()
    with pytest.raises(tw.RemoteError, match="SystemExit") as left:
        await pricing.fail("exit")
    assert "in fail" in left.value.remote_traceback
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        await pricing.fail("stop")
    with pytest.raises(tw.RemoteError, match="CancelledError"):
        await pricing.fail("gone")
    for kind in (StopIteration, StopAsyncIteration):
        with pytest.raises(RuntimeError, match=f"pricing.fail_plainly raised {kind.__name__}"):
            await node.client("pricing").fail_plainly(kind)
    assert await pricing.quote("X") == Quote("X", 2.0)
    assert served.statistics()["errors"] == 7
    assert not node.dead_letters.list()


# Context


async def test_a_handler_sees_who_called(node: tw.Node) -> None:
    class Seen(tw.Service):
        @tw.method
        async def see(self, first: int, call: tw.CallContext, second: int = 2) -> tuple[Any, ...]:
            inner = await node.client("seen").inner() == call.trace
            assert tw.context().trace == call.trace
            return first, second, call.node, call.user, dict(call.headers), call.method, inner, call.subject

        @tw.method
        def inner(self) -> str:
            return tw.context().trace

    node.serve(Seen())
    seen = node.client(Seen).with_(headers={"tenant": "a"})
    expected = (node.name, None, {"tenant": "a"}, "see", True, None)
    assert await seen.see(1) == (1, 2, *expected)
    assert await seen.see(1, 3) == (1, 3, *expected)
    assert await seen.see(second=4, first=0) == (0, 4, *expected)
    one, other = await node.client("seen").inner(), await node.client("seen").inner()
    assert one != other
    assert len(one) == 32
    with pytest.raises(tw.InvalidArgument, match="no call is under way here"):
        tw.context()


# Events


async def test_events_reach_their_handler_with_their_type(node: tw.Node) -> None:
    pricing = Pricing()
    served = node.serve(pricing)
    assert node.publish("orders.new", {"symbol": "X", "price": 1}) == 1
    assert await soon(pricing.orders.get()) == (Quote("X", 1.0), "orders.new")
    node.publish("orders.wrong", {"symbol": "X"})
    await served.stop()
    (letter,) = node.dead_letters.list()
    assert "pricing.on_order: order:" in str(letter.error)
    assert node.publish("orders.late", {}) == 0


def test_instances_share_the_events_of_a_queue(node: tw.Node) -> None:
    class Counter(tw.Service):
        @tw.on("numbers.*", queue="counters")
        def count(self, n: int) -> None: ...

    both = fake(Counter, count=None), fake(Counter, count=None)
    for one in both:
        node.serve(one)
    for n in range(100):
        assert node.publish("numbers.next", n) == 1
    node.sync.idle(timeout=PATIENCE)
    assert sorted(arguments["n"] for one in both for _, arguments in one.calls) == list(range(100))
    assert all(one.calls for one in both)
