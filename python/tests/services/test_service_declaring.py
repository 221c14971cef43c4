"""Services: what is found wrong when a class is tw.service, and when a call does not fit."""

from __future__ import annotations

import enum
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

import msgspec
import pytest
import tidewire as tw

if TYPE_CHECKING:
    from tidewire import CallContext


def refused(declare: Callable[[], Any]) -> str:
    with pytest.raises(tw.InvalidArgument) as wrong:
        declare()
    return str(wrong.value)


def test_all_problems_of_a_class_are_named_at_once() -> None:
    def declare() -> None:
        class Wrong(tw.Service, name="not one token", visibility="everybody"):
            @tw.method
            def missing() -> None: ...  # type: ignore[misc]

            @tw.method
            def misnamed(symbol: str) -> None: ...  # type: ignore[misc]

            @tw.method(name="a.b")
            def dotted(self) -> None: ...

            @tw.method(name="other")
            def first(self) -> None: ...

            @tw.method(name="other")
            def second(self) -> None: ...

            @tw.method
            def positional(self, a: int, /, b: int) -> None: ...

            @tw.method(timeout=-1, visibility="some", idempotent="yes")  # type: ignore[arg-type]
            def options(self) -> None: ...

            @tw.method
            def sync(self) -> None: ...  # type: ignore[override]

            @tw.method
            def _hidden(self) -> None: ...

            @tw.on("orders..*")
            def bad_subject(self, order: int) -> None: ...

            @tw.on("a.>.b", queue="")
            def bad_queue(self, order: int) -> None: ...

            @tw.on("orders")
            def too_many(self, order: int, other: int) -> None: ...

            @tw.on("orders")
            def too_few(self) -> None: ...

            @tw.on("orders")
            def generator(self, order: int) -> Iterator[int]:
                yield order

            nameless = tw.method(lambda self: 1)

    said = refused(declare)
    for problem in (
        "Wrong: 19 problems",
        "name: 'not one token' is not allowed: give one token",
        "visibility: 'everybody' is not allowed: use one of 'node', 'private', 'public'",
        "missing: self is missing, it takes none: add self",
        "misnamed: self is missing, its first parameter is 'symbol'",
        "a.b: name: 'a.b' is not allowed: give one token",
        "second: name: 'other' is the name of first too",
        "positional: a: positional-only parameters can't be given by name",
        "options: timeout: -1 is not allowed: give seconds",
        "options: visibility: 'some' is not allowed",
        "options: idempotent: 'yes' is not allowed: give True or False",
        "sync: name: 'sync' is not allowed: every client has that itself",
        "_hidden: name: '_hidden' is not allowed: names that begin with an underscore",
        "bad_subject: subject: 'orders..*' is not allowed: give tokens divided by single dots",
        "bad_queue: subject: 'a.>.b' is not allowed",
        "bad_queue: queue: '' is not allowed: give a name, or None",
        "too_many: an event handler takes one message",
        "too_few: an event handler takes one message",
        "generator: an event handler can't be a generator",
        "nameless: a lambda has no name",
    ):
        assert problem in said, problem


def test_one_problem_is_one_line() -> None:
    def declare() -> None:
        @tw.service
        class Wrong:
            @tw.method
            def missing() -> None: ...  # type: ignore[misc]

    assert refused(declare).startswith(
        "test_one_problem_is_one_line.<locals>.declare.<locals>.Wrong: missing: self is missing"
    )


@pytest.mark.parametrize("name", ["", "a.b", "a b", "a*", "a>", "a\n", "x" * 256, 3])
def test_names_are_one_token_of_a_subject(name: Any) -> None:
    def declare() -> None:
        class Named(tw.Service, name=name):
            @tw.method
            def nothing(self) -> None: ...

    assert "name:" in refused(declare)


@pytest.mark.parametrize("subject", ["", ".", "a.", "a b", "a*", ">.a", "*a", "a." * 32 + "a", "x" * 256, 3, None])
def test_subjects_of_events_are_patterns(subject: Any) -> None:
    def declare() -> None:
        class Listening(tw.Service):
            @tw.on(subject)
            def handle(self, message: int) -> None: ...

    assert "handle: subject:" in refused(declare)


def test_a_value_that_is_no_function_cannot_be_marked() -> None:
    for wrong in (3, property(lambda self: 1), len, int):
        assert "can't be marked" in refused(lambda wrong=wrong: tw.method(wrong))  # type: ignore[misc]
    assert "write @tw.on('orders.*')" in refused(lambda: tw.on(lambda self, message: None))  # type: ignore[arg-type]
    assert "decorate a class" in refused(lambda: tw.service(lambda: 1))  # type: ignore[type-var]


def test_marking_twice_and_too_much_is_refused() -> None:
    def twice() -> None:
        class Twice(tw.Service):
            @tw.method
            @tw.method(name="other")
            def get(self) -> None: ...

    assert "get: marked by @tw.method 2 times" in refused(twice)
    many = {f"f{n}": (lambda: 1) for n in range(1_001)}
    with tw.Node() as node:
        assert "1,001 are not allowed: declare at most 1,000" in refused(lambda: node.serve(many, name="many"))
        assert "it has no methods" in refused(lambda: node.serve(type("Empty", (tw.Service,), {})()))
        assert "served with name=" in refused(lambda: node.serve(lambda: 1))
        assert "serve a dict of functions with name=" in refused(lambda: node.serve({"add": max}))


