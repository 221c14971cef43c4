"""Dask: a local cluster of processes with a thread each, batches of 100 runs; the driver copies
each batch to PostgreSQL.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import dask
from distributed import Client, LocalCluster, as_completed
from farm import Batch, Farm, drive
from workload import lines


class Dask(Farm):
    def start(self) -> None:
        dask.config.set({"distributed.admin.log-length": 0, "logging.distributed": "critical"})
        self.cluster = LocalCluster(
            n_workers=self.workers, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        )
        self.client = Client(self.cluster)

    def results(self, batches: Sequence[Batch]) -> Iterator[tuple[int, bytes]]:
        futures = self.client.map(work, batches, pure=False)
        for _, result in as_completed(futures, with_results=True):
            yield result

    def stop(self) -> None:
        self.client.close()
        self.cluster.close()


def work(batch: Batch) -> tuple[int, bytes]:
    return os.getpid(), lines(*batch)


if __name__ == "__main__":
    drive(Dask)
