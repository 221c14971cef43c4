"""``tidewire worker``: worker processes that serve all campaigns of a store with pending runs."""

from __future__ import annotations

import logging
import signal
import time
from dataclasses import dataclass, field

from tidewire._binding import CampaignStore
from tidewire._campaigns.code import check_guard
from tidewire._campaigns.group import Options, WorkerGroup
from tidewire._campaigns.process import WorkerProcess
from tidewire._campaigns.store import shown, url_of
from tidewire._campaigns.supervisor import REFRESH_S, STOP_S, Deaths, checked_workers, refusal_of, stopped_by
from tidewire._log import log
from tidewire.errors import CampaignError, StoreUnavailable

_REOPEN_S = 2.0
_WORK_WAIT_S = 1.0
"""Seconds without a run after which a worker leaves its campaign, and may serve another."""
PROGRESS_S = 10.0
"""Interval at which the progress of campaigns with workers is logged."""
_IDLE_US = 1_000_000
"""Most microseconds that an idle server waits for its store before it checks for a stop."""
_RETRY_S = (0.0, 0.5, 1.0, 2.0, 5.0)
"""Pauses of a campaign whose workers have left without a run, by their number."""


def serve(
    store: str | None = None,
    processes: int | None = None,
    *,
    campaign: str | int | None = None,
    accept_code: bool = False,
    store_wait: float = 60.0,
) -> None:
    """Serve campaigns with worker processes of this machine until SIGTERM or SIGINT. The workers
    then end after their current runs.

    Args:
        store: The URL of the store, as for ``tw.campaign``.
        processes: Number of processes; by default one for each processor.
        campaign: The name or number of a campaign, to serve only this one.
        accept_code: True to run code that differs from that of a campaign; the store records this
            as an event.
        store_wait: Seconds to wait for an unreachable store.

    Raises:
        InvalidArgument: if an argument is not allowed.
        CampaignError: if the store is unusable.
        StoreUnavailable: if it is unreachable for longer than ``store_wait``.
    """
    check_guard()
    options = Options(url_of(store), checked_workers("processes", processes), accept_code, store_wait)
    connection = _open_store(options)
    only = None if campaign is None else connection.find(str(campaign))
    server = Server(connection, options, only)
    text, store = "serves campaigns of %(store)s with %(workers)d processes", shown(options.store)
    log.info("campaign.serving", text, store=store, workers=options.workers)
    with stopped_by(server.stop, signal.SIGTERM, signal.SIGINT):
        server.run()
    log.info("campaign.serving_ended", "serves campaigns of %(store)s no longer", store=store)


def _open_store(options: Options) -> CampaignStore:
    """Open the store. Retry while it is unreachable, with a log line for each attempt."""
    deadline = time.monotonic() + options.store_wait
    while True:
        try:
            return CampaignStore(options.store, create=False)
        except StoreUnavailable as error:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise
            text = "waits for the store for up to %(left_s).0f s: %(error)s"
            log.warning("campaign.store_away", text, left_s=left_s, error=error)
            time.sleep(min(_REOPEN_S, left_s))


@dataclass
class _CampaignState:
    """State of a campaign at a server."""

    title: str
    timeout_us: int | None
    ended: int = -1
    """Number of ended runs at the last log line of its progress."""
    deaths: Deaths = field(default_factory=Deaths)
    not_before: float = 0.0
    idle_exits: int = 0
    refused: bool = False


