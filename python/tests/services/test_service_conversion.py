"""Arguments that msgspec does not know as a whole: they are made part by part, or refused, here and
over a link.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import typing
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest
import tidewire as tw
from link_stories import PATIENCE_S, three

T = typing.TypeVar("T")


@dataclasses.dataclass
class Circle:
    radius: int


@dataclasses.dataclass
class Label:
    text: str


@dataclasses.dataclass
class Drawing:
    shape: Circle | Label
    raw: bytes | str = b""


@dataclasses.dataclass
class Tree:
    value: bytes | str
    parts: list[Tree] = dataclasses.field(default_factory=list)


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


class Pair(NamedTuple):
    left: Circle | Label
    right: int = 0


class Shaped(TypedDict):
    shape: Circle | Label


class Point(msgspec.Struct):
    at: bytes | str
    name: str | msgspec.UnsetType = msgspec.UNSET


class Page(pydantic.BaseModel, typing.Generic[T]):
    items: list[T]


@dataclasses.dataclass
class Summed:
    numbers: list[int]
    total: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.total = sum(self.numbers)


CIRCLE = {"radius": 3}
DAY, NOON = datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2, 12)
FITS: list[tuple[Any, Any, Any]] = [
    (bytes | str, b"x", b"x"),
    (bytes | str, "x", "x"),
    (list[bytes | str], ["x", b"y"], ["x", b"y"]),
    (set[bytes | str], ["x"], {"x"}),
    (datetime.datetime | datetime.date, DAY, DAY),
    (datetime.datetime | datetime.date, "2026-01-02", DAY),
    (datetime.datetime | datetime.date, "2026-01-02T12:00:00", NOON),
    (Circle | Label, CIRCLE, Circle(3)),
    (Circle | Label, {"text": "a"}, Label("a")),
    (Circle | Label, Label("a"), Label("a")),
    (Circle | Label | None, None, None),
    (list[Circle | Label], [CIRCLE, Label("a")], [Circle(3), Label("a")]),
    (tuple[Circle | Label, ...], [CIRCLE], (Circle(3),)),
    (tuple[Circle | Label, int], [CIRCLE, 2], (Circle(3), 2)),
    (dict[str, Circle | Label], {"a": CIRCLE}, {"a": Circle(3)}),
    (collections.abc.Mapping[str, bytes | str], {"a": "b"}, {"a": "b"}),
    (collections.abc.Sequence[Circle | Label], [CIRCLE], [Circle(3)]),
    (Mixed, 1, Mixed.ONE),
    (list[Mixed], ["two", Mixed.ONE], [Mixed.TWO, Mixed.ONE]),
    (Literal[1, "a", True], "a", "a"),
    (Drawing, {"shape": CIRCLE, "raw": "x"}, Drawing(Circle(3), "x")),
    (Drawing, {"shape": {"text": "a"}}, Drawing(Label("a"))),
    (Tree, {"value": "a", "parts": [{"value": b"b"}]}, Tree("a", [Tree(b"b")])),
    (Pair, {"left": CIRCLE}, Pair(Circle(3))),
    (Shaped, {"shape": CIRCLE}, {"shape": Circle(3)}),
    (Point, {"at": "x"}, Point("x")),
    (Page[int], {"items": [1]}, Page[int](items=[1])),
    (Page[int], Page[int](items=[1]), Page[int](items=[1])),
    (Summed, {"numbers": [1, 2]}, Summed([1, 2])),
    (Summed, Summed([1, 2]), Summed([1, 2])),
    (collections.Counter[str], {"a": 2}, collections.Counter(a=2)),
    (collections.OrderedDict[str, int], {"b": 1, "a": 2}, collections.OrderedDict(b=1, a=2)),
    (collections.defaultdict[str, list[int]], {"a": [1]}, collections.defaultdict(list, a=[1])),
    (collections.Counter, collections.Counter("aab"), collections.Counter("aab")),
]
MISFITS: list[tuple[Any, Any, str]] = [
    (bytes | str, 17, "`bytes`"),
    (list[bytes | str], ["x", 17], r"\[1\]: "),
    (datetime.datetime | datetime.date, "tomorrow", "date"),
    (Circle | Label, {"radius": "x"}, "radius"),
    (Circle | Label, 17, "got `int`"),
    (int | Mixed, True, "int"),
    (dict[str, Circle | Label], {"a": {"text": 1}}, "'a'"),
    (Mixed, 3, "3"),
    (Literal[1, "a"], 2, "2"),
    (Drawing, {"shape": CIRCLE, "raw": 17}, "raw: "),
    (Drawing, {"raw": "x"}, "shape: the field is missing"),
    (Tree, {"value": "a", "parts": [{"value": 1}]}, r"parts: \[0\]: value: "),
    (tuple[Circle | Label, int], [CIRCLE], "1 items"),
    (collections.Counter[str], {"a": "b"}, "int"),
    # Unknown fields are not ignored: in data as in records.
    (Circle, {"radius": 3, "colour": "red"}, "colour: there is no such field: it has radius"),
    (list[Circle], [{"radius": 3, "colour": "red"}], r"\[0\]: colour: there is no such field"),
    (Drawing, {"shape": CIRCLE, "colour": "red"}, "colour: there is no such field: it has raw, shape"),
    (Shaped, {"shape": CIRCLE, "colour": "red"}, "colour: there is no such field"),
    (Summed, {"numbers": [1], "total": 7}, "total: there is no such field"),
]


def taking(hint: Any) -> Callable[..., Any]:
    async def take(value: Any) -> Any:
        return type(value).__qualname__, repr(value)

    take.__annotations__ = {"value": hint}
    return take


@pytest.mark.promise("P13.19", "P13.20")
async def test_arguments_arrive_alike_here_and_over_a_link() -> None:
    async with three() as (_, a, b):
        await a.serve({f"take_{at}": taking(hint) for at, (hint, *_) in enumerate(FITS)}, name="fits")
        await a.serve({f"take_{at}": taking(hint) for at, (hint, *_) in enumerate(MISFITS)}, name="misfits")
        await b.until(lambda now: {"fits", "misfits"} <= now["links"]["services"].keys(), timeout=PATIENCE_S)
        for at, (_, value, made) in enumerate(FITS):
            here, there = (getattr(node.client("fits"), f"take_{at}") for node in (a, b))
            for given in (value, made):
                assert await here(given) == await there(given) == (type(made).__qualname__, repr(made))
        for at, (_, value, problem) in enumerate(MISFITS):
            for node in (a, b):
                with pytest.raises(tw.InvalidArgument, match=problem) as wrong:
                    await getattr(node.client("misfits"), f"take_{at}")(value)
                assert f"misfits.take_{at}: value" in str(wrong.value)
        # Values without annotations: fields that were never set, those that a record makes by
        # itself, and classes made of others.
        await a.serve({"echo": echo}, name="echo")
        for value in (Point("x"), Point("x", "y"), Summed([1, 2]), Page[int](items=[1])):
            back = await b.client("echo").echo(value)
            assert (back, type(back)) == (value, type(value))


async def echo(value: Any) -> Any:
    return value
