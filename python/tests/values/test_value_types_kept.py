"""Value types that survive a process, a link, stored events and entries."""

from __future__ import annotations

import collections
import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, Literal, NewType, Optional, TypeVar

import pydantic
import pytest
import tidewire as tw
from tidewire.values import decode, encode

T = TypeVar("T")
U = TypeVar("U")
Sku = NewType("Sku", str)


class Item(pydantic.BaseModel):
    sku: str


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]


class Both(pydantic.BaseModel, Generic[T, U]):
    left: T
    right: U


class Rows(pydantic.RootModel[list[T]], Generic[T]):
    """A generic model without fields."""


class Items(Page[Item]):
    """A model that is no longer generic."""


@dataclasses.dataclass
class Basket:
    """A record with a map of a type of its own."""

    counts: Any


GENERIC = [
    Page(items=[1]),
    Page[int](items=[1]),
    Page[Item](items=[Item(sku="a")]),
    Page[Page[Item]](items=[Page[Item](items=[Item(sku="a")])]),
    Page[dict[str, tuple[int, ...]]](items=[{"a": (1, 2)}]),
    Page[Optional[int]](items=[1, None]),  # noqa: UP045
    Page[int | str | None](items=[1, "a", None]),
    Page[Any](items=[1]),
    Page[None](items=[None]),
    Page[Literal["a, b", "c]"]](items=["a, b"]),
    Page[Sku](items=[Sku("a")]),
    Both[int, list[Item]](left=1, right=[Item(sku="a")]),
    Rows[int]([1, 2]),
    Items(items=[Item(sku="a")]),
]
MAPS = [
    collections.Counter("aab"),
    collections.Counter({1: -2, (1, 2): 3}),
    collections.OrderedDict(b=1, a=2),
    collections.OrderedDict({2: "b", 1: "a"}),
    collections.defaultdict(list, {"a": [1]}),
    collections.defaultdict(None, {"a": 1}),
    Basket(collections.Counter("aab")),
]


def told(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__} {value!r}"


class Shelf:
    async def tell(self, value: Any) -> tuple[str, Any]:
        return told(value), value

    async def page(self, value: Page[Item]) -> str:
        return told(value)

    async def count(self, value: collections.Counter[str]) -> str:
        return told(value)

    async def order(self, value: collections.OrderedDict[str, int]) -> str:
        return told(value)

    async def plain(self, value: dict[str, int]) -> str:
        return told(value)


@pytest.mark.promise("P13.95")
@pytest.mark.promise("P13.96")
async def test_a_callee_gets_the_same_types_in_one_process_and_over_a_link(tmp_path: Path) -> None:
    async with tw.Node() as here, tw.Node(here.listen("tide://127.0.0.1:0").url) as far:
        await here.serve(Shelf(), name="shelf")
        for value in [*GENERIC, *MAPS, [MAPS[0], {"a": GENERIC[1]}]]:
            for node in (here, far):
                seen, back = await node.client("shelf").tell(value)
                assert (seen, told(back), back) == (told(value), told(value), value)
        words = {"a": 2, "b": 1}
        calls: list[tuple[str, list[Any]]] = [
            ("page", [GENERIC[2], {"items": [{"sku": "a"}]}]),
            ("count", [MAPS[0], words]),
            ("order", [MAPS[2], words]),
            ("plain", [MAPS[0], MAPS[2], words]),
        ]
        for method, values in calls:
            for value in values:
                near, over_link = [await getattr(node.client("shelf"), method)(value) for node in (here, far)]
                assert near == over_link


@pytest.mark.promise("P13.95")
@pytest.mark.promise("P13.96")
async def test_stored_events_and_entries_keep_the_types(homes: list[tw.Node]) -> None:
    one, other = homes
    values = [*GENERIC, *MAPS]
    orders, bucket = await one.stream("orders", subjects=["orders.>"]), await one.kv("limits")
    for at, value in enumerate(values):
        await orders.publish("orders.eu", value)
        await bucket.put(f"k{at}", value)
    read = [event.value async for event in (await other.stream("orders")).read()]
    entries = [await (await other.kv("limits")).get(f"k{at}") for at in range(len(values))]
    assert [told(value) for value in read] == [told(value) for value in values]
    assert [told(entry.value) for entry in entries if entry is not None] == [told(value) for value in values]


