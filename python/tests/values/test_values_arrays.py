"""NumPy arrays and scalars between processes: shape, dtype and order are kept, and nothing is
copied that need not be.
"""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_budget import examples
from tidewire.errors import InvalidArgument, WireError
from tidewire.values import decode, encode

np = pytest.importorskip("numpy")
from hypothesis.extra import numpy as arrays

dtypes = (
    arrays.boolean_dtypes()
    | arrays.integer_dtypes(endianness="?")
    | arrays.unsigned_integer_dtypes(endianness="?")
    | arrays.floating_dtypes(endianness="?", sizes=(16, 32, 64))
    | arrays.complex_number_dtypes(endianness="?", sizes=(64, 128))
    | arrays.datetime64_dtypes(endianness="?")
    | arrays.timedelta64_dtypes(endianness="?")
    | arrays.unicode_string_dtypes(endianness="?", min_len=1, max_len=5)
    | arrays.byte_string_dtypes(min_len=1, max_len=5)
)
shapes = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=12)


def same(left: Any, right: Any) -> bool:
    """True if two arrays hold the same bits in the same shape, dtype and order."""
    return (
        type(left) is type(right)
        and left.dtype == right.dtype
        and left.dtype.str == right.dtype.str
        and left.shape == right.shape
        and left.tobytes() == right.tobytes()
    )


@given(dtypes.flatmap(lambda dtype: arrays.arrays(dtype, shapes)), st.sampled_from("CF"), st.booleans())
@settings(max_examples=examples(120), deadline=None)
def test_an_array_comes_back_as_it_was(array: Any, order: str, reverse: bool) -> None:
    array = np.asarray(array, order=order)
    if reverse and array.ndim:
        array = array[::-1]
    blob = encode({"a": [array]})
    for form in (blob, bytearray(blob), memoryview(blob)):
        back = decode(form)["a"][0]
        assert same(back, array)
        assert back.flags.writeable
        if array.flags.c_contiguous or array.flags.f_contiguous:
            assert back.flags.c_contiguous == array.flags.c_contiguous
            assert back.flags.f_contiguous == array.flags.f_contiguous


@pytest.mark.parametrize(
    "array",
    [
        np.array(3.5),
        np.array(True),
        np.empty((0, 3), "<f4"),
        np.zeros((3, 0, 2), order="F"),
        np.arange(10_000.0).reshape(100, 100).T,
        np.arange(10_000)[::3],
        np.arange(24).reshape(2, 3, 4).transpose(1, 2, 0),
        np.arange(5, dtype=">i4"),
        np.arange(5000, dtype=">f8"),
        np.array([1, 2], "float16"),
        np.array(["2026-11-21", "NaT"], "datetime64[ns]"),
        np.array(["NaT"], "datetime64"),
        np.array([1], "timedelta64[25us]"),
        np.array(["ab", "ü"]),
        np.array(["", ""]),
        np.array([b"a\0b"]),
        np.broadcast_to(np.arange(3), (4, 3)),
    ],
    ids=lambda array: f"{array.dtype} {array.shape}",
)
def test_arrays_of_every_form(array: Any) -> None:
    for back in (decode(encode(array)), decode(bytearray(encode(array)))):
        assert same(back, array)
        assert back.flags.writeable
        assert back.flags.aligned


def test_a_memory_map_comes_back_as_an_array(tmp_path: Any) -> None:
    mapped = np.memmap(tmp_path / "map", "<i8", "w+", shape=(3, 300))
    mapped[:] = 7
    assert same(decode(encode(mapped)), np.full((3, 300), 7, "<i8"))


@pytest.mark.parametrize(
    "scalar",
    [
        np.float64(1.5),
        np.float32("nan"),
        np.float16(1),
        np.int8(-3),
        np.uint64(2**64 - 1),
        np.bool_(True),
        np.complex64(1 - 2j),
        np.datetime64("2026-11-21T08:00", "us"),
        np.datetime64("NaT"),
        np.timedelta64(5, "D"),
        np.str_("ü\0"),
        np.str_(""),
        np.bytes_(b"a\0"),
    ],
    ids=lambda scalar: f"{type(scalar).__name__} {scalar!r}",
)
def test_a_scalar_comes_back_as_its_type(scalar: Any) -> None:
    back = decode(encode((scalar,)))[0]
    assert type(back) is type(scalar)
    assert back.dtype == scalar.dtype
    assert back.tobytes() == scalar.tobytes()
    assert decode(encode({scalar: 1})).popitem()[0].tobytes() == scalar.tobytes()


