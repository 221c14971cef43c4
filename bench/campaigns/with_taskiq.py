"""Taskiq with a stream of Redis: a task for 100 runs, stored by the worker, acknowledged once they
are.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Sequence
from functools import cache
from typing import Any

from farm import Batch, Farm, Worker, drive
from taskiq_redis import RedisStreamBroker

# A worker takes no more than one task ahead, so that others have some, too.
broker = RedisStreamBroker(
    os.environ["TIDEWIRE_TEST_REDIS"],
    queue_name=os.environ.get("CAMPAIGN_TABLE", "runs"),
    xread_count=1,
    consumer_id="0",
)
worker = cache(Worker)


@broker.task(task_name="work")
async def work(first: int, count: int, steps: int) -> None:
    worker().work(first, count, steps)


class Taskiq(Farm):
    stored_by_workers = True

    def start(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        broker.queue_name = self.store.table
        self.wait(broker.startup())
        few = ("--max-async-tasks", "2", "--log-level", "CRITICAL")
        self.run("-m", "taskiq", "worker", "with_taskiq:broker", "--workers", str(self.workers), *few)

    def submit(self, batches: Sequence[Batch]) -> None:
        self.wait(self.send(batches))

    async def send(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            await work.kiq(*batch)

    def wait(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result()


if __name__ == "__main__":
    drive(Taskiq)
