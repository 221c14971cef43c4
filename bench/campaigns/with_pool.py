"""multiprocessing.Pool in chunks of 1,000 runs; the driver copies each chunk to PostgreSQL."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence

from farm import Batch, Farm, drive
from workload import lines


class Pool(Farm):
    batch = 1_000

    def start(self) -> None:
        self.pool = multiprocessing.Pool(self.workers)

    def results(self, batches: Sequence[Batch]) -> Iterator[tuple[int, bytes]]:
        return self.pool.imap_unordered(work, batches)

    def stop(self) -> None:
        self.pool.terminate()


def work(batch: Batch) -> tuple[int, bytes]:
    return os.getpid(), lines(*batch)


if __name__ == "__main__":
    drive(Pool)
