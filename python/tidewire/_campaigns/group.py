"""Worker processes of one machine: start, wait handles and end."""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from tidewire._binding import CampaignStore
from tidewire._campaigns.process import WorkerProcess
from tidewire._tracing.process_spans import fields_for_workers
from tidewire.errors import StoreUnavailable, TidewireError

_T = TypeVar("_T")
_PAUSE_FIRST_S, _PAUSE_MOST_S = 0.02, 1.0
_NO_RUN = 2**63 - 1
"""Run of a worker that died between two runs."""


@dataclass
class Options:
    """Options of workers."""

    store: str
    workers: int
    accept_code: bool = False
    store_wait: float = 60.0
    path: list[str] = field(default_factory=lambda: list(sys.path))
    trace: dict[str, str] = field(default_factory=fields_for_workers)


class WorkerGroup:
    """The worker processes of a supervisor; the group reports each death to the store."""

    def __init__(self, store: CampaignStore, options: Options) -> None:
        self.store = store
        self.options = options
        self.workers: list[WorkerProcess] = []
        self.stopping = False
        self._numbers = 0
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)

    def start(self, campaign: int, timeout_us: int | None, work_wait: float | None) -> None:
        """Start a worker of a campaign. It exits after ``work_wait`` seconds without a run."""
        self._numbers += 1
        orders = {
            "store": self.options.store,
            "campaign": campaign,
            "name": f"{os.getpid()}-{self._numbers}",
            "path": self.options.path,
            "accept_code": self.options.accept_code,
            "store_wait": self.options.store_wait,
            "work_wait": work_wait,
            "trace": self.options.trace,
        }
        worker = WorkerProcess(orders, timeout_us)
        self.workers.append(worker)
        self._selector.register(worker, selectors.EVENT_READ)

    def stop(self) -> None:
        """Request the stop, and wake ``sleep``. Safe in any thread and signal handler."""
        self.stopping = True
        with contextlib.suppress(OSError):
            os.write(self._wake_writer, b"x")

    def sleep(self, until: float) -> None:
        """Sleep until a worker ends, a run exceeds its time limit, ``stop`` is called, or the time
        has come.
        """
        now = time.monotonic()
        for worker in self.workers:
            if worker.timeout_us is not None:
                left = worker.left_us()
                # A worker between two runs may begin one now.
                until = min(until, now + (worker.timeout_us if left is None else max(left, 0)) / 1e6)
        for key, _ in self._selector.select(max(until - now, 0.0)):
            if key.fd == self._wake_reader:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_reader, 4_096)

    def take_ended(self) -> Iterator[WorkerProcess]:
        """Iterate over the ended workers. The next step of the iteration closes the last one."""
        for worker in list(self.workers):
            if worker.ended():
                yield from self._release(worker)

    def take_overtime(self) -> Iterator[WorkerProcess]:
        """Kill the workers whose run exceeds its time limit, and iterate over them."""
        for worker in list(self.workers):
            if worker.kill_overtime():
                yield from self._release(worker)

    def report_loss(self, worker: WorkerProcess, *, overtime: bool = False) -> None:
        """Report the death of a worker to the store, with its run.

        Raises:
            StoreUnavailable: if the store is unreachable for too long.
        """
        number, run = worker.number, worker.run
        if number:
            at_run = _NO_RUN if run is None else run
            self.call_store(lambda: self.store.worker_lost(worker.campaign, number, at_run, overtime))

    def call_store(self, call: Callable[[], _T]) -> _T:
        """Call the store, and retry while it is unreachable.

        Raises:
            StoreUnavailable: if it is unreachable for too long.
        """
        began, pause = time.monotonic(), _PAUSE_FIRST_S
        while True:
            try:
                return call()
            except StoreUnavailable:
                if time.monotonic() - began > self.options.store_wait:
                    raise
            # Without the workers: an ended one would wake it repeatedly.
            select.select([self._wake_reader], [], [], pause)
            pause = min(pause * 2, _PAUSE_MOST_S)

    def end(self, within: float) -> None:
        """Stop all workers after their current runs, and kill them after ``within`` seconds."""
        for worker in self.workers:
            worker.stop(within)
        while self.workers:
            now = time.monotonic()
            for worker in self.workers:
                worker.kill_late(now)
            for worker in self.take_ended():
                # A worker that had not joined is not a loss.
                if worker.code != 0 and worker.number:
                    with contextlib.suppress(TidewireError):
                        self.store.worker_lost(worker.campaign, worker.number, _NO_RUN, False)
            if self.workers:
                self.sleep(
                    min((worker.stop_at for worker in self.workers if worker.stop_at is not None), default=now + 1)
                )

    def close(self) -> None:
        """Kill the remaining workers, and release all resources."""
        for worker in list(self.workers):
            for _ in self._release(worker):
                pass
        self._selector.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def _release(self, worker: WorkerProcess) -> Iterator[WorkerProcess]:
        self.workers.remove(worker)
        self._selector.unregister(worker)
        try:
            yield worker
        finally:
            worker.close()
