"""Service objects as arguments and results; what may be given."""

from __future__ import annotations

import asyncio
import functools
import pickle
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import tidewire as tw
from remote_support import Reference, Stranger, counts, desk_nodes, let_go


class Cart(tw.Service):
    def __init__(self) -> None:
        self.things: list[str] = []

    @tw.method
    async def add(self, thing: str) -> int:
        self.things.append(thing)
        return len(self.things)

    @tw.method
    def count(self) -> int:
        return len(self.things)

    @tw.method
    async def all(self) -> AsyncIterator[str]:
        for thing in self.things:
            yield thing

    @tw.method(visibility="node")
    async def secret(self) -> str:
        return "only here"

    def unmarked(self) -> str:
        return "only here"


@tw.service
@dataclass
class Noted:
    text: str

    @tw.method
    async def read(self) -> str:
        return self.text


class Plain:
    def hello(self, name: str) -> str:
        return f"hello {name}"

    def _hidden(self) -> str:
        return "hidden"


class Shop(tw.Service):
    def __init__(self) -> None:
        self.carts: list[Cart] = []

    @tw.method
    async def open(self) -> Cart:
        self.carts.append(Cart())
        return self.carts[-1]

    @tw.method
    async def fill(self, cart: Cart, things: list[str]) -> int:
        for thing in things:
            await cart.add(thing)
        return cart.count() if isinstance(cart, Cart) else await cart.count()

    @tw.method
    async def greet(self, who: Any) -> Any:
        return await who.hello("you")

    @tw.method
    async def read(self, note: Any) -> Any:
        return await note.read()

    @tw.method
    async def call(self, target: Any, name: str) -> Any:
        return await getattr(target, name)()

    @tw.method
    async def echo(self, value: Any) -> Any:
        return value


@pytest.mark.promise("P13.52")
async def test_a_service_object_is_called_where_it_lives() -> None:
    service = Shop()
    async with desk_nodes(service) as world:
        shop = world.caller.client("desk")
        async with await shop.open() as cart:
            assert isinstance(cart, tw.RemoteObject)
            assert await cart.add("bread") == 1
            assert await cart.add(thing="salt") == 2
            assert await cart.count() == 2
            assert [thing async for thing in cart.all()] == service.carts[0].things == ["bread", "salt"]
            assert await asyncio.to_thread(cart.sync.count) == 2
            assert await cart.with_(timeout=5.0).count() == 2
            assert counts(world.server) == (1, 0)
            assert await shop.fill(cart, ["oil"]) == 3
            with pytest.raises(AttributeError, match="no method 'secret'"):
                await cart.secret()
            with pytest.raises(tw.NoSuchTarget, match="no method 'unmarked'"):
                await cart.unmarked()
        await let_go(world.server, world.caller)


async def test_a_service_object_fits_a_parameter_of_its_class() -> None:
    async with desk_nodes(Shop()) as world:
        cart = Cart()
        assert await world.caller.client("desk").fill(cart, ["a", "b"]) == 2
        assert cart.things == ["a", "b"]
        with pytest.raises(tw.InvalidArgument, match="cart: 'x' is not allowed"):
            await world.caller.client("desk").fill("x", [])


async def test_methods_that_are_not_for_other_nodes_can_not_be_called() -> None:
    async with desk_nodes(Shop()) as world:
        cart = Cart()
        shop = world.caller.client("desk")
        for name in ("secret", "unmarked", "_hidden", "things"):
            with pytest.raises((tw.NoSuchTarget, AttributeError)):
                await shop.call(cart, name)


async def test_a_declared_service_is_an_object_even_if_it_is_a_data_class() -> None:
    async with desk_nodes(Shop()) as world:
        assert await world.caller.client("desk").read(Noted("x")) == "x"


