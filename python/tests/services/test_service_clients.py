"""Services: clients, as users hold them."""

from __future__ import annotations

import copy
import inspect
import pickle
import pydoc
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw

ROOT = Path(__file__).resolve().parents[3]


class Pricing(tw.Service):
    @tw.method
    async def quote(self, symbol: str) -> str:
        return symbol.lower()

    @tw.method
    async def ticks(self, symbol: str) -> AsyncIterator[str]:
        yield symbol

    @tw.method
    async def told(self) -> tuple[float, dict[str, str]]:
        """Say what is known of the call."""
        call = tw.context()
        assert call.remaining is not None
        return call.remaining, dict(call.headers)

    def unmarked(self) -> None: ...


def test_a_client_shows_what_it_has(node: tw.Node) -> None:
    for pricing in (node.client(Pricing), node.client("pricing")):
        assert "0 instances" in repr(pricing)
    served = node.serve(Pricing(), instance="one")
    for pricing in (node.client(Pricing), node.client("pricing")):
        assert dir(pricing) == ["quote", "sync", "ticks", "told", "with_"]
        assert dir(pricing.sync) == ["quote", "ticks", "told"]
        assert "1 instance>" in repr(pricing)
        assert repr(pricing.quote).startswith("<method pricing.quote of <Client 'pricing'")
        assert repr(pricing.ticks("X")) == "<Stream pricing.ticks>"
    assert repr(served) == "<Served 'pricing' 'one', 3 methods, serving>"


def test_help_and_signatures_show_what_callers_give(node: tw.Node) -> None:
    class Shop(tw.Service):
        @tw.method
        def buy(self, call: tw.CallContext, item: str, *, count: int = 1) -> float:
            """Buy something.

            Args:
                item: Name of the item.
            """
            return float(count)

    served = node.serve(Shop())
    for buy in (node.client(Shop).buy, node.client("shop").buy):
        assert str(inspect.signature(buy)) == "(item: str, *, count: int = 1) -> float"
        shown = pydoc.plain(pydoc.render_doc(buy))
        assert "buy(item: str, *, count: int = 1) -> float" in shown
        assert "Buy something." in shown
    assert served.name == "shop"
    assert str(inspect.signature(node.client("nobody").work)) == "(*args, **kwargs)"
    for method_of_refs in ("ask", "send", "stop", "tell"):
        assert len(getattr(tw.ActorRef, method_of_refs).__doc__) > 80


async def test_clients_and_references_take_types_in_brackets(node: tw.Node) -> None:
    assert str(tw.ActorRef[int, str]) == "tidewire.ActorRef[int, str]"
    assert str(tw.Pool[[int], str]).startswith("tidewire.pools.pool.Pool[")

    class Desk(tw.Service):
        @tw.method
        async def price(self, pricing: tw.Client[Pricing]) -> str:
            return await pricing.quote("X")

    node.serve(Pricing())
    node.serve(Desk())
    assert await node.client(Desk).price(node.client(Pricing)) == "x"


def test_an_unknown_method_names_the_nearest(node: tw.Node) -> None:
    node.serve(Pricing())
    for pricing in (node.client(Pricing), node.client("pricing")):
        with pytest.raises(tw.NoSuchTarget, match="pricing has no method 'qoute': did you mean 'quote'"):
            pricing.qoute  # type: ignore[union-attr]  # noqa: B018
        with pytest.raises(AttributeError, match="there are 'quote', 'ticks', 'told'"):
            pricing.sync.nothing  # noqa: B018
        assert not hasattr(pricing, "nothing")
        assert not hasattr(pricing, "_private")
        assert not hasattr(pricing, "unmarked")
        assert hasattr(pricing, "quote")


async def test_a_client_is_made_before_its_service(node: tw.Node) -> None:
    early = node.client("pricing")
    with pytest.raises(tw.NoResponders):
        await early.quote("X")
    node.serve(Pricing())
    assert await early.quote("X") == "x"
    assert [tick async for tick in early.ticks("X")] == ["X"]


async def test_a_name_that_differs_from_the_class_is_said(node: tw.Node) -> None:
    node.serve(Pricing(), name="prices")
    assert await node.client(Pricing, "prices").quote("X") == "x"
    with pytest.raises(tw.NoResponders, match="pricing: nobody serves it: did you mean 'prices'"):
        await node.client(Pricing).quote("X")


def test_clients_can_not_be_pickled_or_copied(node: tw.Node) -> None:
    pricing = node.client(Pricing)
    for wrong in (pricing, pricing.quote, pricing.sync):
        with pytest.raises(tw.InvalidArgument, match="hand over the name 'pricing'"):
            pickle.dumps(wrong)
        with pytest.raises(tw.InvalidArgument, match="can't be pickled or copied"):
            copy.copy(wrong)


async def test_options_belong_to_the_client_that_has_them(node: tw.Node) -> None:
    node.serve(Pricing(), instance="one")
    pricing = node.client(Pricing)
    other = pricing.with_(timeout=1.0, priority="high", instance="one", headers={"a": "b"})
    assert await other.quote("X") == await pricing.quote("X") == "x"
    assert await pricing.quote.with_(timeout=2.0)("Y") == "y"  # type: ignore[attr-defined]
    for same in (other, other.with_(), other.with_(priority="low")):
        left, headers = await same.told()
        assert left <= 1.0 and headers == {"a": "b"}
    left, headers = await pricing.told()
    assert left > 1.0 and headers == {}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeot": 1}, "with_: timeot: there is no such option: did you mean 'timeout'?"),
        ({"timeout": 0}, "with_: timeout: 0 is not allowed: give seconds, more than 0 and at most 86,400"),
        ({"timeout": float("nan")}, "timeout: nan is not allowed"),
        ({"timeout": True}, "timeout: True is not allowed"),
        ({"priority": "top"}, "priority: 'top' is not allowed: use 'urgent', 'high', 'normal' or 'low'"),
        ({"instance": ""}, "instance: '' is not allowed: give the id of an instance"),
        ({"policy": "best"}, "policy: 'best' is not allowed: use one of 'first'"),
        ({"policy": 3}, "policy: 3 is not allowed"),
        ({"headers": {"a": 1}}, "headers: {'a': 1} is not allowed: give at most 56 strings by strings"),
        ({"headers": {str(n): "" for n in range(57)}}, "give at most 56 strings"),
        ({"policy": "all", "instance": "one"}, "instance: 'one' is not allowed beside policy='all'"),
    ],
)
def test_options_that_are_not_allowed_are_named(node: tw.Node, options: dict[str, Any], said: str) -> None:
    for wrong in (node.client(Pricing).with_, node.client("pricing").quote.with_):
        with pytest.raises(tw.InvalidArgument) as refused:
            wrong(**options)
        assert said in str(refused.value)


@pytest.mark.parametrize("wrong", [3, None, int, dict, "a.b", "", Pricing()])
def test_a_value_that_is_no_service_has_no_client(node: tw.Node, wrong: Any) -> None:
    with pytest.raises(tw.InvalidArgument, match="service:"):
        node.client(wrong)


def test_a_name_is_given_once(node: tw.Node) -> None:
    with pytest.raises(tw.InvalidArgument, match="name: 'b' is not allowed beside the name 'a'"):
        node.client("a", "b")


@pytest.mark.parametrize("program", ["services.py", "actors.py"])
def test_the_typed_examples_run(program: str) -> None:
    command = [sys.executable, str(ROOT / "examples" / "typed" / program)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    assert "types as they should be" in ran.stdout, ran.stderr
