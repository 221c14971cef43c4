"""Values between processes: what comes back is what was sent, and other bytes are an error."""

from __future__ import annotations

import json
import math
import threading
import tracemalloc
from collections import Counter, deque
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_budget import examples
from tidewire.errors import InvalidArgument
from tidewire.values import decode, encode

VECTORS = json.loads((Path(__file__).parents[3] / "spec/vectors/values.json").read_text(encoding="utf-8"))

offsets = st.timedeltas(timedelta(days=-1, microseconds=1), timedelta(days=1, microseconds=-1)).map(timezone)
zones = st.none() | st.just(UTC) | offsets
plain = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text()
single = (
    plain
    | st.binary()
    | st.binary(min_size=4_000, max_size=4_200)
    | st.datetimes(timezones=zones)
    | st.dates()
    | st.times(timezones=st.none() | offsets)
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.complex_numbers(allow_nan=False)
)
hashable = st.recursive(
    single, lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3), max_leaves=5
)
# Not in sets and keys: Python finds a time in the hour that a zone repeats unequal to the same
# instant in any other zone.
named_zones = st.datetimes(timezones=st.timezones())
values = st.recursive(
    single | named_zones | st.binary(max_size=5_000).map(bytearray),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(hashable, inner, max_size=5)
        | st.sets(hashable, max_size=4)
        | st.frozensets(hashable, max_size=4)
    ),
    max_leaves=20,
)