@pytest.mark.promise("P13.53")
async def test_any_other_object_needs_a_mark() -> None:
    async with desk_nodes(Shop()) as world:
        shop = world.caller.client("desk")
        with pytest.raises(tw.InvalidArgument, match=r"\[0\].*Plain"):
            await shop.greet(Plain())
        with pytest.raises(tw.InvalidArgument, match=r"\[0\]\['a'\]\[1\]"):
            await shop.echo({"a": [1, Plain()]})
        with pytest.raises(tw.InvalidArgument, match="type"):
            await shop.echo(Plain)
        assert await shop.greet(tw.remote(Plain())) == "hello you"
        with pytest.raises((tw.NoSuchTarget, AttributeError)):
            await shop.call(tw.remote(Plain()), "_hidden")
        assert counts(world.caller)[1] == 0


async def test_an_object_that_is_called_itself_is_a_function() -> None:
    class Doubles:
        def __call__(self, number: int) -> int:
            return 2 * number

    async with desk_nodes(Shop()) as world:

        class Calls:
            async def twice(self, function: Any) -> int:
                return int(await function(await function(3)))

        await world.server.serve(Calls(), name="calls")
        assert await world.caller.client("calls").twice(tw.remote(Doubles())) == 12


async def test_many_functions_at_once_are_given_and_released() -> None:
    async with desk_nodes(Shop()) as world:

        async def number() -> int:
            return 1

        functions = [functools.partial(number) for _ in range(3_000)]
        back = await world.caller.client("desk").echo(functions)
        assert all(one is other for one, other in zip(functions, back, strict=True))
        await let_go(world.caller, world.server)


@pytest.mark.parametrize(
    ("target", "options", "wrong"),
    [
        (Plain, {}, "target: .*Plain"),
        (5, {}, "target: 5 is not allowed"),
        (None, {}, "target: None"),
        ([1], {}, "target: "),
        (print, {"lease": 0}, "lease: 0 is not allowed: give seconds from 0.001 to 604,800"),
        (print, {"lease": True}, "lease: True"),
        (print, {"lease": "1"}, "lease: '1'"),
        (print, {"lease": float("nan")}, "lease: nan"),
    ],
)
def test_bad_marks_are_refused(target: Any, options: Any, wrong: str) -> None:
    with pytest.raises(tw.InvalidArgument, match=wrong):
        tw.remote(target, **options)


def test_a_mark_stands_for_its_object_here(node: tw.Node) -> None:
    node.serve(Shop(), name="desk")
    marked = tw.remote(Plain())
    assert marked.hello("me") == "hello me"
    assert tw.remote(len)("abc") == 3
    with pytest.raises(tw.InvalidArgument, match="can't be pickled"):
        pickle.dumps(marked)


FUNCTION = {"node": 1, "name": "a", "key": "0" * 32, "kind": "function", "title": "f", "methods": []}
NO_REFERENCES: list[Any] = [
    5,
    {},
    FUNCTION | {"key": "0" * 31},
    FUNCTION | {"key": "x" * 32},
    FUNCTION | {"kind": "class"},
    FUNCTION | {"node": "1"},
    FUNCTION | {"node": True},
    FUNCTION | {"methods": [["call"]]},
    FUNCTION | {"methods": [[1, 2, 3]]},
    FUNCTION,
    FUNCTION | {"kind": "object", "methods": 5},
    FUNCTION | {"kind": "object", "methods": [["a", False, "soon"]]},
]


async def test_a_value_that_is_no_reference_is_refused() -> None:
    async with desk_nodes(Shop()) as world:
        stranger = await Stranger.join(world)
        echo = world.caller.client("desk").with_(instance="stranger").echo
        for reference in NO_REFERENCES:
            asking = asyncio.ensure_future(echo(1))
            exchange, _ = await stranger.came()
            stranger.answer(exchange, Reference(reference))
            with pytest.raises(tw.WireError, match="not of the form"):
                await asking
            assert counts(world.caller) == (0, 0)
        stranger.leave()
