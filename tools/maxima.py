"""Maxima of counts that may fall and never rise: comparison with a table, and the lower table."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROWS = 20

Key = tuple[str, str]
"""A rule, and the folder, crate or layer that its count is about."""


@dataclass
class Measure:
    """One count with the lines that show its parts."""

    count: int = 0
    parts: list[str] = field(default_factory=list)

    def add(self, part: str, weight: int = 1) -> None:
        self.count += weight
        self.parts.append(part)


def compare(measures: Mapping[Key, Measure], table: Path, fixes: Mapping[str, str], *, lower: bool) -> int:
    """Prints each count above or below its maximum, and returns 1 if there is any."""
    rules: dict[str, dict[str, int]] = tomllib.loads(table.read_text(encoding="utf-8"))
    maxima = {(rule, unit): most for rule, units in rules.items() for unit, most in units.items()}
    counts = {key: measure.count for key, measure in measures.items() if measure.count}
    over = sorted(key for key in counts if counts[key] > maxima.get(key, 0))
    for rule, unit in over:
        most = maxima.get((rule, unit), 0)
        print(f"{unit}: {rule}: {counts[rule, unit]}, at most {most} allowed: {fixes.get(rule, 'rewrite these lines')}")
        parts = measures[rule, unit].parts
        print(*(f"  {part}" for part in parts[:ROWS]), sep="\n")
        if len(parts) > ROWS:
            print(f"  and {len(parts) - ROWS} more")
    under = sorted(key for key in maxima if counts.get(key, 0) < maxima[key])
    if lower and not over:
        write(table, counts)
        under = []
    for rule, unit in under:
        left = counts.get((rule, unit), 0)
        print(f"{unit}: {rule}: {left}, and {maxima[rule, unit]} allowed: lower the maximum to {left} (--lower does)")
    print(f"{table.relative_to(table.parent.parent)}: {len(over)} maxima exceeded, {len(under)} to be lowered")
    return 1 if over or under else 0


def write(table: Path, counts: Mapping[Key, int]) -> None:
    """Writes the table anew, without the lines whose count is 0. Its comments at the top stay."""
    old = table.read_text(encoding="utf-8").splitlines()
    lines = [line for line in old if line.startswith("#")]
    for rule in sorted({rule for rule, _ in counts}):
        lines += ["", f'["{rule}"]', *(f'"{at}" = {counts[rule, at]}' for one, at in sorted(counts) if one == rule)]
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