def test_a_method_with_a_wrapper_and_an_override_keeps_its_mark() -> None:
    def wrapped(function: Any) -> Any:
        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return inner

    class Base(tw.Service):
        @wrapped
        @tw.method(idempotent=True)
        def get(self, n: int) -> int:
            return n

    class Derived(Base):
        def get(self, n: int) -> int:
            return n + 1

    with tw.Node() as node:
        served = node.serve(Derived())
        assert served.info.methods[0].idempotent
        assert node.client(Derived).sync.get(1) == 2
        assert refused(lambda: node.client(Derived).get()) == "derived.get: n: missing: give int"


def test_annotations_may_name_classes_of_the_function_around() -> None:
    @dataclass
    class Local:
        n: int

    class Taking(tw.Service):
        @tw.method
        def take(self, local: Local, later: list[Later]) -> int:
            return local.n + later[0].n

    @dataclass
    class Later:
        n: int

    with tw.Node() as node:
        served = node.serve(Taking())
        assert node.client("taking").sync.take({"n": 1}, [Later(2)]) == 3
        assert served.info.methods[0].notes == ("later: list[Later] could not be found",)


# Arguments


class Color(enum.Enum):
    RED = "red"


@dataclass
class Order:
    symbol: str
    qty: int = 1


class Item(msgspec.Struct):
    name: str


class Plain:
    """A class that nothing is known of."""


class Taking(tw.Service):
    @tw.method
    async def take(self, value: Any, *rest: int, flag: bool = False, **others: float) -> Any:
        return value, rest, flag, others

    @tw.method
    async def order(self, order: Order) -> Any:
        return order

    @tw.method
    async def several(self, orders: list[Order], by: dict[str, Item] | None = None) -> Any:
        return orders, by

    @tw.method
    async def scalar(self, n: int = 0, x: float = 0.0, color: Color = Color.RED, plain: Plain | None = None) -> Any:
        return n, x, color, plain

    @tw.method
    async def either(self, value: Union[Order, Item, int]) -> Any:  # noqa: UP007
        return value

    @tw.method
    async def unknown(self, value: NotThere, context: CallContext) -> Any:  # type: ignore[name-defined]  # noqa: F821
        return value, context.method

    @tw.method
    async def items(self, numbers: AsyncIterator[int]) -> int:
        return len([n async for n in numbers])


async def test_arguments_bind_as_in_python(node: tw.Node) -> None:
    node.serve(Taking())
    for taking in (node.client(Taking), node.client("taking")):
        assert await taking.take(1) == (1, (), False, {})
        assert await taking.take(1, 2, 3, flag=True, x=1.0) == (1, (2, 3), True, {"x": 1.0})
        assert await taking.scalar(x=1, n=2) == (2, 1.0, Color.RED, None)


async def test_plain_data_becomes_what_the_method_wants(node: tw.Node) -> None:
    node.serve(Taking())
    taking = node.client("taking")
    order, plain = Order("X"), Plain()
    assert await taking.order(order) is order, "what fits is handed over as it is"
    assert await taking.order({"symbol": "X", "qty": 2}) == Order("X", 2)
    assert await taking.several([{"symbol": "X"}], {"a": {"name": "b"}}) == ([Order("X")], {"a": Item("b")})
    assert (await taking.scalar(plain=plain))[3] is plain
    assert await taking.scalar(color="red", x=2) == (0, 2.0, Color.RED, None)
    assert await taking.either(order) is order
    assert await taking.either({"name": "b"}) == Item("b")
    assert await taking.either(3) == 3
    assert await taking.unknown("anything") == ("anything", "unknown")


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "said"),
    [
        ("order", (), {}, "taking.order: order: missing: give Order"),
        ("order", (1, 2), {}, "taking.order: 2 positional arguments were given: give at most 1"),
        ("order", (Order("X"),), {"order": 1}, "order: given twice, by position and by name"),
        ("order", (), {"ordre": 1}, "ordre: there is no such parameter: did you mean 'order'?"),
        ("order", (3,), {}, "taking.order: order: 3 is not allowed: give Order (Expected `object`, got `int`)"),
        ("order", ({"symbol": "X", "qty": "2"},), {}, "Expected `int`, got `str` - at `$.qty`"),
        ("several", ([{"symbol": 1}],), {}, "orders: [{'symbol': 1}] is not allowed: give list["),
        ("scalar", ("1",), {}, "taking.scalar: n: '1' is not allowed: give int (Expected `int`, got `str`)"),
        ("scalar", (True,), {}, "n: True is not allowed: give int"),
        ("scalar", (), {"color": "blue"}, "color: 'blue' is not allowed: give Color"),
        ("scalar", (), {"plain": 3}, "plain: 3 is not allowed: give"),
        ("take", (1, "x"), {}, "taking.take: rest: 'x' is not allowed: give int"),
        ("take", (1,), {"more": "x"}, "taking.take: more: 'x' is not allowed: give float"),
        ("either", ("x",), {}, "taking.either: value: 'x' is not allowed"),
        ("items", (1,), {}, "taking.items: numbers: 1 is not allowed: give"),
    ],
)
async def test_arguments_that_do_not_fit_are_named(
    node: tw.Node, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], said: str
) -> None:
    served = node.serve(Taking())
    for taking in (node.client(Taking), node.client("taking")):
        with pytest.raises(tw.InvalidArgument) as wrong:
            await getattr(taking, name)(*args, **kwargs)
        assert said in str(wrong.value)
    assert served.statistics()["in_flight"] == 0
