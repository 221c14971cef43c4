"""Typed values and errors between processes: made again where the type is known, plain values
elsewhere.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import json
import sys
import typing
from collections import namedtuple
from datetime import UTC, datetime
from decimal import Decimal
from types import ModuleType
from typing import Any, Literal, NamedTuple

import msgspec
import pydantic
import pytest
from tidewire.errors import WireError
from tidewire.values import decode, encode
from value_support import put


class Colour(enum.Enum):
    RED = "red"
    PAIR = (1, 2)


class Level(enum.IntEnum):
    LOW = 1


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass
class Line:
    item: str
    count: int = 1


@dataclasses.dataclass
class Gift(Line):
    """A record in the place of its base."""

    paper: Colour = Colour.RED


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """A record with fields of many types."""

    lines: list[Line]
    price: float
    at: datetime
    places: tuple[int, str] = (1, "a")
    tags: frozenset[str] = frozenset()
    by_name: dict[str, Line] = dataclasses.field(default_factory=dict)
    note: str | None = None
    kind: Literal["new", "old"] = "new"
    discount: Decimal = None  # type: ignore[assignment]
    total: float = dataclasses.field(init=False, default=0.0)


@dataclasses.dataclass(init=False)
class Made:
    """A record with a constructor of its own."""

    x: int

    def __init__(self, from_text: str) -> None:
        self.x = int(from_text)


class Quote(msgspec.Struct, rename="camel", tag="quote", frozen=True):
    """A struct whose names in JSON are others."""

    unit_price: float
    symbol: str = "X"


class Person(pydantic.BaseModel):
    """A model whose names elsewhere are others."""

    model_config = pydantic.ConfigDict(extra="allow")
    full_name: str = pydantic.Field(alias="fullName")
    age: int = 3


class Numbers(pydantic.RootModel[list[int]]):
    """A model without names."""


class Point(NamedTuple):
    x: int
    y: int = 2


Pair = namedtuple("Pair", "left right")

ORDER = Order([Line("a"), Gift("b", 2, Colour.PAIR)], 3, datetime(2026, 11, 21, tzinfo=UTC), by_name={"c": Line("c")})
object.__setattr__(ORDER, "total", 7.5)
TYPED = [
    ORDER,
    Made("5"),
    Quote(2.5),
    Person(fullName="Ada", age=36, extra=[1]),
    Numbers([1, 2]),
    Point(1),
    Pair(1, (2,)),
    Colour.PAIR,
    Level.LOW,
    Rights.READ | Rights.WRITE,
    [{Point(1, 2): Level.LOW}, (Line("x"),), {Colour.RED}],
]


@pytest.mark.parametrize("value", TYPED, ids=lambda value: type(value).__name__)
def test_a_typed_value_comes_back_as_its_type(value: Any) -> None:
    back = decode(encode(value))
    assert type(back) is type(value)
    assert back == value
    assert repr(back) == repr(value)


@dataclasses.dataclass
class Counted:
    """A record whose fields are maps of the standard library."""

    words: collections.Counter[str]
    order: collections.OrderedDict[str, int]
    lists: collections.defaultdict[str, list[int]] = dataclasses.field(
        default_factory=lambda: collections.defaultdict(list)
    )


def test_fields_that_are_maps_of_the_standard_library_come_back_as_what_they_are() -> None:
    value = Counted(collections.Counter("aab"), collections.OrderedDict(b=1, a=2))
    value.lists["x"].append(1)
    back = decode(encode(value))
    assert back == value
    assert back.words.most_common(1) == [("a", 2)]
    assert [type(field) for field in (back.words, back.order, back.lists)] == [
        collections.Counter,
        collections.OrderedDict,
        collections.defaultdict,
    ]
    with pytest.raises(WireError, match=r"words: 5 \(a int\) is not"):
        decode(encode(dataclasses.replace(value, words=5)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "plain"),
    [
        (lambda: dataclasses.make_dataclass("Kind", [("a", int)])(1), {"a": 1}),
        (lambda: msgspec.defstruct("Kind", [("a", int)])(a=1), {"a": 1}),
        (lambda: pydantic.create_model("Kind", a=(int, ...))(a=1), {"a": 1}),
        (lambda: namedtuple("Kind", "a")(1), {"a": 1}),
        (lambda: enum.Enum("Kind", {"A": 5})(5), 5),
    ],
    ids=["dataclass", "struct", "model", "named tuple", "enum"],
)
def test_a_type_that_is_not_known_here_comes_back_as_plain_values(elsewhere: ModuleType, make: Any, plain: Any) -> None:
    value = make()
    put(elsewhere, type(value), "Kind")
    blob = encode([value])
    assert decode(blob) == [value]
    for other in (int, json, "text", type, ValueError, print):
        elsewhere.Kind = other  # type: ignore[attr-defined]
        assert decode(blob) == [plain]
        assert type(decode(blob)[0]) is type(plain)
    del elsewhere.Kind
    assert decode(blob) == [plain]
    del sys.modules[elsewhere.__name__]
    assert decode(blob) == [plain]
    assert elsewhere.__name__ not in sys.modules


def test_looking_for_a_type_runs_no_code(elsewhere: ModuleType) -> None:
    asked: list[str] = []

    class Meta(type):
        """A type whose attributes are made by code."""

        def __getattr__(cls, name: str) -> Any:
            asked.append(name)
            raise AttributeError(name)

    inner = dataclasses.make_dataclass("Later", [("a", int)])
    inner.__module__, inner.__qualname__ = elsewhere.__name__, "Outer.Later"
    outer = put(elsewhere, dataclasses.make_dataclass("Outer", [("b", int)]), "Outer")
    blobs = encode(inner(1)), encode(outer(2))
    elsewhere.Outer = Meta("Outer", (), {})  # type: ignore[attr-defined]
    assert [decode(blob) for blob in blobs] == [{"a": 1}, {"b": 2}]
    del elsewhere.Outer
    elsewhere.__getattr__ = asked.append  # type: ignore[method-assign, assignment]
    assert [decode(blob) for blob in blobs] == [{"a": 1}, {"b": 2}]
    assert asked == []


def test_keyword_only_fields_and_fields_without_defaults(elsewhere: ModuleType) -> None:
    kind = put(elsewhere, msgspec.defstruct("Kind", [("a", int, 1), ("b", int)], kw_only=True), "Kind")
    assert decode(encode(kind(b=2))) == kind(a=1, b=2)
    blob = encode(put(elsewhere, dataclasses.make_dataclass("Kind", ["a"]), "Kind")(1))
    elsewhere.Kind = kind  # type: ignore[attr-defined]
    with pytest.raises(WireError, match="b: the field is missing"):
        decode(blob)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"lines": "many"}, r"lines: 'many' \(a str\) is not list"),
        ({"lines": [Line("a"), {"item": "b"}]}, "lines: "),
        ({"price": "3"}, r"price: '3' \(a str\) is not float"),
        ({"price": True}, None),
        ({"places": (1, 2)}, "places: "),
        ({"places": (1, "a", 3)}, "places: "),
        ({"tags": {"a"}}, "tags: "),
        ({"tags": frozenset({3})}, "tags: "),
        ({"by_name": {1: Line("c")}}, "by_name: "),
        ({"note": 3}, "note: "),
        ({"kind": "other"}, "kind: "),
        ({"discount": 1.5}, "discount: "),
        ({"total": "much"}, "total: "),
        ({"colour": "red"}, r"colour: there is no such field: it has at, by_name, "),
    ],
    ids=lambda case: str(case)[:30],
)
def test_fields_that_do_not_fit_are_refused_by_name(elsewhere: ModuleType, change: dict[str, Any], named: Any) -> None:
    fields = {field.name: getattr(ORDER, field.name) for field in dataclasses.fields(ORDER)} | change
    sent = put(elsewhere, dataclasses.make_dataclass("Order", list(fields)), "Order")(**fields)
    sent_blob = encode([sent])
    elsewhere.Order = Order  # type: ignore[attr-defined]
    if named is None:
        assert type(decode(sent_blob)[0]) is Order
        return
    with pytest.raises(WireError, match=f"data: not a {elsewhere.__name__}:Order: {named}"):
        decode(sent_blob)


@pytest.mark.parametrize("kind", [Line, Quote, Point, Person], ids=lambda kind: kind.__name__)
def test_a_missing_field_is_refused_by_name_and_a_default_fills_in(elsewhere: ModuleType, kind: Any) -> None:
    name = {Line: "item", Quote: "unit_price", Point: "x", Person: "full_name"}[kind]
    whole = {Line: "a", Quote: 1.5, Point: 1, Person: "Ada"}[kind]
    sent = put(elsewhere, dataclasses.make_dataclass("Kind", [name]), "Kind")(whole)
    empty = put(elsewhere, dataclasses.make_dataclass("Kind", []), "Kind")()
    blobs = encode(sent), encode(empty)
    elsewhere.Kind = kind  # type: ignore[attr-defined]
    assert getattr(decode(blobs[0]), name) == whole
    with pytest.raises(WireError, match=f"not a tests_elsewhere:Kind: .*{name}|{name}"):
        decode(blobs[1])


def test_a_constructor_that_fails_and_a_member_that_is_not_there_are_refused(elsewhere: ModuleType) -> None:
    @dataclasses.dataclass
    class Checked:
        """A record that looks at its fields."""

        a: int

        def __post_init__(self) -> None:
            if self.a < 0:
                raise RuntimeError("a is below 0")

    checked = put(elsewhere, Checked, "Checked")(1)
    checked.a = -1
    with pytest.raises(WireError, match="not a tests_elsewhere:Checked: a is below 0") as caught:
        decode(encode(checked))
    assert isinstance(caught.value.__cause__, RuntimeError)
    blob = encode(put(elsewhere, enum.Enum("Kind", {"A": 5}), "Kind").A)
    put(elsewhere, enum.Enum("Kind", {"A": 6}), "Kind")
    with pytest.raises(WireError, match="not a tests_elsewhere:Kind: 5 is not a valid"):
        decode(blob)


def test_annotations_that_cannot_be_checked_let_everything_pass(elsewhere: ModuleType) -> None:
    class Proto(typing.Protocol):
        def run(self) -> None: ...

    @dataclasses.dataclass
    class Loose:
        """A record with annotations for type checkers."""

        a: Any
        b: typing.Callable[[], int] | int
        c: Proto
        d: list[Any]

    value = put(elsewhere, Loose, "Loose")(1, 2, 3, [4])
    assert decode(encode(value)) == value
    Loose.__annotations__["e"] = "NotHere"
    decode(encode(value))
