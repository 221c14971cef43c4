"""The supervisor of one campaign's workers: starts them, replaces those that die, ends with the
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
LOOK_S = 0.5
"""How often the state of a campaign is read while it runs."""
STOP_S = 30.0
"""How long a worker may take to end its run when it is told to."""
_GRACE_S = 2.0
"""The same when its campaign has ended: what it does is not stored any more."""
_DEATHS_MAX = 10
"""Workers that may die one after the other without a run that ended."""
_BACKOFF_S = (0.0, 0.0, 0.05, 0.1, 0.2, 0.5, 1.0)


def checked_workers(name: str, workers: Any, least: int = 1) -> int:
    """Return a number of workers; that of the processors if none is given.

    Raises:
        InvalidArgument: if it is none, or not from ``least`` to ``WORKERS_MAX``.
    """
    if workers is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if isinstance(workers, bool) or not isinstance(workers, int) or not least <= workers <= WORKERS_MAX:
        raise InvalidArgument(f"{name}: {workers!r} is not allowed: give {least} to {WORKERS_MAX}")
    return workers


class Supervisor:
    """The workers of one campaign."""

    def __init__(self, store: CampaignStore, campaign: int, options: Options, progress: Progress) -> None:
        self._campaign = campaign
        self._progress = progress
        self._timeout_us: int | None = store.campaign(campaign)["timeout_us"]
        self._group = WorkerGroup(store, options)
        self._deaths = Deaths()
        self._not_before = 0.0
        self._away_since: float | None = None
        self._refused_since: float | None = None
        self._last: Status | None = None

    def run(self) -> Status:
        """Work at the campaign until it has ended or ``stop`` was called, and return its status.

        Raises:
            CampaignError: if the workers can't work at it.
            StoreUnavailable: if the store is away for too long.
        """
        try:
            return self._watch_over()
        finally:
            self._group.close()

    def stop(self) -> None:
        """Have the workers end after the runs that they are in. May be called from any thread and
        from signal handlers.
        """
        self._group.stop()

    def _watch_over(self) -> Status:
        group, look_at = self._group, 0.0
        while True:
            now = time.monotonic()
            if now >= look_at:
                self._look(now)
                look_at = now + LOOK_S
            if (self._last is not None and self._last.ended) or group.stopping:
                group.end(STOP_S if group.stopping else _GRACE_S)
                return group.patiently(self._status)
            while len(group.workers) < group.options.workers and now >= self._not_before:
                group.start(self._campaign, self._timeout_us, None)
            missing = len(group.workers) < group.options.workers
            group.sleep(min(look_at, self._not_before) if missing else look_at)
            for worker in group.take_ended():
                look_at = 0.0
                self._ended(worker)
            for worker in group.take_overtime():
                group.lost(worker, overtime=True)

    def _ended(self, worker: WorkerProcess) -> None:
        if worker.code == 0:
            # The worker was asked to end: another one comes a little later.
            self._not_before = time.monotonic() + LOOK_S
            return
        self._group.lost(worker)
        refusal = refusal_of(worker)
        if refusal is not None:
            self._refused(worker, refusal)
            return
        status = self._group.patiently(self._status)
        self._not_before = time.monotonic() + self._deaths.pause(worker, status.runs - status.left)

    def _refused(self, worker: WorkerProcess, error: Exception) -> None:
        """Another one could not work at the campaign, either, unless it is the store that was
        away.
        """
        if not isinstance(error, StoreUnavailable):
            raise error
        if worker.ended_runs or self._refused_since is None:
            self._refused_since = worker.started
        now = time.monotonic()
        if now - self._refused_since > self._group.options.store_wait:
            raise error
        self._not_before = now + LOOK_S

    # The store

    def _status(self) -> Status:
        row = self._group.store.status(self._campaign)
        condition = condition_of(row, (), 0)
        if self._group.stopping and condition == "waiting for workers":
            condition = "interrupted"
        return Status(**status_fields(row, condition))

    def _look(self, now: float) -> None:
        """Read the status. A store that is away is waited for."""
        try:
            self._last = self._status()
        except StoreUnavailable as error:
            self._away_since = self._away_since or now
            if now - self._away_since > self._group.options.store_wait:
                raise
            if self._last is not None:
                self._progress(self._last, str(error))
            return
        self._away_since = None
        self._progress(self._last, None)


class Deaths:
    """Workers that have died one after the other, while no run has ended."""

    def __init__(self) -> None:
        self._count = 0
        self._ended = -1

    def pause(self, worker: WorkerProcess, ended: int) -> float:
        """Note a death, with the number of runs that have ended by then. Returns the seconds before
        another one is started.

        Raises:
            CampaignError: if it was one too many.
        """
        if ended != self._ended:
            self._count, self._ended = 0, ended
        self._count += 1
        if self._count >= _DEATHS_MAX:
            run = worker.run
            at = "before it began a run" if run is None else f"in run {run}"
            raise CampaignError(
                f"{self._count} workers have died one after the other, and no run has ended meanwhile; the last one {at} "
                f"({worker.how()}): read what it has printed, or look whether it had too little memory",
                kind="workers",
            )
        return _BACKOFF_S[min(self._count, len(_BACKOFF_S) - 1)]


@contextlib.contextmanager
def stopped_by(stop: Callable[[], None], *numbers: signal.Signals) -> Iterator[None]:
    """Have signals call ``stop``; a second one does what it did before. Does nothing off the main
    thread.
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
    """Return the error with which a worker has refused; None if it ended in another way."""
    if worker.code == REFUSED and (said := worker.said()):
        return _error_of(said)
    if worker.code == WITHOUT_FILES and (run := worker.run) is not None:
        return CampaignError(
            f"run {run} closed file descriptors that it had not opened (os.closerange, a daemon library?), those of its"
            " worker among them: close only your own",
            kind="function",
        )
    return None


def _error_of(said: dict[str, Any]) -> Exception:
    message = str(said.get("message", ""))
    kind = getattr(errors, str(said.get("class")), None) if said.get("known") else None
    if isinstance(kind, type) and issubclass(kind, CampaignError):
        return kind(message, kind=said.get("kind"))
    if isinstance(kind, type) and issubclass(kind, errors.TidewireError):
        return kind(message)
    error = CampaignError(
        f"a worker can't load the function: {said.get('class')}: {message}. Workers import it, each in a process of its own",
        kind="function",
    )
    error.__cause__ = errors.RemoteTraceback(str(said.get("traceback", "")))
    return error
