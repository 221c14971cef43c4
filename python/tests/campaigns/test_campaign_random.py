"""The random numbers of a run: a full `random.Random`, and a generator of NumPy, on the documented
streams.
"""

from __future__ import annotations

import copy
import json
import pickle
import random
import statistics
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
