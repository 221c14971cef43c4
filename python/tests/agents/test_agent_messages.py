"""The written forms of messages: what comes back is what was sent, and what is wrong is named."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pydantic
import pytest
import tidewire as tw
from hypothesis import given, settings
from hypothesis import strategies as st
from random_budget import examples

numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
zones = st.integers(-1_439, 1_439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
zoned = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=zones)
binary = st.recursive(
    st.none() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary() | zoned,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
fields = st.fixed_dictionaries(
    {},
    optional={
        "kind": st.sampled_from(["request", "response", "event", "broadcast", "context", "status", "error"]),
        "sender": st.text(max_size=20),
        "recipients": st.lists(st.text(max_size=20), max_size=4).map(tuple),
        "topic": st.none() | st.text(max_size=20),
        "priority": st.sampled_from(["urgent", "high", "normal", "low"]),
        "headers": st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=3),
        "delivery": st.integers(1, 1_000_000),
        "correlation_id": st.none() | st.text(max_size=20),
        "reply_to": st.none() | st.text(max_size=20),
        "created": st.datetimes(datetime(1971, 1, 1), datetime(9000, 1, 1)).map(
            lambda at: at.replace(tzinfo=UTC).timestamp()
        ),
    },
)
KEPT = ("id", "kind", "sender", "recipients", "topic", "priority", "headers", "delivery", "correlation_id", "reply_to")


@dataclasses.dataclass
class Line:
    item: str
    count: int
    raw: bytes = b""


@dataclasses.dataclass
class Order:
    lines: list[Line]
    at: datetime


class Quote(msgspec.Struct):
    symbol: str
    prices: tuple[float, ...]


class Person(pydantic.BaseModel):
    name: str
    age: int


@dataclasses.dataclass
class Tree:
    """A typed payload that holds others of its kind, and times with and without a zone."""

    at: datetime
    amounts: dict[str, int]
    quote: Quote
    parts: list[Tree] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        if "" in self.amounts:
            raise KeyError("a name is missing")


trees = st.recursive(
    st.builds(
        Tree,
        st.datetimes() | zoned,
        st.dictionaries(st.text(min_size=1), st.integers(-(2**63), 2**64 - 1), max_size=3),
        st.builds(Quote, st.text(), st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=3).map(tuple)),
    ),
    lambda inner: st.builds(
        lambda tree, parts: dataclasses.replace(tree, parts=parts), inner, st.lists(inner, max_size=3)
    ),
    max_leaves=5,
)


@given(plain, fields)
@settings(max_examples=examples(100), deadline=None)
def test_both_forms_come_back_as_what_was_sent(payload: Any, given_fields: dict[str, Any]) -> None:
    message = tw.Message(payload, **given_fields)
    for back in (tw.Message.from_json(message.to_json()), tw.Message.from_msgpack(message.to_msgpack())):
        assert back.payload == payload
        for name in KEPT:
            assert getattr(back, name) == getattr(message, name), name
        assert abs((back.created_at - message.created_at).total_seconds()) < 1e-5


@given(binary)
@settings(max_examples=examples(100), deadline=None)
def test_messagepack_brings_back_bytes_times_and_all_integers_of_64_bits(payload: Any) -> None:
    back = tw.Message.from_msgpack(tw.Message(payload).to_msgpack()).payload
    assert back == payload
    assert type(back) is type(payload)


@given(trees)
@settings(max_examples=examples(50), deadline=None)
def test_a_nested_typed_payload_comes_back_equal_in_both_forms(tree: Tree) -> None:
    message = tw.Message(tree)
    for back in (tw.Message.from_json(message.to_json()), tw.Message.from_msgpack(message.to_msgpack())):
        assert back.payload == tree
        assert back.payload.at.utcoffset() is None or tree.at.utcoffset() is not None


@pytest.mark.parametrize(
    "payload",
    [
        Order([Line("a", 1, b"\0\xff"), Line("b", 2)], datetime(2026, 11, 21, 8, tzinfo=UTC)),
        Quote("X", (1.5, 2.0)),
        Person(name="Ada", age=36),
    ],
    ids=lambda payload: type(payload).__name__,
)
def test_a_typed_payload_comes_back_as_its_type(payload: Any) -> None:
    message = tw.Message(payload)
    assert json.loads(tw.Message(Quote("X", (1.0,))).to_json())["payload_type"] == f"{__name__}:Quote"
    back = tw.Message.from_msgpack(message.to_msgpack()).payload
    assert type(back) is type(payload)
    assert back == payload
    if not isinstance(payload, Order):
        assert tw.Message.from_json(message.to_json()).payload == payload


def test_a_type_that_is_not_known_here_stays_a_map_and_nothing_is_imported() -> None:
    form = json.loads(tw.Message(Quote("X", (1.0,))).to_json())
    for name in ("nowhere.at_all:Quote", "os:system", "builtins:eval", f"{__name__}:json", "antigravity:fly"):
        back = tw.Message.from_json(json.dumps({**form, "payload_type": name}))
        assert back.payload == {"symbol": "X", "prices": [1.0]}
    import sys

    assert "antigravity" not in sys.modules


def test_bytes_travel_in_messagepack_and_are_refused_by_json() -> None:
    message = tw.Message({"a": [b"\0\xff"]})
    assert tw.Message.from_msgpack(message.to_msgpack()).payload == {"a": [b"\0\xff"]}
    with pytest.raises(
        tw.InvalidArgument, match=r"payload\['a'\]\[0\]: a bytes can't be written as JSON: use MessagePack"
    ):
        message.to_json()


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({"a": {1, 2}}, r"payload\['a'\]: a set"),
        ([object()], r"payload\[0\]: a object"),
        ({3: 1}, r"payload: the key 3 is not a string"),
        (lambda: None, r"payload: a function"),
        ([2**70], r"payload\[0\]: 1180591620717411303424"),
        ("\ud800", r"payload: "),
    ],
)
def test_a_payload_that_would_change_on_its_way_is_refused_with_its_path(payload: Any, path: str) -> None:
    for write in (tw.Message.to_json, tw.Message.to_msgpack):
        with pytest.raises(tw.InvalidArgument, match=path):
            write(tw.Message(payload))


def test_numbers_that_json_has_no_words_for_travel_in_messagepack() -> None:
    for number in (math.nan, math.inf, -math.inf):
        message = tw.Message({"x": number})
        with pytest.raises(tw.InvalidArgument, match=r"payload\['x'\]: -?(nan|inf) can't be written as JSON"):
            message.to_json()
        assert repr(tw.Message.from_msgpack(message.to_msgpack()).payload["x"]) == repr(number)


def test_a_time_is_refused_where_it_would_come_back_as_text() -> None:
    zoned, naive = datetime(2026, 11, 21, tzinfo=UTC), datetime(2026, 11, 21)
    for at in (zoned, naive):
        with pytest.raises(tw.InvalidArgument, match=r"payload\['at'\]: JSON has no times: use MessagePack"):
            tw.Message({"at": at}).to_json()
    with pytest.raises(tw.InvalidArgument, match=r"payload\[0\]: 2026-11-21 00:00:00 has no zone"):
        tw.Message([naive]).to_msgpack()


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (tw.Message(1, created=math.nan), "message: can't be written"),
        (tw.Message(1, created=1e30), "message: can't be written"),
        (tw.Message(1, headers=None), "message: can't be written"),  # type: ignore[arg-type]
        (tw.Message(Quote("X", (object(),))), "message: can't be written: .*object"),  # type: ignore[arg-type]
    ],
)
def test_a_message_that_has_no_form_is_refused(message: tw.Message, named: str) -> None:
    for write in (tw.Message.to_json, tw.Message.to_msgpack):
        with pytest.raises(tw.InvalidArgument, match=named):
            write(message)


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_a_time_at_the_end_of_the_calendar_is_read_or_refused(at: str) -> None:
    with contextlib.suppress(tw.InvalidArgument):
        tw.Message.from_json(json.dumps({**GOOD, "created_at": at}))


def test_a_constructor_that_fails_is_an_invalid_argument() -> None:
    tree = Tree(datetime(2026, 11, 21), {"a": 1}, Quote("X", ()))
    form = json.loads(tw.Message(tree).to_json())
    form["payload"]["amounts"] = {"": 1}
    with pytest.raises(tw.InvalidArgument, match=r"payload: not a .*Tree: 'a name is missing'"):
        tw.Message.from_json(json.dumps(form))


def nested(levels: int, lists: bool) -> Any:
    """Return a value within so many lists or maps."""
    value: Any = 1
    for _ in range(levels):
        value = [value] if lists else {"a": value}
    return value


@pytest.mark.parametrize("lists", [True, False])
@pytest.mark.parametrize("levels", [64, 65])
def test_readers_take_exactly_the_depth_that_writers_write(levels: int, lists: bool) -> None:
    payload = nested(levels, lists)
    form = {**GOOD, "payload": payload}
    written = (lambda: tw.Message(payload).to_json(), lambda: tw.Message(payload).to_msgpack())
    read = (
        lambda: tw.Message.from_json(json.dumps(form)),
        lambda: tw.Message.from_msgpack(msgspec.msgpack.encode({**form, "created_at": datetime.now(UTC)})),
    )
    for call in (*written, *read):
        if levels == 65:
            with pytest.raises(tw.InvalidArgument, match="nested deeper than 64 levels"):
                call()
        else:
            call()


GOOD = {"id": "1", "kind": "event", "created_at": "2026-11-21T08:00:00Z"}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"kind": "shout"}, "kind"),
        ({"kind": 3}, "kind"),
        ({"id": None}, "id"),
        ({"created_at": "yesterday"}, "created_at"),
        ({"created_at": "2026-11-21T08:00:00"}, "created_at"),
        ({"priority": "soonest"}, "priority"),
        ({"delivery": 0}, "delivery"),
        ({"delivery": 1.5}, "delivery"),
        ({"ttl_ms": -1}, "ttl_ms"),
        ({"ttl_ms": "long"}, "ttl_ms"),
        ({"recipients": "a"}, "recipients"),
        ({"headers": {"a": 1}}, "headers"),
        ({"topic": 5}, "topic"),
        ({"payload": {"symbol": 1}, "payload_type": f"{__name__}:Quote"}, "payload"),
        ({"payload": [], "payload_type": f"{__name__}:Person"}, "payload"),
    ],
)
def test_a_malformed_form_is_refused_with_its_field(change: dict[str, Any], named: str) -> None:
    form = {**GOOD, **change}
    for read in (
        lambda: tw.Message.from_json(json.dumps(form)),
        lambda: tw.Message.from_msgpack(msgspec.msgpack.encode(form)),
    ):
        with pytest.raises(tw.InvalidArgument, match=named):
            read()


def test_a_missing_field_is_named_and_an_unknown_one_is_skipped() -> None:
    for name in GOOD:
        with pytest.raises(tw.InvalidArgument, match=name):
            tw.Message.from_json(json.dumps({key: value for key, value in GOOD.items() if key != name}))
    assert tw.Message.from_json(json.dumps({**GOOD, "colour": "blue"})).kind == "event"


@given(st.binary(max_size=200))
@settings(max_examples=examples(100), deadline=None)
def test_any_bytes_are_a_message_or_an_invalid_argument(data: bytes) -> None:
    for read in (tw.Message.from_json, tw.Message.from_msgpack):
        with contextlib.suppress(tw.InvalidArgument):
            assert isinstance(read(data), tw.Message)


@given(
    st.sampled_from([Quote("X", (1.0,)), Person(name="Ada", age=36), {"a": [1, "x", None]}]),
    st.floats(0, 1),
    st.integers(0, 4),
    st.binary(max_size=4),
)
@settings(max_examples=examples(200), deadline=None)
def test_a_form_with_a_few_wrong_bytes_is_a_message_or_an_invalid_argument(
    payload: Any, place: float, taken: int, put: bytes
) -> None:
    message = tw.Message(payload, created=1e9, given_id="1", ttl=60.0)
    for write, read in ((message.to_json, tw.Message.from_json), (message.to_msgpack, tw.Message.from_msgpack)):
        form = bytearray(write())
        at = int(place * len(form))
        form[at : at + taken] = put
        with contextlib.suppress(tw.InvalidArgument):
            assert isinstance(read(bytes(form)), tw.Message)


def test_a_message_that_is_not_bytes_is_refused() -> None:
    for wrong in (None, 3, {}, object()):
        with pytest.raises(tw.InvalidArgument, match="data"):
            tw.Message.from_json(wrong)  # type: ignore[arg-type]


def test_time_to_live_is_counted_from_the_creation() -> None:
    old = {**GOOD, "created_at": "2020-01-01T00:00:00Z", "ttl_ms": 1_000}
    assert tw.Message.from_json(json.dumps(old)).expired
    fresh = tw.Message("x")
    fresh.live_for(3_600)
    back = tw.Message.from_json(fresh.to_json())
    assert not back.expired
    assert back.ttl == 3_600
