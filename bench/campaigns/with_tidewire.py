"""Tidewire: ranges of runs are leased to worker processes, results are stored by range, in SQLite
or in PostgreSQL.

The workers are warm: the campaign is paused once all of them are at work, and the clock runs from
there.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import tidewire as tw
from farm import KILL_AT, adopt, bare_us, end_all, options_of, peak_mb, processor_s, say, with_cost
from workload import STEPS, hits

WARM_UP_S = 60.0
AT_WORK_US = 1e6
"""The campaign is long enough for every worker to be met at work."""
STEP_US, OWN_US = 0.25, 2.0
LOOK_S = 0.05
SAMPLE = 97


@dataclass
class Outcome:
    hits: int
    area: float


def simulate(run: tw.Run) -> Outcome:
    steps = run.params["steps"]
    found = hits(run.index, steps)
    return Outcome(found, 4.0 * found / steps)


def main() -> None:
    options = options_of().parse_args()
    adopt()
    with tempfile.TemporaryDirectory(prefix="campaigns-") as folder:
        store = f"sqlite:///{folder}/runs.db" if options.form == "SQLite" else os.environ["TIDEWIRE_TEST_POSTGRES"]
        try:
            say(cold(store, options) if options.cold else timed(store, options))
        finally:
            end_all()


def cold(store: str, options: argparse.Namespace) -> dict[str, float]:
    """A small campaign from its plan to its report, with the start of its workers and of its
    store.
    """
    began = time.perf_counter()
    campaign = tw.campaign("with_tidewire:simulate", runs=options.count, params={"steps": STEPS["tiny"]}, store=store)
    report = campaign.run(options.workers, progress=False)
    seconds = time.perf_counter() - began
    check(campaign, report, STEPS["tiny"])
    return {"seconds": seconds}


def timed(store: str, options: argparse.Namespace) -> dict[str, float]:
    """A campaign whose workers are warm: it is paused once all are at work, and timed from there to
    its last commit.
    """
    steps = options.steps or STEPS[options.workload]
    runs = max(options.count, int(AT_WORK_US * options.workers / (steps * STEP_US + OWN_US)))
    campaign = tw.campaign(
        "with_tidewire:simulate", runs=runs, params={"steps": steps}, name=f"timed-{os.getpid()}", store=store
    )
    running = threading.Thread(
        target=tw.open_campaign(store, campaign.id).run,
        args=(options.workers,),
        kwargs={"progress": False},
        daemon=True,
    )
    running.start()
    warm = warmed_up(campaign, options.workers)
    if runs - warm.done < options.count:
        campaign.extend(options.count - (runs - warm.done))
    bare = bare_us(steps)
    used = {worker.process: processor_s(worker.process) for worker in warm.workers}
    spent, memory = 0.0, 0.0
    campaign.resume()
    killer = Killer(options, warm.done)
    while not (status := campaign.status()).ended:
        killer.look(status)
        spent = max(spent, sum(processor_s(process) - before for process, before in used.items()))
        memory = max(memory, sum(peak_mb(worker.process) for worker in status.workers))
        time.sleep(LOOK_S)
    running.join()
    check(campaign, status, steps)
    runs, seconds = status.done - warm.done, status.seconds - warm.seconds
    figures = {"rate": runs / seconds, "seconds": seconds, "peak_mb": memory}
    if options.kill or options.kill_every:
        lost, doubled = status.runs - status.done, status.rows - status.done
        figures.update(lost=float(lost), doubled=float(doubled), kills=float(killer.kills))
    else:
        figures["cpu_us"] = spent * 1e6 / runs
    return with_cost(figures, bare, bare_us(steps))


class Killer:
    """Kills one worker once a part is stored, or some worker again and again."""

    def __init__(self, options: argparse.Namespace, begun_at: int) -> None:
        self.kills = 0
        self._options, self._begun_at = options, begun_at
        self._random = random.Random(7)
        self._next = time.monotonic() + options.kill_every

    def look(self, status: Any) -> None:
        part = (status.done - self._begun_at) / (status.runs - self._begun_at)
        once = self._options.kill and not self.kills and part >= KILL_AT
        again = self._options.kill_every and time.monotonic() >= self._next
        working = [worker.process for worker in status.workers if worker.state == "working"]
        if working and (once or again):
            with suppress(ProcessLookupError):
                os.kill(self._random.choice(working), signal.SIGKILL)
                self.kills += 1
            self._next += self._options.kill_every


def warmed_up(campaign: tw.Campaign, workers: int) -> Any:
    """Pauses a campaign once every worker has stored something, and waits for what is out: the
    status then.
    """
    until = time.monotonic() + WARM_UP_S
    while sum(worker.runs > 0 for worker in campaign.status().workers) < workers:
        if time.monotonic() > until:
            raise SystemExit(f"the workers were not there after {WARM_UP_S:.0f} s")
        time.sleep(LOOK_S)
    campaign.pause()
    while (status := campaign.status()).leased:
        time.sleep(LOOK_S)
    return status


def check(campaign: tw.Campaign, status: Any, steps: int) -> None:
    """Every run has its row, and some are made again."""
    rows = {row.run: row.hits for row in campaign.results()}
    wrong = [run for run in range(0, status.runs, SAMPLE) if rows.get(run) != hits(run, steps)]
    if wrong or status.state != "done" or len(rows) != status.runs or campaign.verify() != status.digest:
        raise SystemExit(f"{status.state}: {len(wrong)} runs are wrong, {len(rows)} of {status.runs} are there")


if __name__ == "__main__":
    main()
