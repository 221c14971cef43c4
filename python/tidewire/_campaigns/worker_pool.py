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
from tidewire._campaigns.supervisor import LOOK_S, STOP_S, Deaths, checked_workers, refusal_of, stopped_by
from tidewire._log import log
from tidewire.errors import CampaignError, StoreUnavailable

_OPEN_AGAIN_S = 2.0
_WORK_WAIT_S = 1.0
"""A worker that has had nothing to run for so long leaves its campaign, and may serve another."""
PROGRESS_S = 10.0
"""How often the progress of campaigns is logged while their workers are at work."""
_IDLE_US = 1_000_000
"""An idle server waits so long for news of its store, and then looks whether it shall end."""
_AGAIN_S = (0.0, 0.5, 1.0, 2.0, 5.0)
"""A campaign whose workers have left it without a run is served again after so long."""


def serve(
    store: str | None = None,
    processes: int | None = None,
    *,
    campaign: str | int | None = None,
    accept_code: bool = False,
    store_wait: float = 60.0,
) -> None:
    """Serve campaigns with worker processes of this machine until SIGTERM or SIGINT. Workers end
    after their runs then.

    Args:
        store: The URL of the store, as for ``tw.campaign``.
        processes: How many; without it as many as there are processors.
        campaign: The name or number of the only campaign that is served.
        accept_code: Works although the code differs from that of a campaign; the store keeps a note
            of it.
        store_wait: Seconds for which a store that is away is waited for.

    Raises:
        InvalidArgument: if an argument is not what is allowed.
        CampaignError: if the store can't be used.
        StoreUnavailable: if it is away for too long.
    """
    check_guard()
    options = Options(url_of(store), checked_workers("processes", processes), accept_code, store_wait)
    connection = _opened(options)
    only = None if campaign is None else connection.find(str(campaign))
    server = Server(connection, options, only)
    text, store = "serves campaigns of %(store)s with %(workers)d processes", shown(options.store)
    log.info("campaign.serving", text, store=store, workers=options.workers)
    with stopped_by(server.stop, signal.SIGTERM, signal.SIGINT):
        server.run()
    log.info("campaign.serving_ended", "serves campaigns of %(store)s no longer", store=store)


def _opened(options: Options) -> CampaignStore:
    """Open the store. One that is away is waited for, with a log line for each attempt."""
    until = time.monotonic() + options.store_wait
    while True:
        try:
            return CampaignStore(options.store, create=False)
        except StoreUnavailable as error:
            left = until - time.monotonic()
            if left <= 0:
                raise
            text = "waits for the store for up to %(left_s).0f s: %(error)s"
            log.warning("campaign.store_away", text, left_s=left, error=error)
            time.sleep(min(_OPEN_AGAIN_S, left))


@dataclass
class _Served:
    """State of a campaign at a server."""

    title: str
    timeout_us: int | None
    ended: int = -1
    """How many runs had ended when the progress was logged last."""
    deaths: Deaths = field(default_factory=Deaths)
    not_before: float = 0.0
    in_vain: int = 0
    refused: bool = False


