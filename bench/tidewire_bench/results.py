"""Figures as they come in, and what they amount to."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Any

from .model import Case, Curve, Kind, Run

KINDS: tuple[Kind, ...] = ("ours", "peer", "channel", "limit")


@dataclass
class Series:
    """Every figure that one contender in one form gave."""

    run: Run
    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, figures: dict[str, float]) -> None:
        """Takes the figures of one process."""
        for name, value in figures.items():
            self.values.setdefault(name, []).append(value)

    def middle(self, figure: str) -> float:
        """The median of a figure."""
        return median(self.values[figure])

    def has(self, figure: str) -> bool:
        """True if the run gave a figure at all."""
        return figure in self.values

    def summary(self, case: Case) -> dict[str, Any]:
        """As it goes into the report."""
        values = self.values[case.figure]
        return {
            "contender": self.run.contender,
            "kind": self.run.kind,
            "form": self.run.form,
            "arguments": " ".join(self.run.arguments),
            "runs": len(values),
            "median": median(values),
            "min": min(values),
            "max": max(values),
            "figures": {name: median(some) for name, some in sorted(self.values.items())},
        }


@dataclass
class CaseResult:
    """All series of a case."""

    case: Case
    series: dict[tuple[str, str], Series] = field(default_factory=dict)

    def add(self, run: Run, figures: dict[str, float]) -> None:
        """Takes the figures of one process."""
        self.series.setdefault(run.key, Series(run)).add(figures)

    def ranked(self, *kinds: Kind) -> list[Series]:
        """The series of some kinds that have the case's figure, best first."""
        some = [one for one in self.series.values() if one.run.kind in kinds and one.has(self.case.figure)]
        return sorted(some, key=lambda one: one.middle(self.case.figure), reverse=self.case.higher_is_better)

    def best(self, *kinds: Kind) -> Series | None:
        """The best of them."""
        return next(iter(self.ranked(*kinds)), None)

    def best_forms(self) -> list[Series]:
        """Ours in every form; of every other contender its best form alone."""
        seen: set[str] = set()
        chosen = self.ranked("ours")
        for one in self.ranked("peer", "channel", "limit"):
            if one.run.contender not in seen:
                seen.add(one.run.contender)
                chosen.append(one)
        return sorted(chosen, key=lambda one: one.middle(self.case.figure), reverse=self.case.higher_is_better)

    def ratio(self, *kinds: Kind) -> float | None:
        """How many times better ours is than the best of some kinds; below 1 it is worse."""
        ours = next((one for one in self.ranked("ours") if set(kinds) <= set(one.run.beside)), None)
        theirs = self.best(*kinds)
        if ours is None or theirs is None:
            return None
        return self._times_better(ours, theirs.middle(self.case.figure))

    def ratio_to_bar(self) -> float | None:
        """How many times better ours is than what is required; below 1 it misses the bar."""
        ours = self.best("ours")
        return None if ours is None or self.case.bar is None else self._times_better(ours, self.case.bar)

    def _times_better(self, ours: Series, other_value: float) -> float | None:
        our_value = ours.middle(self.case.figure)
        over, under = (our_value, other_value) if self.case.higher_is_better else (other_value, our_value)
        return over / under if under > 0 else None

    def report(self) -> dict[str, Any]:
        """As it goes into the report."""
        best = {kind: one.summary(self.case) for kind in KINDS if (one := self.best(kind))}
        return {
            "id": self.case.id,
            "title": self.case.title,
            "figure": self.case.figure,
            "unit": self.case.unit,
            "higher_is_better": self.case.higher_is_better,
            "bar": self.case.bar,
            "ratio_to_bar": self.ratio_to_bar(),
            "best": best,
            "ratio_to_best_peer": self.ratio("peer"),
            "ratio_to_best_channel": self.ratio("channel"),
            "ratio_to_limit": self.ratio("limit"),
            "results": [one.summary(self.case) for one in self.ranked(*KINDS)],
        }


@dataclass
class CurveResult:
    """The lines of a picture: for each contender, points of size and rate."""

    curve: Curve
    points: dict[str, dict[int, list[float]]] = field(default_factory=dict)

    def add(self, size: int, run: Run, figures: dict[str, float]) -> None:
        """Takes the figures of one process."""
        self.points.setdefault(run.contender, {}).setdefault(size, []).append(figures["rate"])

    def lines(self) -> dict[str, list[tuple[int, float]]]:
        """Points in the middle of their runs."""
        return {
            contender: [(size, median(values)) for size, values in sorted(points.items())]
            for contender, points in self.points.items()
        }

    def report(self) -> dict[str, Any]:
        """As it goes into the report."""
        curve = self.curve
        return {"id": curve.id, "title": curve.title, "x": curve.x_title, "y": curve.y_title, "lines": self.lines()}
