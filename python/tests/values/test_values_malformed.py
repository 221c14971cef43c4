"""Bytes that are no values: any bytes give a value or a WireError, and take no more memory than
they have.
"""

from __future__ import annotations

import contextlib
import json
import tracemalloc
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_budget import examples
from tidewire.errors import InvalidArgument, WireError
from tidewire.values import decode, encode

VECTORS = json.loads((Path(__file__).parents[3] / "spec/vectors/values.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("vector", VECTORS["malformed"], ids=lambda vector: vector["description"])
def test_golden_malformed_bytes_are_refused(vector: dict[str, Any]) -> None:
    blob = bytes.fromhex(vector["hex"])
    for form in (blob, bytearray(blob)):
        with pytest.raises(WireError, match="data: "):
            decode(form)


SAMPLE = {
    "list": [1, -1, 300, 70_000, 2**40, 1.5, None, True],
    "call": (b"x" * 20, {"limit": 10}),
    "times": [datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1), time(1), timedelta(1)],
    "sets": [{1}, frozenset({(1, 2)})],
    "others": [Decimal("1.5"), UUID(int=1), 2j, bytearray(b"ab"), "é" * 40, {1: {2: {3: []}}}],
    "error": KeyError("missing"),
    "large": [b"y" * 5_000, bytearray(b"z" * 5_001)],
}


def test_a_value_that_is_cut_off_is_an_error_wherever_it_is_cut() -> None:
    blob = encode(SAMPLE)
    for end in range(len(blob)):
        with pytest.raises(WireError, match="data: "):
            decode(blob[:end])
    for more in (b"\0", b"\xc0" * 9):
        with pytest.raises(WireError, match="after its end"):
            decode(blob + more)


@given(st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=examples(400), deadline=None)
def test_changed_bytes_are_a_value_or_a_wire_error(changes: list[tuple[int, int]]) -> None:
    blob = bytearray(encode(SAMPLE))
    small = len(blob) - 10_001
    for place, byte in changes:
        blob[place % small] = byte
    for form in (blob, bytes(blob)):
        with contextlib.suppress(WireError):
            decode(form)


@given(st.binary(max_size=300))
@settings(max_examples=examples(400), deadline=None)
def test_any_bytes_are_a_value_or_a_wire_error(data: bytes) -> None:
    for form in (data, b"\xc1\x01\0\0" + data, b"\xc9\0\0\0" + bytes([len(data) % 256]) + data):
        with contextlib.suppress(WireError):
            decode(form)


def test_announced_lengths_are_not_trusted() -> None:
    nested = (b"\xdd\x00\x0f\x00\x00" * 60) + b"\xc0" * 1_000_000
    one = b"\xdd\xff\xff\xff\xff" + b"\xc0" * 1_000
    table = b"\xc1\x01\0\0" + b"\xff" * 12 + b"\0" * 1_000
    for blob in (nested, one, table, b"\xc6\xff\xff\xff\xff", b"\xdf\x7f\xff\xff\xff" + b"\xc0" * 1_000):
        decode(b"\xc0")
        tracemalloc.start()
        with pytest.raises(WireError):
            decode(blob)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 10 * len(blob) + 200_000


_PRIME = 2**61 - 1
"""What hashes of numbers are taken modulo."""


@pytest.mark.parametrize(
    "key",
    [lambda at: UUID(int=at * _PRIME + 7), lambda at: Decimal(at * _PRIME + 7), lambda at: (Decimal(at * _PRIME + 7),)],
)
def test_keys_of_one_hash_are_refused_before_they_cost_much(key: Any) -> None:
    for made in (dict.fromkeys, set, frozenset):
        few, many = (made([key(at) for at in range(count)]) for count in (64, 65))
        assert decode(encode(few)) == few
        with pytest.raises(WireError, match="more than 64 keys of a set or a map have one hash"):
            decode(encode(many))
    apart = {key(0) if at == 0 else at for at in range(1_000)}
    assert decode(encode(apart)) == apart


def test_a_value_that_is_no_memory_is_refused() -> None:
    for wrong in (None, 3, "text", [b"a"], memoryview(b"abcd")[::2]):
        with pytest.raises(InvalidArgument, match=r"data: .* is not allowed"):
            decode(wrong)  # type: ignore[arg-type]
