"""Ray: an actor for each worker, batches of 100 runs; the driver copies each batch to
PostgreSQL.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ray
from farm import Batch, Farm, drive
from ray.util import ActorPool
from workload import lines

MEMORY_BYTES = 80 * 2**20


@ray.remote(num_cpus=1)
class Worker:
    def work(self, batch: Batch) -> tuple[int, bytes]:
        return os.getpid(), lines(*batch)


class Ray(Farm):
    def start(self) -> None:
        here = {"env_vars": {"PYTHONPATH": str(Path(__file__).parent)}}
        ray.init(
            num_cpus=self.workers,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=MEMORY_BYTES,
            runtime_env=here,
            logging_level="ERROR",
        )
        self.pool = ActorPool([Worker.remote() for _ in range(self.workers)])

    def results(self, batches: Sequence[Batch]) -> Iterator[tuple[int, bytes]]:
        return self.pool.map_unordered(send, batches)

    def stop(self) -> None:
        ray.shutdown()


def send(actor: Any, batch: Batch) -> Any:
    return actor.work.remote(batch)


if __name__ == "__main__":
    drive(Ray)