@pytest.mark.parametrize(
    ("array", "why"),
    [
        (np.array([object()]), "an array of object can't be sent"),
        (np.zeros(2, [("a", "i4")]), r"an array of \[\('a', '<i4'\)\] can't be sent: .* fields as arrays of their own"),
        (np.zeros(2, "V3"), "can't be sent"),
        (np.zeros(2, np.longdouble), "an array of float128 can't be sent"),
        (np.longdouble(1), "float128 can't be sent"),
        (np.ma.masked_array([1], [True]), "a MaskedArray"),
        (np.zeros(2).view(np.recarray), "a recarray"),
        (np.dtype("f8"), "can't be sent"),
    ],
    ids=lambda case: str(case)[:20].replace("\n", ""),
)
def test_an_array_that_other_languages_read_differently_is_refused(array: Any, why: str) -> None:
    with pytest.raises(InvalidArgument, match=r"value\['x'\]\[1\]: .*" + why):
        encode({"x": [1, array]})


def test_a_large_array_is_copied_once_by_the_writer_and_not_by_the_reader() -> None:
    array = np.arange(1_000_000.0)
    encode(array)
    tracemalloc.start()
    blob = bytearray(encode(array))
    written = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    back = decode(blob)
    read = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    # The bytearray of this test is the second copy.
    assert 16_000_000 < written < 16_100_000
    assert read < 100_000
    assert same(back, array)
    back[0] = 5
    assert blob[-array.nbytes :][:8] == np.float64(5).tobytes()


def test_an_array_from_bytes_is_a_copy_of_its_own() -> None:
    blob = encode(np.arange(1_000))
    back = decode(blob)
    back[0] = 5
    assert decode(blob)[0] == 0


@pytest.mark.parametrize(
    "parts",
    [
        ["O", [1], "C", b"x" * 8],
        ["<f8", [1], "C", b"x" * 7],
        ["<f8", [2**62, 2], "C", b""],
        ["<f8", [0, 2**61, 2**61], "C", b""],
        ["<f8", [-1], "C", b""],
        ["<f8", [True], "C", b"x" * 8],
        ["<f8", [1.0], "C", b"x" * 8],
        ["<f8", [1] * 100, "C", b"x" * 8],
        ["<f8", [1], "A", b"x" * 8],
        ["<f8", [1], "C", "x" * 8],
        ["<f8,<f8", [1], "C", b"x" * 16],
        ["<M8[years]", [1], "C", b"x" * 8],
        ["<U999999999", [0], "F", b""],
        [8, [1], "C", b"x" * 8],
        ["<f8", 1, "C", b"x" * 8],
        ["<f8", [1], "C"],
    ],
    ids=str,
)
def test_arrays_that_contradict_themselves_are_a_wire_error(parts: list[Any]) -> None:
    content = encode(parts)
    blob = b"\xc9" + len(content).to_bytes(4, "big") + b"\x13" + content
    try:
        back = decode(blob)
    except WireError as error:
        assert "data: " in str(error)
    else:
        assert back.nbytes == 0


@given(st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=3))
@settings(max_examples=examples(250), deadline=None)
def test_changed_bytes_are_a_value_or_a_wire_error(changes: list[tuple[int, int]]) -> None:
    blob = bytearray(
        encode([np.arange(4, dtype="<i2"), np.float32(1), np.array(["2026"], "M8[Y]"), np.zeros((2, 300))])
    )
    for place, byte in changes:
        blob[place % (len(blob) - 4_800)] = byte
    for form in (blob, bytes(blob)):
        try:
            decode(form)
        except WireError as error:
            assert str(error).startswith("data: ")
