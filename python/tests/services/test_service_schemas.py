"""Services: the schemas that others see."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import decimal
import enum
import json
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest
import tidewire as tw


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


@dataclasses.dataclass
class Order:
    """An order."""

    symbol: str
    qty: int = 1
    inner: Order | None = None


class Item(msgspec.Struct):
    name: str


class Shape(TypedDict):
    width: int


class Pair(NamedTuple):
    left: int
    right: str


class Opaque:
    pass


ORDER = {
    "Order": {
        "title": "Order",
        "description": "An order.",
        "type": "object",
        "properties": {
            "symbol": {"type": "string"},
            "qty": {"type": "integer", "default": 1},
            "inner": {"anyOf": [{"$ref": "#/$defs/Order"}, {"type": "null"}], "default": None},
        },
        "required": ["symbol"],
        "additionalProperties": False,
    }
}


def schema_of(hint: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    def take(value: Any) -> None: ...

    take.__annotations__["value"] = hint
    with tw.Node() as node:
        info = node.serve({"take": take}, name="taking").info.methods[0]
    made = dict(info.parameters["properties"]["value"])
    assert "value" in info.parameters["required"]
    json.dumps(info.to_dict())
    return {**made, **({"$defs": info.parameters["$defs"]} if "$defs" in info.parameters else {})}, info.notes


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (None, {"type": "null"}),
        (bool, {"type": "boolean"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (str, {"type": "string"}),
        (bytes, {"type": "string", "contentEncoding": "base64"}),
        (Any, {}),
        (object, {}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (
            tuple[int, str],
            {
                "type": "array",
                "minItems": 2,
                "maxItems": 2,
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "items": False,
            },
        ),
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (datetime.date, {"type": "string", "format": "date"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (decimal.Decimal, {"type": "string", "format": "decimal"}),
        (Annotated[int, "How many."], {"type": "integer", "description": "How many."}),
        (Annotated[int, msgspec.Meta(ge=1)], {"type": "integer", "minimum": 1}),
        (AsyncIterator[int], {"type": "array", "items": {"type": "integer"}, "x-stream": True}),
        (Side, {"$ref": "#/$defs/Side", "$defs": {"Side": {"title": "Side", "enum": ["buy", "sell"]}}}),
        (Order, {"$ref": "#/$defs/Order", "$defs": ORDER}),
        (list[Order], {"type": "array", "items": {"$ref": "#/$defs/Order"}, "$defs": ORDER}),
    ],
)
def test_types_have_schemas(hint: Any, schema: dict[str, Any]) -> None:
    assert schema_of(hint) == (schema, ())


@pytest.mark.parametrize("kind", [Item, Shape, Pair])
def test_types_with_fields_are_defined_once(kind: type) -> None:
    made, notes = schema_of(dict[str, list[kind]])  # type: ignore[valid-type]
    assert made["additionalProperties"]["items"] == {"$ref": f"#/$defs/{kind.__name__}"}
    assert made["$defs"][kind.__name__]["title"] == kind.__name__
    assert notes == ()


def test_members_of_a_union_that_look_alike_are_written_one_by_one() -> None:
    made, notes = schema_of(Order | Item)
    assert made["anyOf"] == [{"$ref": "#/$defs/Order"}, {"$ref": "#/$defs/Item"}]
    assert set(made["$defs"]) == {"Order", "Item"}
    assert notes == ()


def test_unknown_types_say_nothing_and_are_noted() -> None:
    assert schema_of(Opaque) == ({}, ("value: Opaque has no schema",))
    assert schema_of(list[Opaque]) == ({"type": "array", "items": {}}, ("value: Opaque has no schema",))
    assert schema_of("NotThere")[1] == ("value: NotThere could not be found",)


def test_pydantic_models_have_their_own_schema() -> None:
    pydantic = pytest.importorskip("pydantic")
    leaf = pydantic.create_model("Leaf", n=(int, ...))
    tree = pydantic.create_model("Tree", leaf=(leaf, ...))
    made, notes = schema_of(list[tree])
    assert made["items"]["properties"]["leaf"] == {"$ref": "#/$defs/Leaf"}
    assert made["$defs"]["Leaf"]["properties"]["n"]["type"] == "integer"
    assert notes == ()


class Shop(tw.Service, visibility="public"):
    """Sells things.

    At prices."""

    @tw.method(idempotent=True, timeout=2.0)
    async def buy(self, order: Order, *coupons: str, gift: bool = False, **extra: int) -> Item:
        """Buy something.

        It is sent at once.

        Args:
            order: What to buy,
                and how many.
            gift (bool): Whether it is wrapped.

        Returns:
            The item.
        """
        raise NotImplementedError

    @tw.method(visibility="node")
    async def feed(self) -> AsyncIterator[Item]:
        yield Item("")

    @tw.method
    def plain_feed(self) -> Iterator[int]:
        yield 1

    @tw.method
    def bare(self, value, other=3): ...  # type: ignore[no-untyped-def]

    @tw.on("orders.*", queue="shop")
    async def on_order(self, order: Order) -> None:
        """Note an order."""


def test_a_service_describes_itself(node: tw.Node) -> None:
    served = node.serve(Shop(), instance="one")
    node.serve(Shop(), instance="two")
    (info,) = asyncio.run(node.services())
    assert (info.name, info.description, info.visibility) == ("shop", "Sells things.", "public")
    assert info.instances == ("one", "two")
    assert served.info.instances == ("one",)
    buy, feed, plain_feed, bare = info.methods
    assert (buy.description, buy.idempotent, buy.timeout, buy.stream) == ("Buy something.", True, 2.0, False)
    assert buy.parameters == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "order": {"$ref": "#/$defs/Order", "description": "What to buy, and how many."},
            "gift": {"type": "boolean", "default": False, "description": "Whether it is wrapped.", "x-keyword": True},
            "coupons": {"type": "array", "items": {"type": "string"}, "x-rest": True},
        },
        "required": ["order"],
        "additionalProperties": {"type": "integer"},
        "$defs": ORDER,
    }
    assert buy.result["$ref"] == "#/$defs/Item"
    assert (feed.stream, feed.result["$ref"], feed.visibility) == (True, "#/$defs/Item", "node")
    assert (plain_feed.stream, plain_feed.result) == (True, {"type": "integer"})
    assert bare.parameters["properties"] == {"value": {}, "other": {"default": 3}}
    (event,) = info.events
    assert (event.subject, event.queue, event.method, event.description) == (
        "orders.*",
        "shop",
        "on_order",
        "Note an order.",
    )
    assert event.message == {"$ref": "#/$defs/Order", "$defs": ORDER}
    assert isinstance(info, tw.ServiceInfo)
    assert json.loads(json.dumps(info.to_dict()))["methods"][0]["name"] == "buy"
    with pytest.raises(dataclasses.FrozenInstanceError):
        info.name = "other"  # type: ignore[misc]


async def test_services_are_listed_by_name(node: tw.Node) -> None:
    assert not await node.services()
    later = node.serve(Shop(), name="b")
    node.serve(Shop(), name="a")
    assert [info.name for info in await node.services()] == ["a", "b"]
    await later.stop()
    assert [info.name for info in await node.services()] == ["a"]
