"""Services: clients, as users hold them."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import pydoc
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from tidewire.services.client import client
from tidewire.services.declare import Service, method
from tidewire.services.declare import service as declared
from tidewire.services.policies import Policy
from tidewire.services.serve import serve

Run = Callable[[Callable[[tw.Node], Any]], Any]
ROOT = Path(__file__).resolve().parents[2]


class Pricing(Service):
    @method
    async def quote(self, symbol: str) -> str:
        return symbol.lower()

    @method
    async def ticks(self, symbol: str) -> AsyncIterator[str]:
        yield symbol

    def unmarked(self) -> None: ...


def test_a_client_shows_what_it_has(node: tw.Node) -> None:
    for pricing in (client(node, Pricing), client(node, "pricing")):
        assert "0 instances" in repr(pricing)
    served = serve(node, Pricing(), instance="one")
    for pricing in (client(node, Pricing), client(node, "pricing")):
        assert dir(pricing) == ["quote", "sync", "ticks", "with_"]
        assert dir(pricing.sync) == ["quote", "ticks"]
        assert "1 instance>" in repr(pricing)
        assert repr(pricing.quote).startswith("<method pricing.quote of <Client 'pricing'")
        assert repr(pricing.ticks("X")) == "<Stream pricing.ticks>"
    assert repr(served) == "<Served 'pricing' 'one', 2 methods, serving>"


def test_help_and_signatures_show_what_callers_give(node: tw.Node) -> None:
    class Shop(Service):
        @method
        def buy(self, call: tw.CallContext, item: str, *, count: int = 1) -> float:
            """Buy something.

            Args:
                item: Name of the item.
            """
            return float(count)

    served = serve(node, Shop())
    for buy in (client(node, Shop).buy, client(node, "shop").buy):
        assert str(inspect.signature(buy)) == "(item: str, *, count: int = 1) -> float"
        shown = pydoc.plain(pydoc.render_doc(buy))
        assert "buy(item: str, *, count: int = 1) -> float" in shown
        assert "Buy something." in shown
    assert served.name == "shop"
    assert str(inspect.signature(client(node, "nobody").work)) == "(*args, **kwargs)"
    for method_of_refs in ("ask", "send", "stop", "tell"):
        assert len(getattr(tw.ActorRef, method_of_refs).__doc__) > 80


def test_clients_and_references_take_types_in_brackets(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        assert str(tw.ActorRef[int, str]) == "tidewire.ActorRef[int, str]"
        assert str(tw.Pool[[int], str]).startswith("tidewire.pools.pool.Pool[")

        class Desk(Service):
            @method
            async def price(self, pricing: tw.Client[Pricing]) -> str:
                return await pricing.quote("X")

        serve(node, Pricing())
        serve(node, Desk())
        assert await client(node, Desk).price(client(node, Pricing)) == "x"

    run(story)


def test_an_unknown_method_names_the_nearest(node: tw.Node) -> None:
    serve(node, Pricing())
    for pricing in (client(node, Pricing), client(node, "pricing")):
        with pytest.raises(tw.NoSuchTarget, match="pricing has no method 'qoute': did you mean 'quote'"):
            pricing.qoute  # type: ignore[union-attr]  # noqa: B018
        with pytest.raises(AttributeError, match="there are 'quote', 'ticks'"):
            pricing.sync.nothing  # noqa: B018
        assert not hasattr(pricing, "nothing")
        assert not hasattr(pricing, "_private")
        assert not hasattr(pricing, "unmarked")
        assert hasattr(pricing, "quote")


def test_a_client_is_made_before_its_service(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        early = client(node, "pricing")
        with pytest.raises(tw.NoResponders):
            await early.quote("X")
        serve(node, Pricing())
        assert await early.quote("X") == "x"
        assert [tick async for tick in early.ticks("X")] == ["X"]

    run(story)


def test_a_name_that_differs_from_the_class_is_said(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        serve(node, Pricing(), name="prices")
        assert await client(node, Pricing, "prices").quote("X") == "x"
        with pytest.raises(tw.NoResponders, match="pricing: nobody serves it: did you mean 'prices'"):
            await client(node, Pricing).quote("X")

    run(story)


def test_clients_can_not_be_pickled_or_copied(node: tw.Node) -> None:
    pricing = client(node, Pricing)
    for wrong in (pricing, pricing.quote, pricing.sync):
        with pytest.raises(tw.InvalidArgument, match="hand over the name 'pricing'"):
            pickle.dumps(wrong)
        with pytest.raises(tw.InvalidArgument, match="can't be pickled or copied"):
            copy.copy(wrong)


def test_options_belong_to_the_client_that_has_them(run: Run) -> None:
    async def story(node: tw.Node) -> None:
        serve(node, Pricing(), instance="one")
        pricing = client(node, Pricing)
        other = pricing.with_(timeout=1.0, priority="high", instance="one", headers={"a": "b"})
        assert await other.quote("X") == await pricing.quote("X") == "x"
        assert await pricing.quote.with_(timeout=2.0)("Y") == "y"  # type: ignore[attr-defined]
        assert other.with_()._options == other._options  # type: ignore[attr-defined]

    run(story)


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
    for wrong in (client(node, Pricing).with_, client(node, "pricing").quote.with_):
        with pytest.raises(tw.InvalidArgument) as refused:
            wrong(**options)
        assert said in str(refused.value)


@pytest.mark.parametrize("wrong", [3, None, int, dict, "a.b", "", Pricing()])
def test_what_is_no_service_has_no_client(node: tw.Node, wrong: Any) -> None:
    with pytest.raises(tw.InvalidArgument, match="service:"):
        client(node, wrong)


def test_a_name_is_given_once(node: tw.Node) -> None:
    with pytest.raises(tw.InvalidArgument, match="name: 'b' is not allowed beside the name 'a'"):
        client(node, "a", "b")


def test_with_all_goes_with_a_policy_and_its_seed(node: tw.Node) -> None:
    pricing: Any = client(node, Pricing)
    assert pricing.with_(policy=Policy("random", seed=3))._options.policy.seed == 3
    assert pricing.with_(policy="all").with_(policy="first")._options.policy.kind == "first"


def test_a_decorated_class_has_typed_clients_too(run: Run) -> None:
    @declared
    class Echo:
        @method
        async def echo(self, n: int) -> int:
            return n

    async def story(node: tw.Node) -> None:
        serve(node, Echo())
        assert await client(node, Echo).echo(3) == 3
        assert await asyncio.wait_for(client(node, Echo).echo(4), 30.0) == 4

    run(story)


@pytest.mark.parametrize("program", ["services.py", "actors.py"])
def test_the_typed_examples_run(program: str) -> None:
    command = [sys.executable, str(ROOT / "examples" / "typed" / program)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    assert "types as they should be" in ran.stdout, ran.stderr
