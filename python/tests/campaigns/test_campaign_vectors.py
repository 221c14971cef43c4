"""The vectors of campaigns against a second implementation: SipHash in Python, and the Philox of
NumPy.
"""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy
import pytest
import tidewire as tw

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "spec/vectors/campaigns.json").read_text(encoding="utf-8")
)
MASK = 2**64 - 1


def siphash(key: bytes, words: bytes) -> int:
    """Return SipHash-2-4-128 as an integer."""
    k0, k1 = struct.unpack("<2Q", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rotate(word: int, bits: int) -> int:
        return (word << bits | word >> (64 - bits)) & MASK

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0] = (v[0] + v[1]) & MASK
            v[1] = rotate(v[1], 13) ^ v[0]
            v[0] = rotate(v[0], 32)
            v[2] = (v[2] + v[3]) & MASK
            v[3] = rotate(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & MASK
            v[3] = rotate(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & MASK
            v[1] = rotate(v[1], 17) ^ v[2]
            v[2] = rotate(v[2], 32)

    for (word,) in struct.iter_unpack("<Q", words + bytes(7) + bytes([len(words) & 255])):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(4)
    low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(4)
    return low | (v[0] ^ v[1] ^ v[2] ^ v[3]) << 64


def padded(text: str) -> bytes:
    data = text.encode()
    return data + bytes(-len(data) % 8)


def key_of(written: str) -> list[int]:
    bits = siphash(b"tidewire seed 01", struct.pack("<Q", len(written.encode())) + padded(written))
    return [bits & MASK, bits >> 64]


def words_of(key: list[int], run: int, use: int, count: int) -> list[int]:
    # NumPy counts up before it makes a block, so its counter begins one before.
    before = (run << 64 | use << 128) - 1 & 2**256 - 1
    counter = [before >> shift & MASK for shift in range(0, 256, 64)]
    generator = numpy.random.Philox(key=numpy.array(key, numpy.uint64), counter=numpy.array(counter, numpy.uint64))
    return [int(word) for word in generator.random_raw(count)]


def cell(kind: str, value: Any) -> bytes:
    if value is None:
        return struct.pack("<Q", 0)
    tag = 1 + ["integer", "float", "text", "boolean", "time", "json"].index(kind)
    if kind in ("text", "json"):
        return struct.pack("<Q", tag | len(value.encode()) << 8) + padded(value)
    if kind == "float":
        number = float(value)
        bits = 0x7FF8 << 48 if math.isnan(number) else struct.unpack("<Q", struct.pack("<d", number + 0.0))[0]
        return struct.pack("<2Q", tag, bits)
    return struct.pack("<Qq", tag, int(value))


def digest_of(columns: list[dict[str, str]], rows: list[list[Any]]) -> int:
    total = 0
    for run, row, *values in rows:
        cells = b"".join(cell(column["type"], value) for column, value in zip(columns, values, strict=True))
        total += siphash(b"tidewire rows 01", struct.pack("<2Q", int(run), int(row)) + cells)
    return total & 2**128 - 1


def test_siphash_is_that_of_its_authors() -> None:
    assert siphash(bytes(range(16)), b"").to_bytes(16, "little").hex() == "a3817f04ba25a8e66df67214c7550293"


@pytest.mark.parametrize("vector", VECTORS["seeds"], ids=lambda vector: vector["seed"])
def test_keys_and_seeds(vector: dict[str, Any]) -> None:
    key = key_of(vector["seed"])
    assert [f"{word:016x}" for word in key] == vector["key"]
    for run in vector["runs"]:
        index = int(run["run"])
        assert f"{words_of(key, index, 0, 1)[0]:016x}" == run["seed"]
        words = words_of(key, index, 1, len(run["random"]))
        assert [f"{word:016x}" for word in words] == run["random"]
        assert f"{words_of(key, index, 2, 1)[0]:016x}" == run["numpy"]


@pytest.mark.promise("P15.77")
@pytest.mark.parametrize("index", [0, 4, 5, 2**48])
def test_common_random_numbers(index: int) -> None:
    key, scope, replication = key_of("int:-7"), 1 << 64, index // 5
    common = tw.Run(index, campaign_seed=-7, sets=5).common
    assert (common.index, common.seed) == (replication, words_of(key, replication, scope, 1)[0])
    assert [common.random.getrandbits(64) for _ in range(5)] == words_of(key, replication, 1 | scope, 5)
    assert [int(common.numpy.bit_generator.random_raw())] == words_of(key, replication, 2 | scope, 1)  # type: ignore[attr-defined]


@pytest.mark.parametrize("vector", VECTORS["digests"], ids=lambda vector: vector["name"])
def test_digests(vector: dict[str, Any]) -> None:
    assert f"{digest_of(vector['columns'], vector['rows']):032x}" == vector["digest"]
