"""Statistics of the numeric columns of a campaign, by parameters or by other columns, in one pass
over the rows and in constant memory.
"""

from __future__ import annotations

import json
import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

from tidewire.errors import InvalidArgument

if TYPE_CHECKING:
    from tidewire._campaigns.campaign import Campaign
    from tidewire._campaigns.report import Batch

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
NUMERIC = ("integer", "float", "boolean")
ELEMENTS_MAX = 1_000
_ELEMENTS_OF_GROUPS_MAX = 200_000
_NUMBERS = (float, bool, type(None))
GROUPS_MAX = 100_000
_SKETCH_VALUES_MAX, _CAPACITY_MIN, _CAPACITY_MAX = 4_000_000, 64, 4_096


@dataclass(frozen=True)
class ColumnSummary:
    """Summary of one column, over all rows or those of one group."""

    column: str
    """Name of the column; of an element of an array with its index, such as ``curve[0]``."""
    by: dict[str, Any]
    """Values of the parameters or columns that define the group; empty for all rows."""
    count: int
    """Number of values."""
    missing: int
    """Number of rows without a value, or with NaN. No other statistic includes them."""
    mean: float
    standard_error: float
    """Standard error of the mean; NaN with fewer than two values. It assumes independent rows, which
    rows of one run may not be.
    """
    min: float
    max: float
    quantiles: dict[float, float]
    """Quantiles, exact up to some thousand values, and then within about 0.1% of the ranks."""

    @property
    def median(self) -> float:
        """The median."""
        return self.quantiles[0.5]

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the confidence interval of the mean by the normal approximation, for many rows.

        Raises:
            InvalidArgument: if the confidence is not between 0 and 1.
        """
        if not 0 < confidence < 1:
            raise InvalidArgument(f"confidence: {confidence!r} is not allowed: give a number between 0 and 1")
        half_width = NormalDist().inv_cdf((1 + confidence) / 2) * self.standard_error
        return self.mean - half_width, self.mean + half_width

    def asdict(self) -> dict[str, Any]:
        """Return all fields as a flat dict of plain values, the quantiles as ``q05`` to ``q95``."""
        quantiles = {f"q{round(100 * share):02}": value for share, value in self.quantiles.items()}
        figures = (self.count, self.missing, self.mean, self.standard_error, self.min, self.max)
        names = ("count", "missing", "mean", "standard_error", "min", "max")
        return {"column": self.column, **self.by, **dict(zip(names, figures, strict=True)), **quantiles}


class Summary(Sequence[ColumnSummary]):
    """Statistics by column and group, sorted by column and then by group."""

    def __init__(self, found: Sequence[ColumnSummary]) -> None:
        self._entries = tuple(found)

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, at: Any) -> Any:
        return self._entries[at]

    def asdicts(self) -> list[dict[str, Any]]:
        """Return the entries as flat dicts, for JSON or a data frame."""
        return [one.asdict() for one in self._entries]

    def __repr__(self) -> str:
        head, *rows = self._cells()
        widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
        texts = 1 + len(self._entries[0].by) if self._entries else 1

        def line(row: Sequence[str]) -> str:
            cells = (
                f"{cell:<{width}}" if at < texts else f"{cell:>{width}}"
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            return "  ".join(cells).rstrip()

        return "\n".join(line(row) for row in (head, *rows))

    def _repr_html_(self) -> str:
        head, *rows = self._cells()
        lines = [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows]
        titles = "".join(f"<th>{escape(cell)}</th>" for cell in head)
        return f"<table><thead><tr>{titles}</tr></thead><tbody>{''.join(lines)}</tbody></table>"

    def _cells(self) -> list[list[str]]:
        names = list(self._entries[0].asdict()) if self._entries else ["column", "count", "mean"]
        return [names, *([shown(value) for value in one.asdict().values()] for one in self._entries)]


def shown(value: Any) -> str:
    """Format a figure for display."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def summary(campaign: Campaign, by: str | Sequence[str] | None = None) -> Summary:
    """Return the statistics of every numeric column; see ``Campaign.summary``."""
    kinds = campaign.columns or {}
    grouping = Grouping(campaign, [by] if isinstance(by, str) else list(by or ()))
    groups: dict[tuple[Any, ...], dict[NumberColumn, ValueCounts]] = {}
    rows: Counter[tuple[Any, ...]] = Counter()
    elements, capacity_of = limits_of(grouping.expected)
    read = {name: kind for name, kind in kinds.items() if name not in grouping.names}
    for batch in campaign.batches():
        numbers = numbers_of(batch, read, elements)
        capacity = capacity_of(len(numbers))
        for key, places in grouping.split(batch):
            if key not in groups and len(groups) >= GROUPS_MAX:
                raise InvalidArgument(
                    f"by: {by!r} makes more than {GROUPS_MAX:,} groups: name something with fewer values"
                )
            group = groups.setdefault(key, {})
            rows[key] += len(batch.runs if places is None else places)
            for column, values in numbers.items():
                counts = group.get(column)
                if counts is None:
                    counts = group[column] = ValueCounts(capacity)
                counts.add(values if places is None else [values[at] for at in places])
    for key, group in groups.items():
        for counts in group.values():
            # A batch without long arrays has no values of the last elements.
            counts.missing = rows[key] - counts.count
    keys = sorted(
        groups, key=lambda key: [(isinstance(one, str), one is None, "" if one is None else one) for one in key]
    )
    entries = [
        groups[key][column].summary(column.name, dict(zip(grouping.names, key, strict=True)))
        for column in sorted({column for group in groups.values() for column in group})
        for key in keys
        if column in groups[key]
    ]
    return Summary(entries)


