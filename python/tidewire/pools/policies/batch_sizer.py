"""Number of tasks per assignment to a worker. A state machine without a clock: measured times are
arguments.

A batch should keep a worker busy for about ``TARGET_US``: long enough to amortize its transfer,
short enough not to delay results. A worker has up to two batches, so that it starts the second
without a wait. A task that takes as long as a batch is assigned alone, as another worker may be
idle for the next one. While more tasks wait than there are workers, none will be idle, so that a
worker gets one task ahead. It gets none if a task takes so long that its transfer is negligible.
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
    """Batch sizes from the measured duration of tasks."""

    def __init__(self) -> None:
        self.task_us: float | None = None
        self._largest = 1

    def learn(self, count: int, spent_us: float) -> None:
        """Add a sample: the time that a worker spent on ``count`` tasks. Slower samples have more
        weight than faster ones.
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
        """Return the number of ``waiting`` tasks to assign to a worker that has ``tasks`` in
        ``batches``; 0 for none now.
        """
        batch = self._batch()
        if batch <= 1:
            return 1 if waiting and tasks <= self._ahead(waiting, workers) else 0
        if batches >= _BATCHES_MAX or tasks >= batch * _BATCHES_MAX:
            return 0
        share = -(-waiting // max(workers, 1))
        # For so few tasks the wakeup of a second worker costs more than it gains.
        single_share = int(_SPREAD_US / self.task_us) if self.task_us else 1
        return min(waiting, batch, max(share, single_share))

    def _batch(self) -> int:
        if self.task_us is None:
            return 1
        return int(min(TARGET_US / self.task_us, self._largest, _BATCH_MAX))

    def _ahead(self, waiting: int, workers: int) -> int:
        """Return the number of single tasks that a worker may have besides its running one."""
        is_short = self.task_us is not None and self.task_us < _AHEAD_US
        return 1 if is_short and waiting > workers else 0