@pytest.mark.promise("P13.95")
def test_the_factory_of_a_defaultdict_travels_if_it_is_a_built_in_type() -> None:
    for factory in (list, dict, int, set, collections.Counter):
        back = decode(encode(collections.defaultdict(factory, {"a": factory()})))
        assert back.default_factory is factory and back["b"] == factory()
    odd = collections.defaultdict(lambda: 5, {"a": 1})
    back = decode(encode(odd))
    assert (type(back), back, back.default_factory) == (collections.defaultdict, {"a": 1}, None)


@pytest.mark.promise("P13.95")
def test_the_path_to_a_bad_entry_of_such_a_map_is_named() -> None:
    for value in (collections.OrderedDict({7: print}), collections.Counter({7: print})):  # type: ignore[dict-item]
        with pytest.raises(tw.InvalidArgument, match=r"value\[7\]: a builtin_function_or_method"):
            encode(value)


READER = """
import sys
sys.path.insert(0, sys.argv[1])
import pages
from tidewire.values import decode
for blob in sys.stdin.read().split():
    value = decode(bytes.fromhex(blob))
    print(type(value).__qualname__, value)
"""
PAGES = """
from typing import Generic, TypeVar
import pydantic
T = TypeVar("T")
class Item(pydantic.BaseModel):
    sku: str
class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]
"""


@pytest.mark.promise("P13.96")
def test_a_process_that_has_not_used_a_generic_model_yet_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pages.py").write_text(PAGES)
    monkeypatch.syspath_prepend(str(tmp_path))
    import pages

    values = [
        pages.Page[pages.Item](items=[pages.Item(sku="a")]),
        pages.Page[pages.Page[int]](items=[pages.Page[int](items=[1])]),
        pages.Page[Item](items=[Item(sku="a")]),
    ]
    blobs = [encode(value).hex() for value in values]
    told = subprocess.run(
        [sys.executable, "-c", READER, str(tmp_path)],
        input="\n".join(blobs),
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert told.stderr == ""
    assert told.stdout.splitlines() == [
        "Page[Item] items=[Item(sku='a')]",
        "Page[Page[int]] items=[Page[int](items=[1])]",
        # This module is not imported there.
        "dict {'items': [{'sku': 'a'}]}",
    ]


@pytest.mark.promise("P13.96")
@pytest.mark.parametrize(
    "name",
    [
        lambda here: f"{here}:Page[",
        lambda here: f"{here}:Page[]",
        lambda here: f"{here}:Page[[]]",
        lambda here: f"{here}:Page[{here}:Item",
        lambda here: f"{here}:Page[os:system]",
        lambda here: f"{here}:Page[{here}:Item][{here}:Item]",
        lambda here: f"{here}:Page[{here}:Item, {here}:Item]",
        lambda here: f"{here}:Page[" * 200 + "builtins:int" + "]" * 200,
        lambda here: f"{here}:Page[{'builtins:list[' * 40}builtins:int{']' * 40}]",
        lambda here: f"{here}:Item[builtins:int]",
        lambda here: f"{here}:Nothing[builtins:int]",
        lambda _: "collections:Counter[builtins:int]",
        lambda _: "collections:defaultdict[builtins:eval]",
    ],
)
def test_a_name_that_is_no_type_here_makes_a_plain_map(name: Callable[[str], str]) -> None:
    text = name(__name__).encode()
    content = b"\x92\xda" + len(text).to_bytes(2, "big") + text + b"\x81\xa5items\x91\x01"
    blob = b"\xc9" + len(content).to_bytes(4, "big") + b"\x10" + content
    assert told(decode(blob)) == "builtins.dict {'items': [1]}"
