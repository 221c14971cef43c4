"""A replica of a farm with a row for each run, as such farms are often written: nobody's product.

The driver inserts a row for each run and publishes batches of 20, each confirmed before the next. A
worker claims the rows of a batch, selects them again, makes the runs into a buffer, marks them as
complete in one transaction and inserts the results in another.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import pika
import psycopg
from farm import MARK_BYTES, Batch, Farm, drive
from workload import hits

CLAIM = "UPDATE {table}_runs SET state = 'running', worker = %s WHERE run BETWEEN %s AND %s AND state = 'pending' RETURNING run"
SELECT = "SELECT run, steps FROM {table}_runs WHERE run = ANY(%s) ORDER BY run"
MARK = "UPDATE {table}_runs SET state = 'complete' WHERE run = ANY(%s)"
INSERT = "INSERT INTO {table} (run, hits, area) VALUES (%s, %s, %s)"


class Rows(Farm):
    batch = 20
    stored_by_workers = True

    def start(self) -> None:
        self.database = psycopg.connect(os.environ["TIDEWIRE_TEST_POSTGRES"], autocommit=True)
        self.database.execute(
            f"CREATE TABLE {self.store.table}_runs (run bigint, steps integer, state text, worker integer)"
        )
        self.database.execute(f"CREATE INDEX ON {self.store.table}_runs (run)")
        self.channel = channel_to(self.store.table)
        self.channel.confirm_delivery()
        for _ in range(self.workers):
            self.run(__file__, "worker")

    def submit(self, batches: Sequence[Batch]) -> None:
        table = f"{self.store.table}_runs"
        if batches[0][0] == 0:
            self.database.execute(f"TRUNCATE {table}")
        with self.database.cursor() as cursor:
            rows = [
                (run, steps) for first, count, steps in dict.fromkeys(batches) for run in range(first, first + count)
            ]
            cursor.executemany(f"INSERT INTO {table} VALUES (%s, %s, 'pending', NULL)", rows)
        for first, count, _ in batches:
            self.channel.basic_publish("", self.store.table, json.dumps([first, first + count - 1]).encode())

    def stop(self) -> None:
        super().stop()
        self.database.execute(f"DROP TABLE {self.store.table}_runs")


class Worker:
    def __init__(self) -> None:
        self.table = os.environ["CAMPAIGN_TABLE"]
        self.database = psycopg.connect(os.environ["TIDEWIRE_TEST_POSTGRES"], autocommit=True)
        self.marks = os.open(os.environ["CAMPAIGN_MARKS"], os.O_WRONLY | os.O_APPEND)

    def serve(self) -> None:
        channel = channel_to(self.table)
        channel.basic_qos(prefetch_count=4)
        channel.basic_consume(self.table, self.batch)
        channel.start_consuming()

    def batch(self, channel: Any, method: Any, _: Any, body: bytes) -> None:
        first, last = json.loads(body)
        claimed = [run for (run,) in self.execute(CLAIM, (os.getpid(), first, last))]
        buffer = []
        for run, steps in self.execute(SELECT, (claimed,)):
            found = hits(run, steps)
            buffer.append((run, found, 4.0 * found / steps))
        self.database.execute(MARK.format(table=self.table), (claimed,))
        if buffer:
            with self.database.transaction(), self.database.cursor() as cursor:
                cursor.executemany(INSERT.format(table=self.table), buffer)
        channel.basic_ack(method.delivery_tag)
        os.write(self.marks, os.getpid().to_bytes(MARK_BYTES, "little"))

    def execute(self, statement: str, values: tuple[Any, ...]) -> list[Any]:
        return self.database.execute(statement.format(table=self.table), values).fetchall()


def channel_to(queue: str) -> Any:
    channel = pika.BlockingConnection(pika.URLParameters(os.environ["TIDEWIRE_TEST_RABBITMQ"])).channel()
    channel.queue_declare(queue, durable=True)
    return channel


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        Worker().serve()
    else:
        drive(Rows)
