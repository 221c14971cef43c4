"""Celery with RabbitMQ: a task for 100 runs, stored by the worker, acknowledged late and given back
if its worker is killed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache

from celery import Celery
from farm import Batch, Farm, Worker, drive

app = Celery("with_celery", broker=os.environ["TIDEWIRE_TEST_RABBITMQ"])
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    task_default_queue=os.environ.get("CAMPAIGN_TABLE", "runs"),
    broker_connection_retry_on_startup=True,
)
worker = cache(Worker)


@app.task(name="work")
def work(first: int, count: int, steps: int) -> None:
    worker().work(first, count, steps)


class CeleryFarm(Farm):
    stored_by_workers = True

    def start(self) -> None:
        quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "CRITICAL")
        self.run("-m", "celery", "-A", "with_celery", "worker", "--concurrency", str(self.workers), *quiet)

    def submit(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            work.apply_async(batch, queue=self.store.table)


if __name__ == "__main__":
    drive(CeleryFarm)
