"""Services: what can be served, and who may call it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import tidewire as tw
from service_support import Hanging, Pricing

# Objects that can be served


async def test_functions_and_dicts_of_functions_can_be_served(node: tw.Node) -> None:
    async def double(n: int) -> int:
        """Double a number."""
        return 2 * n

    def count(n: int) -> Any:
        yield from range(n)

    node.serve({"add": lambda a, b: a + b, "double": double, "count": count, "len": len}, name="math")
    math = node.client("math")
    assert await math.add(1, b=2) == 3
    assert await math.double(4) == 8
    assert [n async for n in math.count(3)] == [0, 1, 2]
    assert await math.len("four") == 4
    node.serve(double)
    assert await node.client("double").double(5) == 10


async def test_any_object_serves_its_public_methods(node: tw.Node) -> None:
    class Thing:
        def __init__(self) -> None:
            self.value = 1

        def get(self) -> int:
            return self.value

        async def add(self, n: int) -> None:
            self.value += n

        @staticmethod
        def twice(n: int) -> int:
            return 2 * n

        @classmethod
        def title(cls) -> str:
            return cls.__name__

        def _hidden(self) -> None: ...

    @tw.service(name="thing2")
    class Decorated(Thing):
        pass

    served = node.serve(Thing())
    thing = node.client("thing")
    await thing.add(2)
    assert (await thing.get(), await thing.twice(4), await thing.title()) == (3, 8, "Thing")
    assert [one.name for one in served.info.methods] == ["get", "add", "twice", "title"]
    node.serve(Decorated())
    assert await node.client(Decorated).title() == "Decorated"


async def test_an_object_that_derives_from_a_service_is_served_under_its_said_name(node: tw.Node) -> None:
    class Base(tw.Service, name="shop", visibility="public"):
        @tw.method
        async def buy(self, n: int) -> int:
            raise NotImplementedError

    class Real(Base):
        async def buy(self, n: int) -> int:
            return n + 1

    served = node.serve(Real())
    assert (served.name, served.info.visibility) == ("shop", "public")
    assert await node.client(Base).buy(1) == 2


# Misuse


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "a.b"}, "name: 'a.b' is not allowed: give one token"),
        ({"name": ""}, "name: '' is not allowed"),
        ({"name": "$sys"}, "name: '$sys' is not allowed: names that begin with $"),
        ({"name": "x" * 300}, "give at most 255 bytes"),
        ({"instance": "a b"}, "instance: 'a b' is not allowed: give one token"),
        ({"visibility": "all"}, "visibility: 'all' is not allowed: use one of 'node', 'private', 'public'"),
    ],
)
def test_options_that_are_not_allowed_are_named(node: tw.Node, options: dict[str, Any], said: str) -> None:
    with pytest.raises(tw.InvalidArgument) as wrong:
        node.serve(Pricing(), **options)
    assert said in str(wrong.value)
    assert not asyncio.run(node.services())


@pytest.mark.parametrize("target", [None, 3, "text", [len], object(), Pricing, {}, {"a": 3}, {"a": int}])
def test_a_target_that_cannot_be_served_is_refused(node: tw.Node, target: Any) -> None:
    with pytest.raises(tw.InvalidArgument):
        node.serve(target, name="thing")
    assert not asyncio.run(node.services())


def test_names_that_are_taken_are_refused(node: tw.Node) -> None:
    node.serve(Pricing(), instance="one")
    with pytest.raises(tw.NameTaken, match="instance: 'one' serves 'pricing' already"):
        node.serve(Pricing(), instance="one")
    with pytest.raises(tw.NameTaken, match="'pricing' is served already, with the methods fail, fail_plainly"):
        node.serve(Hanging(), name="pricing")
    with pytest.raises(tw.UnknownDispatcher):
        node.serve(Hanging(), dispatcher="nowhere")
    assert [info.name for info in asyncio.run(node.services())] == ["pricing"]


def test_a_dispatcher_is_chosen_for_plain_functions() -> None:
    with tw.Node(config={"dispatchers": {"io": {"threads": 1}}}) as node:
        node.serve({"plain": lambda: threading.current_thread().name}, name="one", dispatcher="io")
        there = node.spawn(lambda _: threading.current_thread().name, dispatcher="io")
        assert node.client("one").sync.plain() == node.sync.ask(there, None)


def test_a_plain_function_that_gives_a_coroutine_says_so(node: tw.Node) -> None:
    async def later() -> int:
        return 1

    node.serve({"wrapped": lambda: later()}, name="odd")
    with pytest.raises(tw.InvalidArgument, match="a plain function gave a coroutine"):
        node.client("odd").sync.wrapped()
