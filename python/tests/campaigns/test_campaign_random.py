"""The random numbers of a run: a full `random.Random`, and a generator of NumPy, on the documented
streams; the vectors of campaigns against a second implementation.
"""

from __future__ import annotations

import copy
import json
import math
import pickle
import random
import statistics
import struct
from pathlib import Path
from typing import Any

import numpy
import pytest
import tidewire as tw

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "spec/vectors/campaigns.json").read_text(encoding="utf-8")
)


def seed_of(written: str) -> int | str:
    kind, _, value = written.partition(":")
    return int(value) if kind == "int" else value


@pytest.mark.promise("P15.2")
@pytest.mark.parametrize("vector", VECTORS["seeds"], ids=lambda vector: vector["seed"])
def test_runs_draw_the_numbers_of_the_vectors(vector: dict[str, Any]) -> None:
    for run in vector["runs"]:
        made = tw.Run(int(run["run"]), campaign_seed=seed_of(vector["seed"]))
        assert f"{made.seed:016x}" == run["seed"]
        words = [int(word, 16) for word in run["random"]]
        assert [made.random.getrandbits(64) for _ in words] == words
        again = tw.Run(int(run["run"]), campaign_seed=seed_of(vector["seed"]))
        assert [again.random.random() for _ in words] == [(word >> 11) * 2.0**-53 for word in words]
        assert made.numpy.bit_generator.random_raw() == int(run["numpy"], 16)  # type: ignore[attr-defined]


def test_bits_come_from_words_the_lowest_first() -> None:
    words = [tw.Run(1).random.getrandbits(64)]
    stream = tw.Run(1).random
    words = [stream.getrandbits(64) for _ in range(3)]
    for bits in (1, 7, 63, 64):
        assert tw.Run(1).random.getrandbits(bits) == words[0] >> (64 - bits)
    assert tw.Run(1).random.getrandbits(0) == 0
    assert tw.Run(1).random.getrandbits(100) == words[0] | (words[1] >> 28) << 64
    assert tw.Run(1).random.getrandbits(128) == words[0] | words[1] << 64
    with pytest.raises(ValueError, match="non-negative"):
        tw.Run(1).random.getrandbits(-1)
    with pytest.raises(OverflowError):
        tw.Run(1).random.getrandbits(2**80)
    with pytest.raises(TypeError):
        tw.Run(1).random.getrandbits(1.5)  # type: ignore[arg-type]


def test_it_is_a_whole_random_of_python() -> None:
    draw = tw.Run(2, campaign_seed=5).random
    assert isinstance(draw, random.Random)
    assert statistics.mean(draw.random() for _ in range(20_000)) == pytest.approx(0.5, abs=0.01)
    assert statistics.stdev(draw.gauss(1, 3) for _ in range(20_000)) == pytest.approx(3, abs=0.1)
    assert statistics.mean(draw.normalvariate(1, 3) for _ in range(20_000)) == pytest.approx(1, abs=0.1)
    counts = [0] * 6
    for _ in range(12_000):
        counts[draw.randrange(6)] += 1
    assert all(1_700 < count < 2_300 for count in counts)
    deck = list(range(52))
    draw.shuffle(deck)
    assert sorted(deck) == list(range(52)) != deck
    assert len(set(draw.sample(range(1_000), 50))) == 50
    assert len(draw.randbytes(11)) == 11
    assert 0 <= draw.betavariate(2, 3) <= 1
    assert set(draw.choices("ab", [0, 1], k=9)) == {"b"}
    assert 3 <= draw.uniform(3, 4) <= 4


def test_its_state_can_be_kept_copied_pickled_and_seeded() -> None:
    draw = tw.Run(2).random
    draw.gauss(0, 1)
    state = draw.getstate()
    after = [draw.gauss(0, 1), draw.random(), draw.getrandbits(77)]
    for other in (copy.copy(draw), copy.deepcopy(draw), pickle.loads(pickle.dumps(draw))):
        other.setstate(state)
        assert [other.gauss(0, 1), other.random(), other.getrandbits(77)] == after
    draw.seed("monday")
    monday = draw.random()
    for seed, same in (("monday", True), ("tuesday", False), (b"monday", False), (7, False), (7.0, False)):
        draw.seed(seed)
        assert (draw.random() == monday) is same
    draw.seed(None)
    assert draw.random() != monday
    with pytest.raises(TypeError, match="seed: list is not allowed"):
        draw.seed([])  # type: ignore[arg-type]


def test_two_runs_share_nothing() -> None:
    runs = [tw.Run(index, campaign_seed=1) for index in range(50)]
    assert len({run.random.random() for run in runs} | {float(run.numpy.random()) for run in runs}) == 100
    assert runs[0].random is runs[0].random
    assert runs[0].random is not runs[1].random
    assert runs[0].numpy.integers(10, size=3).dtype == numpy.int64


def test_a_run_by_hand() -> None:
    run = tw.Run(3, campaign_seed="monday", params={"steps": 7}, attempt=2)
    assert (run.index, run.params, run.attempt) == (3, {"steps": 7}, 2)
    assert repr(run) == f"Run(index=3, seed={run.seed}, attempt=2)"
    assert tw.Run().params == {}
    with pytest.raises(tw.InvalidArgument, match="seed: "):
        tw.Run(campaign_seed=1.5)  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        tw.Run(-1)


# A second implementation: SipHash in Python, and the Philox of NumPy

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
