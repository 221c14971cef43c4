"""Service objects as arguments and results; what may be given; the machine that knows what was."""

from __future__ import annotations

import asyncio
import functools
import pickle
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import tidewire as tw
from remote_support import World, counts, let_go, play
from tidewire._limits import REMOTE_OBJECTS
from tidewire.objects.given import CLAIM_S, Entry, Given


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


def test_a_service_object_is_called_where_it_lives() -> None:
    async def story(world: World) -> None:
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

    service = Shop()
    play(service, story)


def test_a_service_object_fits_a_parameter_of_its_class() -> None:
    async def story(world: World) -> None:
        cart = Cart()
        assert await world.caller.client("desk").fill(cart, ["a", "b"]) == 2
        assert cart.things == ["a", "b"]
        with pytest.raises(tw.InvalidArgument, match="cart: 'x' is not allowed"):
            await world.caller.client("desk").fill("x", [])

    play(Shop(), story)


def test_methods_that_are_not_for_other_nodes_can_not_be_called() -> None:
    async def story(world: World) -> None:
        cart = Cart()
        shop = world.caller.client("desk")
        for name in ("secret", "unmarked", "_hidden", "things"):
            with pytest.raises((tw.NoSuchTarget, AttributeError)):
                await shop.call(cart, name)

    play(Shop(), story)


def test_a_declared_service_is_an_object_even_if_it_is_a_data_class() -> None:
    async def story(world: World) -> None:
        assert await world.caller.client("desk").read(Noted("x")) == "x"

    play(Shop(), story)


def test_any_other_object_needs_a_mark() -> None:
    async def story(world: World) -> None:
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

    play(Shop(), story)


def test_what_is_published_or_asked_on_a_subject_holds_no_functions() -> None:
    async def story(world: World) -> None:
        with pytest.raises(tw.InvalidArgument, match="function"):
            world.caller.publish("a.b", [lambda: 1])

    play(Shop(), story)


def test_an_object_that_is_called_itself_is_a_function() -> None:
    class Doubles:
        def __call__(self, number: int) -> int:
            return 2 * number

    async def story(world: World) -> None:
        class Calls:
            async def twice(self, function: Any) -> int:
                return int(await function(await function(3)))

        await world.server.serve(Calls(), name="calls")
        assert await world.caller.client("calls").twice(tw.remote(Doubles())) == 12

    play(Shop(), story)


def test_many_functions_at_once_are_given_and_let_go() -> None:
    async def story(world: World) -> None:
        async def number() -> int:
            return 1

        functions = [functools.partial(number) for _ in range(3_000)]
        back = await world.caller.client("desk").echo(functions)
        assert all(one is other for one, other in zip(functions, back, strict=True))
        await let_go(world.caller, world.server)

    play(Shop(), story)


@pytest.mark.parametrize(
    "reference",
    [
        None,
        5,
        {},
        {"node": 1, "name": "a", "key": "0" * 31, "kind": "function", "title": "f", "methods": []},
        {"node": 1, "name": "a", "key": "x" * 32, "kind": "function", "title": "f", "methods": []},
        {"node": 1, "name": "a", "key": "0" * 32, "kind": "class", "title": "f", "methods": []},
        {"node": "1", "name": "a", "key": "0" * 32, "kind": "function", "title": "f", "methods": []},
        {"node": True, "name": "a", "key": "0" * 32, "kind": "function", "title": "f", "methods": []},
        {"node": 1, "name": "a", "key": "0" * 32, "kind": "function", "title": "f", "methods": [["call"]]},
        {"node": 1, "name": "a", "key": "0" * 32, "kind": "function", "title": "f", "methods": [[1, 2, 3]]},
        {"node": 1, "name": "a", "key": "0" * 32, "kind": "function", "title": "f", "methods": []},
        {"node": 1, "name": "a", "key": "0" * 32, "kind": "object", "title": "f", "methods": 5},
        {"node": 1, "name": "a", "key": "0" * 32, "kind": "object", "title": "f", "methods": [["a", False, "soon"]]},
    ],
)
def test_what_is_no_reference_is_refused(reference: Any) -> None:
    async def story(world: World) -> None:
        objects = world.caller._link().objects
        with pytest.raises(tw.WireError, match="not of the form"):
            objects.take(reference)
        assert counts(world.caller) == (0, 0)

    play(Shop(), story)


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


def test_a_mark_stands_for_its_object_here() -> None:
    with tw.Node() as node:
        node.serve(Shop(), name="desk")
        marked = tw.remote(Plain())
        assert marked.hello("me") == "hello me"
        assert tw.remote(len)("abc") == 3
        with pytest.raises(tw.InvalidArgument, match="can't be pickled"):
            pickle.dumps(marked)


# The machine


def _entry(holder: str, same: object = 0, lease_s: float = 10.0) -> Entry:
    return Entry(same, holder, object(), "function", "f", {}, lease_s)


def test_what_was_given_is_found_by_its_holder_alone() -> None:
    given, entry = Given(), _entry("b")
    given.add(entry)
    given.give(entry, 0.0)
    assert given.use(entry.key, "b", 7, 1.0) is entry
    assert entry.until == 11.0
    for key, holder, origin in [(entry.key, "c", 7), (entry.key, "b", 8), ("0" * 32, "b", 7), ("", "b", 7)]:
        with pytest.raises(tw.RemoteGone):
            given.use(key, holder, origin, 1.0)
    assert entry.until == 11.0, "who has no right to it renews no lease"
    given.left(8)
    assert len(given) == 1
    given.left(7)
    assert len(given) == 0


