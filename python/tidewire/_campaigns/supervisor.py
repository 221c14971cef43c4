"""The supervisor of one campaign's workers: starts them, replaces dead ones, and ends with the
campaign.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from tidewire import errors
from tidewire._binding import CampaignStore
from tidewire._campaigns.group import Options, WorkerGroup
from tidewire._campaigns.owner import condition_of
from tidewire._campaigns.process import WorkerProcess
from tidewire._campaigns.progress import Progress
from tidewire._campaigns.report import Status, status_fields
from tidewire._campaigns.worker import REFUSED, WITHOUT_FILES
from tidewire.errors import CampaignError, InvalidArgument, StoreUnavailable

WORKERS_MAX = 1_024
REFRESH_S = 0.5
"""Interval at which the state of a running campaign is read."""
STOP_S = 30.0
"""Most seconds for the current run of a worker during a stop."""
_GRACE_S = 2.0
"""The same after the end of the campaign, which stores no more results."""
_DEATHS_MAX = 10
"""Number of consecutive deaths without an ended run that fails the campaign."""
_BACKOFF_S = (0.0, 0.0, 0.05, 0.1, 0.2, 0.5, 1.0)


def checked_workers(name: str, workers: Any, least: int = 1) -> int:
    """Return the number of workers; by default the number of processors.

    Raises:
        InvalidArgument: if it is not a whole number from ``least`` to ``WORKERS_MAX``.
    """
    if workers is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if isinstance(workers, bool) or not isinstance(workers, int) or not least <= workers <= WORKERS_MAX:
        raise InvalidArgument(f"{name}: {workers!r} is not allowed: give {least} to {WORKERS_MAX}")
    return workers


class Supervisor:
    """Supervisor of the workers of one campaign."""

    def __init__(self, store: CampaignStore, campaign: int, options: Options, progress: Progress) -> None:
        self._campaign = campaign
        self._progress = progress
        self._timeout_us: int | None = store.campaign(campaign)["timeout_us"]
        self._group = WorkerGroup(store, options)
        self._deaths = Deaths()
        self._not_before = 0.0
        self._unreachable_since: float | None = None
        self._refused_since: float | None = None
        self._last: Status | None = None

    def run(self) -> Status:
        """Supervise the workers until the campaign ends or ``stop`` is called. Return its status.

        Raises:
            CampaignError: if the workers can't run it.
            StoreUnavailable: if the store is unreachable for too long.
        """
        try:
            return self._supervise()
        finally:
            self._group.close()

    def stop(self) -> None:
        """Stop the workers after their current runs. Safe in any thread and signal handler."""
        self._group.stop()

    def _supervise(self) -> Status:
        group, refresh_at = self._group, 0.0
        while True:
            now = time.monotonic()
            if now >= refresh_at:
                self._refresh(now)
                refresh_at = now + REFRESH_S
            if (self._last is not None and self._last.ended) or group.stopping:
                group.end(STOP_S if group.stopping else _GRACE_S)
                return group.call_store(self._status)
            while len(group.workers) < group.options.workers and now >= self._not_before:
                group.start(self._campaign, self._timeout_us, None)
            missing = len(group.workers) < group.options.workers
            group.sleep(min(refresh_at, self._not_before) if missing else refresh_at)
            for worker in group.take_ended():
                refresh_at = 0.0
                self._handle_end(worker)
            for worker in group.take_overtime():
                group.report_loss(worker, overtime=True)

    def _handle_end(self, worker: WorkerProcess) -> None:
        if worker.code == 0:
            # The worker was asked to end. Its replacement starts a little later.
            self._not_before = time.monotonic() + REFRESH_S
            return
        self._group.report_loss(worker)
        refusal = refusal_of(worker)
        if refusal is not None:
            self._handle_refusal(worker, refusal)
            return
        status = self._group.call_store(self._status)
        self._not_before = time.monotonic() + self._deaths.pause(worker, status.runs - status.left)

    def _handle_refusal(self, worker: WorkerProcess, error: Exception) -> None:
        """Raise the refusal of a worker, except for a store that is unreachable for a short
        time.
        """
        if not isinstance(error, StoreUnavailable):
            raise error
        if worker.ended_runs or self._refused_since is None:
            self._refused_since = worker.started
        now = time.monotonic()
        if now - self._refused_since > self._group.options.store_wait:
            raise error
        self._not_before = now + REFRESH_S

    # The store

    def _status(self) -> Status:
        row = self._group.store.status(self._campaign)
        condition = condition_of(row, (), 0)
        if self._group.stopping and condition == "waiting for workers":
            condition = "interrupted"
        return Status(**status_fields(row, condition))

    def _refresh(self, now: float) -> None:
        """Read the status. Tolerate an unreachable store for ``store_wait`` seconds."""
        try:
            self._last = self._status()
        except StoreUnavailable as error:
            self._unreachable_since = self._unreachable_since or now
            if now - self._unreachable_since > self._group.options.store_wait:
                raise
            if self._last is not None:
                self._progress(self._last, str(error))
            return
        self._unreachable_since = None
        self._progress(self._last, None)


class Deaths:
    """Counter of consecutive deaths of workers without an ended run."""

    def __init__(self) -> None:
        self._count = 0
        self._ended_runs = -1

    def pause(self, worker: WorkerProcess, ended: int) -> float:
        """Count a death, and return the seconds before the next start. ``ended`` is the present
        number of ended runs.

        Raises:
            CampaignError: if there were too many deaths.
        """
        if ended != self._ended_runs:
            self._count, self._ended_runs = 0, ended
        self._count += 1
        if self._count >= _DEATHS_MAX:
            run = worker.run
            at = "before it began a run" if run is None else f"in run {run}"
            raise CampaignError(
                f"{self._count} workers have died one after the other, and no run has ended meanwhile; the last one {at} "
                f"({worker.how()}): read its output, or check whether it ran out of memory",
                kind="workers",
            )
        return _BACKOFF_S[min(self._count, len(_BACKOFF_S) - 1)]


@contextlib.contextmanager
def stopped_by(stop: Callable[[], None], *numbers: signal.Signals) -> Iterator[None]:
    """Call ``stop`` at the first signal; a second one has its previous handler. Do nothing off the
    main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in numbers}

    def handle(number: int, _: object) -> None:
        signal.signal(number, before[signal.Signals(number)] or signal.SIG_DFL)
        stop()

    try:
        for number in numbers:
            signal.signal(number, handle)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def refusal_of(worker: WorkerProcess) -> Exception | None:
    """Return the error of a worker that can't run the campaign; None for another end."""
    if worker.code == REFUSED and (message_fields := worker.final_message()):
        return _error_of(message_fields)
    if worker.code == WITHOUT_FILES and (run := worker.run) is not None:
        return CampaignError(
            f"run {run} closed file descriptors of its worker, which it had not opened (os.closerange, a daemon library?):"
            " close only your own",
            kind="function",
        )
    return None


def _error_of(message_fields: dict[str, Any]) -> Exception:
    message = str(message_fields.get("message", ""))
    kind = getattr(errors, str(message_fields.get("class")), None) if message_fields.get("known") else None
    if isinstance(kind, type) and issubclass(kind, CampaignError):
        return kind(message, kind=message_fields.get("kind"))
    if isinstance(kind, type) and issubclass(kind, errors.TidewireError):
        return kind(message)
    error = CampaignError(
        f"a worker can't load the function: {message_fields.get('class')}: {message}. Workers import it, each in a process of its own",
        kind="function",
    )
    error.__cause__ = errors.RemoteTraceback(str(message_fields.get("traceback", "")))
    return error