def same(left: Any, right: Any) -> bool:
    """True if two values are equal and of the same types all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, (datetime, time)):
        bare = [at.replace(tzinfo=None, fold=0) for at in (left, right)]
        return bare[0] == bare[1] and left.utcoffset() == right.utcoffset()
    return bool(left == right) and not (isinstance(left, Decimal) and str(left) != str(right))


@given(values)
@settings(max_examples=examples(80), deadline=None)
def test_a_value_comes_back_unchanged(value: Any) -> None:
    blob = encode(value)
    for form in (blob, bytearray(blob), memoryview(blob)):
        assert same(decode(form), value)


shared = st.recursive(
    plain | st.binary() | st.datetimes(timezones=st.just(UTC)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(shared)
@settings(max_examples=examples(50), deadline=None)
def test_values_that_messagepack_has_are_written_as_others_write_them(value: Any) -> None:
    assert encode(value) == msgspec.msgpack.encode(value)
    assert decode(encode(value)) == msgspec.msgpack.decode(encode(value))


GOLDEN = {
    "nil": None,
    "true": True,
    "small int": 127,
    "negative int": -33,
    "largest int": 2**64 - 1,
    "smallest int": -(2**63),
    "float": 1.5,
    "infinity": math.inf,
    "text": "fée",
    "bytes": b"\x00\xff",
    "bytearray": bytearray(b"\x00\xff\x01"),
    "list": [1, "a", [None]],
    "map": {"b": 1, "a": 2, 3: "number", (1, 2): "tuple"},
    "tuple": (1, "a"),
    "empty tuple": (),
    "set": {7},
    "frozenset": frozenset({"x"}),
    "UTC, whole seconds": datetime(2026, 11, 21, 8, 0, tzinfo=UTC),
    "UTC, microseconds": datetime(2026, 11, 21, 8, 0, 0, 123456, tzinfo=UTC),
    "UTC before 1970": datetime(1969, 12, 31, 23, 59, 59, 500000, tzinfo=UTC),
    "moment": datetime(2026, 11, 21, 8, 0, tzinfo=timezone(timedelta(hours=-5))),
    "local time": datetime(2026, 11, 21, 8, 0),
    "date": date(2026, 11, 21),
    "date before 1970": date(1, 1, 1),
    "time of day": time(8, 30, 0, 1),
    "time of day with offset": time(8, 30, tzinfo=timezone(timedelta(hours=2))),
    "duration": timedelta(days=-1, seconds=5, microseconds=7),
    "decimal": Decimal("-1.50"),
    "UUID": UUID("12345678-1234-5678-1234-567812345678"),
    "complex": 1 - 2j,
    "record": {"symbol": "X", "qty": 3},
    "map with a type": Counter({"a": 2, 3: 1}),
    "enum": "red",
    "buffers": [b"first", bytearray(b"2nd")],
}


@pytest.mark.parametrize("vector", VECTORS["values"], ids=lambda vector: vector["name"])
def test_golden_bytes_are_read_and_written(vector: dict[str, Any]) -> None:
    blob, value = bytes.fromhex(vector["hex"]), GOLDEN[vector["name"]]
    assert same(decode(blob), value)
    if vector["written"]:
        assert encode(value) == blob


def test_every_golden_value_has_its_bytes() -> None:
    assert [vector["name"] for vector in VECTORS["values"]] == list(GOLDEN)


@pytest.mark.parametrize("fold", [0, 1])
def test_the_instant_of_a_time_in_a_repeated_hour_is_kept(fold: int) -> None:
    at = datetime(2026, 10, 25, 2, 30, fold=fold, tzinfo=ZoneInfo("Europe/Paris"))
    back = decode(encode({at}))
    assert [time.utcoffset() for time in back] == [timedelta(hours=2 - fold)]
    assert [time.timestamp() for time in back] == [at.timestamp()]


def test_nan_and_the_sign_of_zero_travel() -> None:
    assert math.isnan(decode(encode(math.nan)))
    assert math.copysign(1, decode(encode(-0.0))) == -1
    assert decode(encode(Decimal("sNaN"))).is_snan()


@pytest.mark.parametrize("length", [0, 1, 4_096, 4_097, 4_104, 70_000])
@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_long_bytes_are_buffers_at_multiples_of_eight(kind: Any, length: int) -> None:
    value = [kind(b"ab" * length)[:length], b"x" * length, "end"]
    blob = encode(value)
    assert (blob[0] == 0xC1) == (length > 4_096)
    assert same(decode(blob), value)
    if length > 4_096:
        head = int.from_bytes(blob[8:16], "big")
        start = -(-(16 + 2 * 8 + head) // 8) * 8
        assert blob[start : start + length] == value[0]
        assert blob[-length:] == value[1]
        assert (len(blob) - length) % 8 == 0


@pytest.mark.parametrize("view", [b"abc", b"x" * 9_000], ids=len)
def test_a_memoryview_travels_as_bytes(view: bytes) -> None:
    assert decode(encode(memoryview(view))) == view
    assert decode(encode(memoryview(view)[::2])) == view[::2]
    assert decode(encode(memoryview(bytearray(view)).cast("B", (len(view), 1)))) == view


def test_subclasses_of_built_in_types_travel_as_those() -> None:
    class Name(str):
        """Text with a type of its own."""

    class Many(list[int]):
        """A list with a type of its own."""

    class Words(Counter[str]):
        """A map with a type of its own."""

    assert same(decode(encode([Name("a"), Many([1]), Words("aab")])), ["a", [1], {"a": 2, "b": 1}])
    with pytest.raises(InvalidArgument, match="value: a deque"):
        encode(deque([1]))


def test_times_that_mean_nothing_elsewhere_are_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"value\[0\]: the zone of this time has no offset without a date"):
        encode([time(1, tzinfo=ZoneInfo("Europe/Paris"))])


def test_long_bytes_are_copied_once() -> None:
    value = {"a": b"x" * 8_000_000, "b": bytearray(8_000_000)}
    encode(value)
    tracemalloc.start()
    blob = encode(value)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 16_000_000 < peak < 16_100_000
    assert decode(blob) == value


def test_threads_do_not_disturb_each_other() -> None:
    failures: list[BaseException] = []
    barrier = threading.Barrier(8)

    def work(number: int) -> None:
        try:
            barrier.wait(30)
            for step in range(300):
                value = {f"key {number} {step}": [date(2026, 1, 1), number, (step, {b"z" * 5_000})]}
                assert same(decode(encode(value)), value)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert failures == []
