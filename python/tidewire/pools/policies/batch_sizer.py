"""Number of tasks that a worker process gets at once. A state machine without a clock: measured
times go in.

A batch should keep a worker busy for about ``TARGET_US``: long enough that carrying it costs
little, short enough that a result is not held up. A worker has up to two batches, so that it finds
the next one when it is done with the first. A task that takes as long as a batch by itself is given
alone, because the next one may find an idle worker elsewhere; while more tasks wait than there are
workers none will be idle, and a worker gets one ahead, unless the way there takes no time beside
such a task.
"""

from __future__ import annotations

TARGET_US = 4_000.0
_AHEAD_US = 10_000.0
_SPREAD_US = 200.0
_BATCH_MAX = 4_096
_BATCHES_MAX = 2
_LEARN = 0.2
_LEARN_SLOWER = 0.5


class BatchSizer:
    """Sizes batches by how long tasks took so far."""

    def __init__(self) -> None:
        self.task_us: float | None = None
        self._largest = 1

    def learn(self, count: int, spent_us: float) -> None:
        """Take note that a worker spent this long on this many tasks. Slower tasks are believed
        sooner than faster ones.
        """
        if count <= 0:
            return
        sample = max(spent_us / count, 0.05)
        if self.task_us is None:
            self.task_us = sample
        else:
            self.task_us += (sample - self.task_us) * (_LEARN_SLOWER if sample > self.task_us else _LEARN)
        self._largest = max(1, min(_BATCH_MAX, max(self._largest, count * 4)))

    def size(self, waiting: int, workers: int, tasks: int, batches: int) -> int:
        """Return how many of ``waiting`` tasks to give to a worker that has ``tasks`` in
        ``batches``; 0 for none now.
        """
        batch = self._batch()
        if batch <= 1:
            return 1 if waiting and tasks <= self._ahead(waiting, workers) else 0
        if batches >= _BATCHES_MAX or tasks >= batch * _BATCHES_MAX:
            return 0
        share = -(-waiting // max(workers, 1))
        # One worker may as well do so many alone: waking a second one would cost more.
        alone = int(_SPREAD_US / self.task_us) if self.task_us else 1
        return min(waiting, batch, max(share, alone))

    def _batch(self) -> int:
        if self.task_us is None:
            return 1
        return int(min(TARGET_US / self.task_us, self._largest, _BATCH_MAX))

    def _ahead(self, waiting: int, workers: int) -> int:
        """How many tasks that are given one by one a worker may have besides the one that it is
        at.
        """
        known_short = self.task_us is not None and self.task_us < _AHEAD_US
        return 1 if known_short and waiting > workers else 0
