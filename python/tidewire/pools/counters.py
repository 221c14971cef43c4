"""Counters of a pool: outcomes, batches, and histograms of times."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tidewire._node.ledger import Ledger, Stuck
from tidewire.pools.task import Task

_SUB_BITS = 4


class Histogram:
    """Times in microseconds, with a relative error of at most 1/16."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = 0
        self.max_us = 0

    def add(self, us: int, count: int = 1) -> None:
        """Add a time, ``count`` times."""
        us = max(us, 0)
        shift = max(us.bit_length() - _SUB_BITS - 1, 0)
        self._buckets[(shift << (_SUB_BITS + 1)) | (us >> shift)] += count
        self.count += count
        self.max_us = max(self.max_us, us)

    def quantile(self, share: float) -> int:
        """Return the quantile of this share, or 0 without any times."""
        rank, cumulative = share * self.count, 0
        for bucket in sorted(self._buckets):
            cumulative += self._buckets[bucket]
            if cumulative >= rank:
                shift, top = bucket >> (_SUB_BITS + 1), bucket & ((2 << _SUB_BITS) - 1)
                return min(((top + 1) << shift) - 1, self.max_us)
        return 0

    def summary(self) -> dict[str, int]:
        """Return count, quantiles and maximum for the statistics."""
        quantiles = {f"p{round(share * 100)}_us": self.quantile(share) for share in (0.5, 0.95, 0.99)}
        return {"sampled": self.count, **quantiles, "max_us": self.max_us}


def share(part_ns: int, whole_ns: int) -> float:
    """Return a share of a time. Clamped to 0 to 1, as its parts are read at different moments."""
    return min(max(part_ns, 0) / max(whole_ns, 1), 1.0)


class PoolCounters:
    """Counters of one pool, protected by the lock of the pool."""

    def __init__(self) -> None:
        self.handled = 0
        self.dead: Counter[str] = Counter()
        self.returned: list[Task] = []
        self.redelivered = 0
        self.batches = 0
        self.batch_max = 0
        self.batched = 0
        self.restarts = 0
        self.queueing = Histogram()
        self.handling = Histogram()

    def count_assignment(self, count: int, queued_ns: int, now_ns: int) -> None:
        """Count tasks that are assigned together. The queueing time is sampled: the first task of
        each assignment.
        """
        self.batches += 1
        self.batched += count
        self.batch_max = max(self.batch_max, count)
        self.queueing.add((now_ns - queued_ns) // 1_000)

    def ledger(self, accepted: int, stuck: tuple[Stuck, ...], threads: tuple[str, ...], reason: str) -> Ledger:
        """Return the stop report of all tasks."""
        return Ledger(
            accepted,
            self.handled,
            len(self.returned),
            sum(self.dead.values()),
            messages=tuple(self.returned),
            reason=reason,
            stuck=stuck,
            threads=threads,
        )

    def summary(self) -> dict[str, Any]:
        """Return the counts by name."""
        return {
            "handled": self.handled,
            "returned": len(self.returned),
            "dead_lettered": sum(self.dead.values()),
            "dead_by_reason": dict(self.dead),
            "failed": self.dead["failed"],
            "timed_out": self.dead["timeout"],
            "redelivered": self.redelivered,
            "restarts": self.restarts,
            "batches": self.batches,
            "batch_mean": self.batched / self.batches if self.batches else 0.0,
            "batch_max": self.batch_max,
            "queueing": self.queueing.summary(),
            "handling": self.handling.summary(),
        }
