"""Latin hypercubes: parameter sets that cover ranges evenly, the same on every machine."""

from __future__ import annotations

import collections
import itertools
import math
from typing import Any

import campaign_functions as functions
import numpy
import pytest
import tidewire as tw
from campaign_support import sqlite_alone

KEY = (0x8A5620CABD035123, 0xB02A6480093DA608)
"""The key of the seed 0, from ``spec/vectors/campaigns.json``."""


def words_of_parameter(number: int, count: int) -> list[int]:
    """Return the words of a parameter's stream under the seed 0, from NumPy."""
    # NumPy counts up before it makes a block.
    before = (number << 64 | 3 << 128) - 1
    counter = [before >> 64 * word & 2**64 - 1 for word in range(4)]
    made = numpy.random.Philox(key=numpy.array(KEY, numpy.uint64), counter=numpy.array(counter, numpy.uint64))
    return [int(word) for word in made.random_raw(count)]


def permutation(n: int, words: list[int]) -> list[int]:
    order = list(range(n))
    for last, word in zip(range(n - 1, 0, -1), words, strict=True):
        other = word * (last + 1) >> 64
        order[last], order[other] = order[other], order[last]
    return order


@pytest.mark.promise("P15.71")
def test_a_latin_hypercube_is_what_the_page_specifies() -> None:
    sets = tw.latin_hypercube(7, x=(-1.0, 2), kind=["a", "b", "c"])
    words = words_of_parameter(0, 6 + 7)
    parts = permutation(7, words[:6])
    units = [(word >> 11) * 2.0**-53 for word in words[6:]]
    assert [one["x"] for one in sets] == [-1.0 + 3.0 * ((k + u) / 7) for k, u in zip(parts, units, strict=True)]
    *words, begin = words_of_parameter(1, 6 + 1)
    places = [(k * 2**64 + begin) * 3 // (7 * 2**64) for k in permutation(7, words)]
    assert [one["kind"] for one in sets] == ["abc"[place] for place in places]


@pytest.mark.promise("P15.71")
def test_the_seed_alone_decides_and_appended_parameters_change_nothing() -> None:
    def drawn(seed: int | str, **more: Any) -> list[float]:
        return [one["x"] for one in tw.latin_hypercube(50, seed=seed, x=(0, 1), **more)]

    first = drawn(7)
    assert drawn(7) == drawn(7, y=(0, 1), kind=["a", "b"]) == first
    assert len({tuple(drawn(seed)) for seed in (7, -7, "7", 8)}) == 4
    both = tw.latin_hypercube(50, seed=7, x=(0, 1), y=(0, 1))
    assert [one["x"] for one in both] != [one["y"] for one in both]


@pytest.mark.promise("P15.70")
@pytest.mark.parametrize("n", [1, 2, 3, 10, 97, 1_000])
def test_each_part_of_an_interval_gives_one_value(n: int) -> None:
    for seed in range(5):
        sets = tw.latin_hypercube(n, seed=seed, rate=(0, 64), cold=(-8.0, -4.0))
        assert sorted(math.floor(one["rate"] / 64 * n) for one in sets) == list(range(n))
        assert sorted(math.floor((one["cold"] + 8) / 4 * n) for one in sets) == list(range(n))


@pytest.mark.promise("P15.70")
def test_values_are_used_equally_often() -> None:
    for n, m, seed in itertools.product([1, 2, 5, 12, 60, 101], [1, 2, 3, 7, 12, 1_000], range(3)):
        counts = collections.Counter(one["step"] for one in tw.latin_hypercube(n, seed=seed, step=range(m)))
        assert {counts[step] for step in range(m)} <= {n // m, -(-n // m)}, (n, m)
    first = {tw.latin_hypercube(1, seed=seed, step=range(4))[0]["step"] for seed in range(60)}
    assert first == {0, 1, 2, 3}, "no value is preferred"


def test_a_narrow_interval_never_reaches_its_end() -> None:
    high = math.nextafter(1.0, 2.0)
    assert {one["x"] for one in tw.latin_hypercube(100, x=(1.0, high))} == {1.0}
    assert all(0 <= one["x"] < 5e-324 * 3 for one in tw.latin_hypercube(100, x=(0.0, 5e-324 * 3)))


@sqlite_alone
def test_a_campaign_sweeps_a_latin_hypercube(store: str) -> None:
    sweep = tw.latin_hypercube(5, seed="farm", steps=range(1, 6), label=["a"])
    campaign = tw.campaign(functions.stepped, runs=10, sweep=sweep, store=store)
    assert campaign.run(workers=1, progress=False).state == "done", list(campaign.errors())
    assert sorted(campaign.parameters(number)["steps"] for number in range(5)) == [1, 2, 3, 4, 5]
    assert [row.value for row in campaign.results()] == [sweep[run % 5]["steps"] + 1 for run in range(10)]


@sqlite_alone
@pytest.mark.promise("P15.77", "P15.78")
def test_sets_are_compared_under_common_random_numbers(store: str) -> None:
    sweep = tw.grid(delay=[0.0, 2.0, 5.0])
    campaign = tw.campaign(functions.compared, runs=2_000, seed=3, sweep=sweep, store=store, attempts=1)
    campaign.run(workers=2, progress=False)
    rows = {row.run: row for row in campaign.results()}
    for one in campaign.differences(baseline=1):
        number = one.by["param_set"]
        pairs = [(rows[run], rows.get(run // 3 * 3 + 1)) for run in sorted(rows) if run % 3 == number]
        found = [of.late - to.late for of, to in pairs if to is not None]
        assert (one.count, one.missing) == (len(found), len(pairs) - len(found))
        assert one.missing > 0
        if one.column == "shared":
            assert (one.min, one.max) == (0.0, 0.0)
        elif one.column == "late":
            difference = sweep[number]["delay"] - 2.0
            assert one.mean == pytest.approx(difference) and one.standard_error < 1e-9
        else:
            assert one.standard_error > 0.01, "numbers of a run are its own"
    assert len({row.shared for row in rows.values()}) == 667
    assert campaign.replay(5)["shared"] == rows[5].shared
    for bad, says in ((3, "baseline: 3 is not allowed"), (True, "baseline: True")):
        with pytest.raises(tw.InvalidArgument, match=says):
            campaign.differences(bad)
    with pytest.raises(tw.InvalidArgument, match="differences: 1 parameter sets"):
        tw.campaign(functions.pi, runs=1, store=store).differences()


@pytest.mark.parametrize(
    ("n", "arguments", "says"),
    [
        (0, {"x": (0, 1)}, r"n: 0 is not allowed: give a whole number of sets from 1 to 1,000,000"),
        (1_000_001, {"x": (0, 1)}, r"n: 1000001 is not allowed"),
        (True, {"x": (0, 1)}, r"n: True is not allowed"),
        (3.0, {"x": (0, 1)}, r"n: 3\.0 is not allowed"),
        (3, {}, r"it needs a parameter with its interval, such as"),
        (3, {"seed": 1.5, "x": (0, 1)}, r"seed: float is not allowed: give an integer or text"),
        (3, {"x": 7}, r"x: 7 is neither an interval nor a list of values: write x=\(low, high\) or x=\["),
        (3, {"x": "ab"}, r"x: 'ab' is neither"),
        (3, {"x": {"a": 1}}, r"x: \{'a': 1\} is neither"),
        (3, {"x": (1, 2, 3)}, r"x: \(1, 2, 3\) is no interval \(low, high\) of two numbers: write x=\[\.\.\.\]"),
        (3, {"x": ("a", "b")}, r"x: \('a', 'b'\) is no interval"),
        (3, {"x": (False, True)}, r"x: \(False, True\) is no interval"),
        (3, {"x": (2, 2)}, r"x: the interval \(2, 2\) is not allowed: give finite numbers, low below high"),
        (3, {"x": (2, 1)}, r"x: the interval \(2, 1\) is not allowed"),
        (3, {"x": (0, math.inf)}, r"x: the interval \(0, inf\) is not allowed"),
        (3, {"x": (math.nan, 1)}, r"x: the interval \(nan, 1\) is not allowed"),
        (3, {"x": (-1e308, 1e308)}, r"x: the interval .* is not allowed"),
        (3, {"x": (0, 10**400)}, r"x: the interval .* is not allowed"),
        (3, {"x": []}, r"x: it has no values; 1 to 1,000,000 are allowed"),
        (3, {"x": itertools.count()}, r"x: it has more than 1,000,000 values"),
        (3, {"x": {"a", "b"}}, r"x: a set has no order that all machines share: write x=sorted\(\.\.\.\)"),
    ],
)
def test_bad_arguments_of_a_latin_hypercube_are_named(n: Any, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(tw.InvalidArgument, match=says):
        tw.latin_hypercube(n, **arguments)