class Server:
    """Shares its processes out among the campaigns of a store."""

    def __init__(self, store: CampaignStore, options: Options, only: int | None = None) -> None:
        self._group = WorkerGroup(store, options)
        self._only = only
        self._served: dict[int, _Served] = {}
        self._progress_at = time.monotonic() + PROGRESS_S

    def run(self) -> None:
        """Serve until ``stop`` is called.

        Raises:
            StoreUnavailable: if the store is away for too long.
        """
        group = self._group
        try:
            while not group.stopping:
                # A server whose processes are all at work asks the store for nothing.
                waiting = group.patiently(self._waiting) if len(group.workers) < group.options.workers else []
                self._share_out(waiting)
                self._rest(bool(waiting))
                for worker in group.take_ended():
                    self._ended(worker)
                for worker in group.take_overtime():
                    self._lost(worker, overtime=True)
                self._log_progress()
            group.end(STOP_S)
        finally:
            group.close()

    def stop(self) -> None:
        """End after the runs at hand. May be called from signal handlers."""
        self._group.stop()

    def _waiting(self) -> list[int]:
        """Return the campaigns that may have something to run, oldest first."""
        store = self._group.store
        rows = store.campaigns("running")
        if self._only is not None:
            rows = [row for row in rows if row["id"] == self._only]
        numbers = sorted(row["id"] for row in rows if row["done"] + row["failed"] + row["quarantined"] < row["runs"])
        for number in numbers:
            if number not in self._served:
                plan = store.campaign(number)
                self._served[number] = _Served(f"campaign {number} ({plan['name']})", plan["timeout_us"])
        return [number for number in numbers if not self._served[number].refused]

    def _share_out(self, waiting: list[int]) -> None:
        """Give each free process to the campaign that has the fewest of them."""
        group, now = self._group, time.monotonic()
        while len(group.workers) < group.options.workers:
            open_to = [number for number in waiting if self._served[number].not_before <= now]
            if not open_to:
                return
            counts = {number: sum(worker.campaign == number for worker in group.workers) for number in open_to}
            number = min(open_to, key=lambda number: (counts[number], number))
            served = self._served[number]
            group.start(number, served.timeout_us, _WORK_WAIT_S)
            log.info(
                "campaign.worker_joined",
                "%(campaign)s: process %(pid)d joins",
                campaign=served.title,
                pid=group.workers[-1].pid,
            )

    def _rest(self, busy: bool) -> None:
        """Sleep: until something happens to a worker, or in an idle server until the store has
        changed.
        """
        group = self._group
        if group.workers or busy:
            group.sleep(time.monotonic() + LOOK_S)
        else:
            group.patiently(lambda: group.store.wait(_IDLE_US))

    def _ended(self, worker: WorkerProcess) -> None:
        served = self._served[worker.campaign]
        now = time.monotonic()
        if worker.code == 0:
            served.in_vain = 0 if worker.ended_runs else min(served.in_vain + 1, len(_AGAIN_S) - 1)
            served.not_before = now + _AGAIN_S[served.in_vain]
            log.info(
                "campaign.worker_left", "%(campaign)s: process %(pid)d has left", campaign=served.title, pid=worker.pid
            )
            self._log_campaign(worker.campaign)
            return
        self._lost(worker)
        try:
            refusal = refusal_of(worker)
            if refusal is not None:
                raise refusal
            status = self._group.patiently(lambda: self._group.store.status(worker.campaign))
            ended = status["done"] + status["failed"] + status["quarantined"]
            served.not_before = now + served.deaths.pause(worker, ended)
        except StoreUnavailable:
            # The server's own requests show if the store is away for too long.
            served.not_before = now + LOOK_S
        except Exception as error:  # noqa: BLE001
            served.refused = True
            text = "%(campaign)s is not served: %(error)s"
            exc_info = error.__cause__ if isinstance(error, CampaignError) else None
            log.error("campaign.refused", text, exc_info=exc_info, campaign=served.title, error=error)

    def _lost(self, worker: WorkerProcess, *, overtime: bool = False) -> None:
        how = "its run was over its time limit" if overtime else worker.how()
        run = "" if worker.run is None else f" in run {worker.run:,}"
        text, title = f"%(campaign)s: process %(pid)d was lost{run}: %(reason)s", self._served[worker.campaign].title
        log.warning("campaign.worker_lost", text, campaign=title, pid=worker.pid, run=worker.run, reason=how)
        self._group.lost(worker, overtime=overtime)

    def _log_progress(self) -> None:
        """Log how far the campaigns are whose workers are at work, once in a while."""
        if time.monotonic() >= self._progress_at:
            for number in {worker.campaign for worker in self._group.workers}:
                self._log_campaign(number)
            self._progress_at = time.monotonic() + PROGRESS_S

    def _log_campaign(self, number: int) -> None:
        served = self._served[number]
        if not log.logger("campaign").isEnabledFor(logging.INFO):
            return
        status = self._group.patiently(lambda: self._group.store.status(number))
        ended = status["done"] + status["failed"] + status["quarantined"]
        if ended != served.ended:
            served.ended = ended
            runs = f"{status['done']:,} of {status['runs']:,} runs are done"
            bad = f"{status['failed']:,} failed, {status['quarantined']:,} quarantined"
            text = f"%(campaign)s is %(state)s: {runs}, {bad}"
            fields = {"state": status["state"], "runs": status["runs"], "done": status["done"]}
            log.info("campaign.progress", text, campaign=served.title, failed=status["failed"], **fields)