def limits_of(groups: int) -> tuple[int, Callable[[int], int]]:
    """Return the maximum number of array elements for a number of groups, and a function from the
    number of columns to the capacity of a sketch.
    """
    elements = max(1, min(ELEMENTS_MAX, _ELEMENTS_OF_GROUPS_MAX // groups))
    return elements, lambda columns: max(
        _CAPACITY_MIN, min(_CAPACITY_MAX, _SKETCH_VALUES_MAX // max(1, columns * groups))
    )


class NumberColumn(NamedTuple):
    """A numeric column, or an element of a column of arrays."""

    position: int
    element: int
    name: str


def numbers_of(
    batch: Batch, kinds: Mapping[str, str], elements: int = ELEMENTS_MAX
) -> dict[NumberColumn, Sequence[Any]]:
    """Return the numbers of a batch. Each of the first ``elements`` elements of an array is a
    column, such as ``curve[0]``.
    """
    numbers: dict[NumberColumn, Sequence[Any]] = {}
    for position, (name, kind) in enumerate(kinds.items()):
        if kind in NUMERIC:
            numbers[NumberColumn(position, 0, name)] = batch.columns[name]
        elif kind == "json":
            arrays = [_array(text) for text in batch.columns[name]]
            for element in range(min(max(map(len, arrays), default=0), elements)):
                values = [array[element] if element < len(array) else None for array in arrays]
                numbers[NumberColumn(position, element, f"{name}[{element}]")] = values
    return numbers


def _array(text: str | None) -> Sequence[Any]:
    """Return an array of numbers from JSON; an empty one for other values."""
    values = json.loads(text, parse_int=float) if text is not None and text.startswith("[") else ()
    return values if all(type(value) in _NUMBERS for value in values) else ()


class Grouping:
    """Grouping of rows by values of parameters, of columns, or of ``param_set``.

    Raises:
        InvalidArgument: if a name is none of these.
    """

    def __init__(self, campaign: Campaign, names: list[str]) -> None:
        self.names = names
        columns = campaign.columns or {}
        self._sets = campaign.sets
        self._stored = campaign._stored_sets()
        self._parameter_values: dict[int, tuple[Any, ...]] = {}
        first = campaign.parameters(0)
        self._columns = [name for name in names if name in columns]
        self._parameters = [name for name in names if name not in columns]
        for name in self._parameters:
            if name != "param_set" and name not in first:
                present = ", ".join((*first, *columns, "param_set"))
                raise InvalidArgument(f"by: {name!r} is no parameter and no column; there are {present}")
        self.expected = min(self._sets if self._parameters else 16 if names else 1, GROUPS_MAX)

    def split(self, batch: Batch) -> Iterator[tuple[tuple[Any, ...], list[int] | None]]:
        """Iterate over the groups of a batch, with the indices of their rows; None for all rows."""
        if not self.names:
            yield (), None
            return
        places: dict[tuple[Any, ...], list[int]] = {}
        for place, key in enumerate(self._keys(batch)):
            places.setdefault(key, []).append(place)
        yield from places.items()

    def _keys(self, batch: Batch) -> Iterator[tuple[Any, ...]]:
        parts: list[Sequence[Any]] = []
        for name in self.names:
            if name in self._columns:
                parts.append(batch.columns[name])
            elif name == "param_set":
                parts.append([run % self._sets for run in batch.runs])
            else:
                at = self._parameters.index(name)
                parts.append([self._values(run % self._sets)[at] for run in batch.runs])
        return zip(*parts, strict=True)

    def _values(self, set: int) -> tuple[Any, ...]:
        key = self._parameter_values.get(set)
        if key is None:
            values: Mapping[str, Any] = json.loads(self._stored[set])
            key = tuple(_plain(values.get(name)) for name in self._parameters)
            self._parameter_values[set] = key
        return key


def _plain(value: Any) -> Any:
    """Return a hashable value."""
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)


class ValueCounts:
    """Running statistics of a column in a group: moments, minimum, maximum, and a sketch."""

    def __init__(self, capacity: int = _CAPACITY_MAX) -> None:
        self.count = self.missing = 0
        self.mean, self._distance = 0.0, 0.0
        self.least: float = math.inf
        self.most: float = -math.inf
        self.sketch = QuantileSketch(capacity)

    def add(self, values: Sequence[Any]) -> None:
        """Add values; None and NaN count as missing."""
        present = [value for value in values if value is not None and not math.isnan(value)]
        self.missing += len(values) - len(present)
        if not present:
            return
        # The plus sign makes numbers of booleans.
        self.least, self.most = min(self.least, +min(present)), max(self.most, +max(present))
        count, total = len(present), self.count + len(present)
        mean = _mean(present)
        # Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample
        # variances, 1979. The root of the mean square, since squares overflow above 1e154.
        shift, root = mean - self.mean, math.sqrt(total)
        parts = [(value - mean) / root for value in present]
        if self.count:
            earlier = math.sqrt(self.count / total)
            parts += [self._distance * earlier, shift * earlier * math.sqrt(count / total)]
        self._distance = math.hypot(*parts)
        if math.isinf(shift) and math.isfinite(mean):
            self.mean = self.mean * (self.count / total) + mean * (count / total)
        else:
            self.mean += shift * (count / total)
        self.count = total
        self.sketch.add(present)

    @property
    def deviation(self) -> float:
        """The standard deviation of the values; NaN with fewer than two."""
        is_known = self.count > 1 and math.isfinite(self.mean)
        return self._distance * math.sqrt(self.count / (self.count - 1)) if is_known else math.nan

    def summary(self, column: str, by: dict[str, Any]) -> ColumnSummary:
        """Return the summary of the values so far."""
        if not self.count:
            nothing = dict.fromkeys(QUANTILES, math.nan)
            return ColumnSummary(column, by, 0, self.missing, math.nan, math.nan, math.nan, math.nan, nothing)
        error = self.deviation / math.sqrt(self.count)
        quantiles = dict(zip(QUANTILES, self.sketch.quantiles(QUANTILES), strict=True))
        return ColumnSummary(column, by, self.count, self.missing, self.mean, error, self.least, self.most, quantiles)


def _mean(values: Sequence[float]) -> float:
    count = len(values)
    try:
        return math.fsum(values) / count
    except OverflowError:
        return math.fsum([value / count for value in values])
    except ValueError:
        # Both infinities.
        return math.nan


class QuantileSketch:
    """Sketch of a distribution in bounded memory. It is deterministic for the same values in the
    same order.

    It has buffers of ``capacity`` values by weight. Two buffers of the same weight merge into one
    of twice the weight, with every second of their sorted values (Munro and Paterson: Selection
    and sorting with limited storage, 1980).
    """

    def __init__(self, capacity: int = _CAPACITY_MAX) -> None:
        self._capacity = capacity
        self._fresh: array[float] = array("d")
        self._levels: list[array[float] | None] = []
        self._odd = 0

    def add(self, values: Sequence[float]) -> None:
        """Add values."""
        for begin in range(0, len(values), self._capacity):
            self._fresh.extend(map(float, values[begin : begin + self._capacity]))
            while len(self._fresh) >= self._capacity:
                full, self._fresh = self._fresh[: self._capacity], self._fresh[self._capacity :]
                self._carry(full)

    def weighed(self) -> list[tuple[float, int]]:
        """Return the stored values in order, each with its weight."""
        found = [(value, 1) for value in self._fresh]
        for level, values in enumerate(self._levels):
            found += [(value, 1 << level) for value in values or ()]
        return sorted(found)

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """Return the quantiles at these shares."""
        weighed = self.weighed()
        total = sum(weight for _, weight in weighed)
        quantiles, rank, pairs = [], 0, iter(weighed)
        value, weight = next(pairs)
        for share in sorted(shares):
            while rank + weight < share * total:
                rank += weight
                value, weight = next(pairs)
            quantiles.append(value)
        return quantiles

    def _carry(self, values: array[float]) -> None:
        level = 0
        while level < len(self._levels) and (other := self._levels[level]) is not None:
            both = sorted((*values, *other))
            values = array("d", both[self._odd :: 2])
            self._odd = 1 - self._odd
            self._levels[level] = None
            level += 1
        if level == len(self._levels):
            self._levels.append(None)
        self._levels[level] = values
