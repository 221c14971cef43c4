"""The scaling table and picture of the process pool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from .agents_cases import SCALED_TASKS, SCALED_WORKERS
from .model import Kind
from .picture import short
from .results import CaseResult, Series


@dataclass
class Scaling:
    """The rates of one contender for one size of tasks, by number of workers."""

    task_us: int
    contender: str
    kind: Kind
    best: dict[int, Series] = field(default_factory=dict)

    def rates(self) -> dict[int, float]:
        """The medians."""
        return {workers: one.middle("rate") for workers, one in self.best.items()}

    def third_worker(self) -> float | None:
        """Ratio of the rate of 3 workers to that of 2."""
        rates = self.rates()
        return rates[3] / rates[2] if {2, 3} <= set(rates) else None

    def report(self) -> dict[str, Any]:
        """As it goes into the report."""
        third = self.third_worker()
        rates = {str(workers): rate for workers, rate in self.rates().items()}
        return {
            "task_us": self.task_us,
            "contender": self.contender,
            "kind": self.kind,
            "rates": rates,
            "rate_of_3_to_2": third,
        }


def is_scaling(result: CaseResult) -> bool:
    """True if a case belongs to the table of this file."""
    return result.case.id.split("-")[0] in SCALED_TASKS


def scalings(results: Sequence[CaseResult]) -> list[Scaling]:
    """The best form of each contender, by size of tasks and number of workers."""
    found: dict[tuple[int, str], Scaling] = {}
    for result in filter(is_scaling, results):
        name, workers = result.case.id.split("-")
        for one in result.best_forms():
            key = SCALED_TASKS[name], one.run.contender
            found.setdefault(key, Scaling(*key, one.run.kind)).best.setdefault(int(workers), one)
    return list(found.values())


def scaling_tables(found: Sequence[Scaling]) -> Iterator[Table]:
    """One table for each size of tasks."""
    for name, task_us in SCALED_TASKS.items():
        some = [one for one in found if one.task_us == task_us]
        if some:
            yield scaling_table(f"{name}  pool of processes, tasks of {task(task_us)}: tasks/s, median (min–max)", some)


def scaling_table(title: str, found: Sequence[Scaling]) -> Table:
    """Contenders below each other, numbers of workers beside each other."""
    table = Table(title=title, title_justify="left", title_style="bold", caption=verdict(found), caption_justify="left")
    table.add_column("contender")
    for workers in SCALED_WORKERS:
        table.add_column(f"{workers} worker{'s' * (workers > 1)}", justify="right")
    table.add_column("3 to 2", justify="right")
    for one in found:
        third = one.third_worker()
        cells = [spread(one.best[workers]) if workers in one.best else "" for workers in SCALED_WORKERS]
        style = {"ours": "bold cyan", "limit": "dim"}.get(one.kind)
        table.add_row(one.contender, *cells, "" if third is None else f"{third:.2f}x", style=style)
    return table


def spread(one: Series) -> str:
    """A median between its ends."""
    values = one.values["rate"]
    return f"{short(one.middle('rate'))} ({short(min(values))}–{short(max(values))})"


def verdict(found: Sequence[Scaling]) -> str:
    """How ours compares at each number of workers, and whether the third worker costs anything."""
    ours = next((one for one in found if one.kind == "ours"), None)
    if ours is None:
        return ""
    parts = list(filter(None, (comparison(ours, found, workers) for workers in SCALED_WORKERS)))
    third = ours.third_worker()
    if third is not None:
        parts.append(f"the bar of 3 workers no slower than 2 is {bar_words(ours, third)} ({third:.2f}x)")
    return "; ".join(parts)


def bar_words(one: Scaling, third: float) -> str:
    """Words for the bar: held, missed, or missed within the spread of the runs."""
    two, three = (one.best[workers].values["rate"] for workers in (2, 3))
    apart = max(three) < min(two)
    return "held" if third >= 1 else "missed" if apart else "missed within the spread"


def comparison(ours: Scaling, found: Sequence[Scaling], workers: int) -> str:
    """The ratio to the best peer at one number of workers."""
    peers = [(one.rates()[workers], one.contender) for one in found if one.kind == "peer" and workers in one.best]
    if not peers or workers not in ours.best:
        return ""
    rate, name = max(peers)
    return f"{workers}: {ours.rates()[workers] / rate:.2f}x {name}"


def task(task_us: int) -> str:
    """20 us, 1 ms."""
    return f"{task_us // 1_000} ms" if task_us >= 1_000 else f"{task_us} us"