def test_what_is_given_again_while_it_is_let_go_stays() -> None:
    given, entry = Given(), _entry("b")
    given.add(entry)
    given.give(entry, 0.0)
    given.give(entry, 0.0)
    given.release(entry.key, "b", 7, 1)
    assert given.known("b", 0) is entry
    given.release(entry.key, "c", 7, 1)
    given.release(entry.key, "b", 7, -5)
    assert len(given) == 1
    given.release(entry.key, "b", 7, 1)
    assert given.known("b", 0) is None and len(given) == 0


def test_what_is_let_go_while_its_call_is_under_way_stays_until_that_has_ended() -> None:
    given, entry = Given(), _entry("b")
    given.add(entry)
    given.give(entry, 0.0)
    entry.busy += 1
    given.release(entry.key, "b", 7, 1)
    assert given.find(entry.key) is entry
    # Given once more meanwhile, it is held once more.
    given.give(entry, 0.0)
    given.ended(entry, 1.0)
    assert given.find(entry.key) is entry
    entry.busy += 1
    given.release(entry.key, "b", 7, 1)
    given.ended(entry, 2.0)
    assert len(given) == 0


def test_what_nobody_claims_after_its_call_lives_shortly() -> None:
    given, entry = Given(), _entry("b", lease_s=600.0)
    given.add(entry)
    given.give(entry, 0.0)
    entry.busy += 1
    given.ended(entry, 1.0)
    assert given.expire(1.0) == 1.0 + CLAIM_S
    given.use(entry.key, "b", 7, 2.0)
    assert given.expire(300.0) == 602.0


def test_what_was_given_is_let_go_over_the_link_of_its_holder_alone() -> None:
    given, entry = Given(), _entry("b")
    given.add(entry)
    given.give(entry, 0.0)
    given.use(entry.key, "b", 7, 1.0)
    # Another node that has taken the name since.
    given.release(entry.key, "b", 8, 1)
    assert len(given) == 1
    given.release(entry.key, "b", 7, 1)
    assert len(given) == 0


def test_what_comes_back_from_a_node_that_it_was_not_given_to_is_refused() -> None:
    class Desk:
        def __init__(self) -> None:
            self.kept: Any = None

        async def keep(self, function: Any) -> None:
            self.kept = function

    def own() -> None: ...

    async def story(world: World) -> None:
        await world.caller.serve({"own": is_own}, name="owner")
        await world.caller.client("desk").keep(own)
        key = desk.kept._holding.key
        stands = {"kind": "back", "key": key}
        async with world.node("thief") as thief:
            for node, allowed in ((world.server, True), (thief, False)):
                instance = (await asks(node, "owner")).instances[0]
                give = functools.partial(_as_it_is, stands)
                call = node._link().link.call(
                    node._engine, f"svc.owner.{instance}.own", (Stand(),), 10.0, None, None, give
                )
                if allowed:
                    assert await call is True
                else:
                    with pytest.raises(tw.RemoteGone, match="has not given it to the node that it comes from"):
                        await call
        desk.kept.dispose()

    async def asks(node: tw.Node, service: str) -> tw.ServiceInfo:
        await node._link().refresh()
        return next(info for info in await node.services() if info.name == service)

    async def is_own(function: Any) -> bool:
        return function is own

    desk = Desk()
    play({"keep": desk.keep}, story)


class Stand:
    """What is given in its place is said by the story."""


def _as_it_is(stands: dict[str, Any], value: object) -> dict[str, Any]:
    return stands


def test_a_node_gives_no_more_than_its_limit() -> None:
    given = Given()
    for number in range(REMOTE_OBJECTS.default):
        given.add(_entry("b", number))
    with pytest.raises(tw.LimitExceeded, match="remote_objects=10,000"):
        given.add(_entry("b", -1))
    given.clear()
    given.add(_entry("b", -1))


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_nothing_lives_beyond_its_lease_or_holder(seed: int) -> None:
    dice, given, now = random.Random(seed), Given(), 0.0
    alive: dict[str, Entry] = {}
    for step in range(400):
        now += dice.random()
        what = dice.randrange(7)
        entry = dice.choice(list(alive.values())) if alive else None
        if what <= 1 or entry is None:
            entry = _entry(dice.choice("bc"), step, dice.uniform(0.5, 20.0))
            given.add(entry)
            given.give(entry, now)
            alive[entry.key] = entry
        elif what == 2:
            origin = 1 if entry.holder == "b" else 2
            assert given.use(entry.key, entry.holder, origin, now) is entry
        elif what == 3:
            entry.busy += 1
        elif what == 4 and entry.busy:
            given.ended(entry, now)
            if not entry.busy and entry.given <= 0:
                del alive[entry.key]
        elif what == 5:
            given.release(entry.key, entry.holder, 1 if entry.holder == "b" else 2, 1)
            if not entry.busy:
                del alive[entry.key]
        elif what == 6 and dice.random() < 0.1:
            origin = dice.choice((1, 2))
            given.left(origin)
            alive = {key: one for key, one in alive.items() if one.origin != origin}
        next_at = given.expire(now)
        alive = {key: one for key, one in alive.items() if one.busy or one.until > now}
        assert len(given) == len(alive)
        idle = [one.until for one in alive.values() if not one.busy]
        assert next_at == (min(idle) if idle else None)
        assert all(given.find(key) is one and given.known(one.holder, one.same) is one for key, one in alive.items())
