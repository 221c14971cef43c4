"""Differences between the parameter sets of a campaign, replication by replication."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING

from tidewire._campaigns.arguments import integer
from tidewire._campaigns.summary import GROUPS_MAX, NumberColumn, Summary, ValueCounts, limits_of, numbers_of
from tidewire.errors import InvalidArgument

if TYPE_CHECKING:
    from tidewire._campaigns.campaign import Campaign


def differences(campaign: Campaign, baseline: int) -> Summary:
    """Return the statistics of the differences; see ``Campaign.differences``."""
    sets, kinds = campaign.sets, campaign.columns or {}
    if not 1 < sets <= GROUPS_MAX:
        raise InvalidArgument(
            f"differences: {sets:,} parameter sets; 2 to {GROUPS_MAX:,} can be compared: give a sweep"
        )
    if campaign.many:
        fix = 'return one row from the function, or compare campaign.summary(by="param_set")'
        raise InvalidArgument(f"differences: each run gives several rows: {fix}")
    integer("baseline", baseline, 0, sets - 1)
    elements, capacity_of = limits_of(sets)
    counts: dict[tuple[NumberColumn, int], ValueCounts] = {}
    replication: dict[int, dict[NumberColumn, float | None]] = {}
    current = 0

    def compare(differences: dict[tuple[NumberColumn, int], list[float | None]]) -> None:
        of_baseline = replication.pop(baseline, {})
        for number, values in replication.items():
            for column, value in values.items():
                other = of_baseline.get(column)
                differences[column, number].append(None if value is None or other is None else value - other)
        replication.clear()

    for batch in chain(campaign.batches(), [None]):
        found: dict[tuple[NumberColumn, int], list[float | None]] = defaultdict(list)
        numbers = {} if batch is None else numbers_of(batch, kinds, elements)
        for place, run in enumerate(batch.runs if batch else ()):
            if run // sets != current:
                compare(found)
                current = run // sets
            replication[run % sets] = {column: values[place] for column, values in numbers.items()}
        if batch is None:
            compare(found)
        capacity = capacity_of(len({column for column, _ in found}))
        for key, differing in found.items():
            counts.setdefault(key, ValueCounts(capacity)).add(differing)
    return Summary([counts[key].summary(key[0].name, {"param_set": key[1]}) for key in sorted(counts)])
