"""Dramatiq with RabbitMQ: a message for 100 runs, stored by the worker, acknowledged once they
are.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from farm import Batch, Farm, Worker, drive

QUEUE = os.environ.get("CAMPAIGN_TABLE", "runs")
dramatiq.set_broker(RabbitmqBroker(url=os.environ["TIDEWIRE_TEST_RABBITMQ"]))
worker = cache(Worker)


@dramatiq.actor(queue_name=QUEUE)
def work(first: int, count: int, steps: int) -> None:
    worker().work(first, count, steps)


class Dramatiq(Farm):
    stored_by_workers = True

    def start(self) -> None:
        work.queue_name = self.store.table
        work.broker.declare_queue(self.store.table)
        self.run("-m", "dramatiq", "with_dramatiq", "--processes", str(self.workers), "--threads", "1")

    def submit(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            work.send(*batch)


if __name__ == "__main__":
    drive(Dramatiq)