class Server:
    """Server that distributes its processes over the campaigns of a store."""

    def __init__(self, store: CampaignStore, options: Options, only: int | None = None) -> None:
        self._group = WorkerGroup(store, options)
        self._only = only
        self._states: dict[int, _CampaignState] = {}
        self._progress_at = time.monotonic() + PROGRESS_S

    def run(self) -> None:
        """Serve until ``stop`` is called.

        Raises:
            StoreUnavailable: if the store is unreachable for too long.
        """
        group = self._group
        try:
            while not group.stopping:
                # With all processes busy the server does not query the store.
                pending = (
                    group.call_store(self._pending_campaigns) if len(group.workers) < group.options.workers else []
                )
                self._assign_processes(pending)
                self._wait(bool(pending))
                for worker in group.take_ended():
                    self._handle_end(worker)
                for worker in group.take_overtime():
                    self._report_loss(worker, overtime=True)
                self._log_progress()
            group.end(STOP_S)
        finally:
            group.close()

    def stop(self) -> None:
        """End after the current runs. Safe in signal handlers."""
        self._group.stop()

    def _pending_campaigns(self) -> list[int]:
        """Return the campaigns that may have pending runs, oldest first."""
        store = self._group.store
        rows = store.campaigns("running")
        if self._only is not None:
            rows = [row for row in rows if row["id"] == self._only]
        numbers = sorted(row["id"] for row in rows if row["done"] + row["failed"] + row["quarantined"] < row["runs"])
        for number in numbers:
            if number not in self._states:
                plan = store.campaign(number)
                self._states[number] = _CampaignState(f"campaign {number} ({plan['name']})", plan["timeout_us"])
        return [number for number in numbers if not self._states[number].refused]

    def _assign_processes(self, pending: list[int]) -> None:
        """Assign each free process to the pending campaign with the fewest processes."""
        group, now = self._group, time.monotonic()
        while len(group.workers) < group.options.workers:
            open_to = [number for number in pending if self._states[number].not_before <= now]
            if not open_to:
                return
            counts = {number: sum(worker.campaign == number for worker in group.workers) for number in open_to}
            number = min(open_to, key=lambda number: (counts[number], number))
            state = self._states[number]
            group.start(number, state.timeout_us, _WORK_WAIT_S)
            log.info(
                "campaign.worker_joined",
                "%(campaign)s: process %(pid)d joins",
                campaign=state.title,
                pid=group.workers[-1].pid,
            )

    def _wait(self, has_pending: bool) -> None:
        """Wait for an event of a worker, or in an idle server for a change of the store."""
        group = self._group
        if group.workers or has_pending:
            group.sleep(time.monotonic() + REFRESH_S)
        else:
            group.call_store(lambda: group.store.wait(_IDLE_US))

    def _handle_end(self, worker: WorkerProcess) -> None:
        state = self._states[worker.campaign]
        now = time.monotonic()
        if worker.code == 0:
            state.idle_exits = 0 if worker.ended_runs else min(state.idle_exits + 1, len(_RETRY_S) - 1)
            state.not_before = now + _RETRY_S[state.idle_exits]
            log.info(
                "campaign.worker_left", "%(campaign)s: process %(pid)d has left", campaign=state.title, pid=worker.pid
            )
            self._log_campaign(worker.campaign)
            return
        self._report_loss(worker)
        try:
            refusal = refusal_of(worker)
            if refusal is not None:
                raise refusal
            status = self._group.call_store(lambda: self._group.store.status(worker.campaign))
            ended = status["done"] + status["failed"] + status["quarantined"]
            state.not_before = now + state.deaths.pause(worker, ended)
        except StoreUnavailable:
            # The server's own requests raise if the store is unreachable for too long.
            state.not_before = now + REFRESH_S
        except Exception as error:  # noqa: BLE001
            state.refused = True
            text = "%(campaign)s is not served: %(error)s"
            exc_info = error.__cause__ if isinstance(error, CampaignError) else None
            log.error("campaign.refused", text, exc_info=exc_info, campaign=state.title, error=error)

    def _report_loss(self, worker: WorkerProcess, *, overtime: bool = False) -> None:
        reason = "its run was over its time limit" if overtime else worker.how()
        run = "" if worker.run is None else f" in run {worker.run:,}"
        text, title = f"%(campaign)s: process %(pid)d was lost{run}: %(reason)s", self._states[worker.campaign].title
        log.warning("campaign.worker_lost", text, campaign=title, pid=worker.pid, run=worker.run, reason=reason)
        self._group.report_loss(worker, overtime=overtime)

    def _log_progress(self) -> None:
        """Log the progress of campaigns with workers every ``PROGRESS_S`` seconds."""
        if time.monotonic() >= self._progress_at:
            for number in {worker.campaign for worker in self._group.workers}:
                self._log_campaign(number)
            self._progress_at = time.monotonic() + PROGRESS_S

    def _log_campaign(self, number: int) -> None:
        state = self._states[number]
        if not log.logger("campaign").isEnabledFor(logging.INFO):
            return
        status = self._group.call_store(lambda: self._group.store.status(number))
        ended = status["done"] + status["failed"] + status["quarantined"]
        if ended != state.ended:
            state.ended = ended
            runs = f"{status['done']:,} of {status['runs']:,} runs are done"
            bad = f"{status['failed']:,} failed, {status['quarantined']:,} quarantined"
            text = f"%(campaign)s is %(state)s: {runs}, {bad}"
            fields = {"state": status["state"], "runs": status["runs"], "done": status["done"]}
            log.info("campaign.progress", text, campaign=state.title, failed=status["failed"], **fields)
