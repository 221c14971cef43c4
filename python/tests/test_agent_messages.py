"""The written forms of messages: what comes back is what was sent, and what is wrong is named."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from datetime import datetime, timezone
from typing import Any

import msgspec
import pydantic
import pytest
import tidewire as tw
from hypothesis import given, settings
from hypothesis import strategies as st

numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
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
            lambda at: at.replace(tzinfo=timezone.utc).timestamp()
        ),
    },
)
KEPT = ("id", "kind", "sender", "recipients", "topic", "priority", "headers", "delivery", "correlation_id", "reply_to")


@dataclasses.dataclass
class Line:
    """A typed payload within another."""

    item: str
    count: int
    raw: bytes = b""


@dataclasses.dataclass
class Order:
    """A typed payload."""

    lines: list[Line]
    at: datetime


class Quote(msgspec.Struct):
    """The same as a struct."""

    symbol: str
    prices: tuple[float, ...]


class Person(pydantic.BaseModel):
    """The same as a model."""

    name: str
    age: int


@given(plain, fields)
@settings(max_examples=300, deadline=None)
def test_both_forms_come_back_as_what_was_sent(payload: Any, given_fields: dict[str, Any]) -> None:
    message = tw.Message(payload, **given_fields)
    for back in (tw.Message.from_json(message.to_json()), tw.Message.from_msgpack(message.to_msgpack())):
        assert back.payload == payload
        for name in KEPT:
            assert getattr(back, name) == getattr(message, name), name
        assert abs((back.created_at - message.created_at).total_seconds()) < 1e-5


@pytest.mark.parametrize(
    "payload",
    [
        Order([Line("a", 1, b"\0\xff"), Line("b", 2)], datetime(2026, 11, 21, 8, tzinfo=timezone.utc)),
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
def test_what_would_come_back_as_something_else_is_refused_with_its_path(payload: Any, path: str) -> None:
    for write in (tw.Message.to_json, tw.Message.to_msgpack):
        with pytest.raises(tw.InvalidArgument, match=path):
            write(tw.Message(payload))


def test_numbers_that_json_has_no_words_for_travel_in_messagepack() -> None:
    for number in (math.nan, math.inf, -math.inf):
        message = tw.Message({"x": number})
        with pytest.raises(tw.InvalidArgument, match=r"payload\['x'\]: -?(nan|inf) can't be written as JSON"):
            message.to_json()
        assert repr(tw.Message.from_msgpack(message.to_msgpack()).payload["x"]) == repr(number)


def test_a_payload_without_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(tw.InvalidArgument, match="nested deeper than 64 levels"):
        tw.Message(endless).to_json()


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
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_a_message_or_an_invalid_argument(data: bytes) -> None:
    for read in (tw.Message.from_json, tw.Message.from_msgpack):
        with contextlib.suppress(tw.InvalidArgument):
            assert isinstance(read(data), tw.Message)


def test_what_is_not_bytes_is_refused() -> None:
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
