"""Latin hypercube designs: parameter sets that cover the range of each parameter evenly."""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tidewire._binding import Philox, Run
from tidewire._campaigns.parameters import SETS_MAX
from tidewire._campaigns.random import RunRandom
from tidewire.errors import InvalidArgument

_USE = 3
"""Use number of this stream, as in ``spec/campaigns.md``; runs have other ones."""
_WORD_BITS = 64


def latin_hypercube(
    n: int, /, *, seed: int | str = 0, **axes: tuple[float, float] | Iterable[Any]
) -> list[dict[str, Any]]:
    """Return ``n`` parameter sets for ``sweep`` that cover each parameter evenly.

    An interval ``(low, high)`` is divided into n parts of equal length, and each part has one
    float. A list, a ``range`` or another sequence contains the allowed values. Each value is used
    n divided by their count times, rounded up or down. The order is random and independent for
    each parameter.

    The result depends only on the arguments, on every machine. An appended parameter does not
    change the values of the others.

    >>> sets = latin_hypercube(4, seed=7, rate=(0.5, 0.9), desks=range(1, 3))
    >>> sorted(int((one["rate"] - 0.5) / 0.1) for one in sets), sorted(one["desks"] for one in sets)
    ([0, 1, 2, 3], [1, 1, 2, 2])

    Args:
        n: Number of sets, 1 to 1,000,000.
        seed: An integer of any sign, or text, as for ``tw.campaign``. The campaign may have the
            same seed: its runs draw other numbers.
        axes: Each parameter with a tuple ``(low, high)`` in the unit of the parameter, for floats
            from low up to, not including, high; or with a sequence of at most 1,000,000 values.
            No parameter can be called ``seed``.

    Raises:
        InvalidArgument: if n or the seed is not allowed, there is no parameter, an interval is
            empty or not finite, or values are missing, too many or without an order.
    """
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= SETS_MAX:
        raise InvalidArgument(
            f"latin_hypercube: n: {n!r} is not allowed: give a whole number of sets from 1 to {SETS_MAX:,}"
        )
    if not axes:
        raise InvalidArgument(
            "latin_hypercube: it needs a parameter with its interval, such as latin_hypercube(100, rate=(0.5, 0.9))"
        )
    samplers = {name: _sampler(name, axis) for name, axis in axes.items()}
    (key, _, _), _ = Run(campaign_seed=seed).random.getstate()
    columns = []
    for number, sampler in enumerate(samplers.values()):
        draw = RunRandom(Philox(key, (0, number, _USE, 0)))
        columns.append(sampler(_permutation(n, draw), draw))
    return [dict(zip(samplers, values, strict=True)) for values in zip(*columns, strict=True)]


def _permutation(n: int, draw: RunRandom) -> list[int]:
    """Return the numbers below n in random order (Fisher and Yates), a word of the stream each."""
    order = list(range(n))
    for last in range(n - 1, 0, -1):
        other = draw.getrandbits(_WORD_BITS) * (last + 1) >> _WORD_BITS
        order[last], order[other] = order[other], order[last]
    return order


_Sampler = Callable[[list[int], RunRandom], list[Any]]


def _sampler(name: str, axis: Any) -> _Sampler:
    if isinstance(axis, tuple):
        return _interval(name, axis)
    if isinstance(axis, (str, bytes, Mapping)) or not isinstance(axis, Iterable):
        raise InvalidArgument(
            f"latin_hypercube: {name}: {axis!r} is neither an interval nor a list of values: write {name}=(low, high)"
            f" or {name}=[...]"
        )
    if isinstance(axis, (set, frozenset)):
        raise InvalidArgument(
            f"latin_hypercube: {name}: a {type(axis).__name__} has no order that all machines share:"
            f" write {name}=sorted(...)"
        )
    values = list(itertools.islice(axis, SETS_MAX + 1))
    if not 0 < len(values) <= SETS_MAX:
        count = f"more than {SETS_MAX:,}" if values else "no"
        raise InvalidArgument(f"latin_hypercube: {name}: it has {count} values; 1 to {SETS_MAX:,} are allowed")
    return lambda order, draw: _spread(values, order, draw)


def _spread(values: list[Any], order: list[int], draw: RunRandom) -> list[Any]:
    """Return values at n evenly spaced places, which begin at a random one.

    A shared beginning keeps the counts of two values within one of each other. Integers keep the
    places exact.
    """
    begin, whole = draw.getrandbits(_WORD_BITS), len(order) << _WORD_BITS
    return [values[((part << _WORD_BITS) + begin) * len(values) // whole] for part in order]


def _interval(name: str, axis: tuple[Any, ...]) -> _Sampler:
    if len(axis) != 2 or not all(isinstance(end, numbers.Real) and not isinstance(end, bool) for end in axis):
        raise InvalidArgument(
            f"latin_hypercube: {name}: {axis!r} is no interval (low, high) of two numbers: write {name}=[...] for a"
            " list of values"
        )
    try:
        low, high = map(float, axis)
    except OverflowError:
        low = high = math.inf
    width = high - low
    if not 0 < width < math.inf:
        raise InvalidArgument(
            f"latin_hypercube: {name}: the interval {axis!r} is not allowed: give finite numbers, low below high"
        )
    below_high = math.nextafter(high, low)

    def sample(order: list[int], draw: RunRandom) -> list[float]:
        n = len(order)
        # Rounding must not reach the end of the interval.
        return [min(low + width * ((part + draw.random()) / n), below_high) for part in order]

    return sample
