"""Tidewire: ranges of runs are leased to worker processes, results are stored by range, in SQLite or in PostgreSQL.

The workers are warm: they serve a store (`tidewire worker`), have done a first campaign, and wait for the one that is timed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tidewire as tw
from farm import KILL_AT, adopt, bare_us, end_all, options_of, peak_mb, say, with_cost
from workload import STEPS, hits

WARM_UP_S = 60.0
LOOK_S = 0.02
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
    steps = options.steps or STEPS[options.workload]
    adopt()
    with tempfile.TemporaryDirectory(prefix="campaigns-") as folder:
        store = f"sqlite:///{folder}/farm.db" if options.form == "SQLite" else os.environ["TIDEWIRE_TEST_POSTGRES"]
        try:
            serving = start(store, options.workers)
            before = bare_us(steps)
            figures = timed(store, f"timed-{os.getpid()}", steps, options)
            serving.send_signal(signal.SIGTERM)
            say(with_cost(figures, before, bare_us(steps), options.workers))
        finally:
            end_all()


def start(store: str, workers: int) -> subprocess.Popen[bytes]:
    """Starts workers, and has all of them take part in a first campaign."""
    warm = planned(store, f"warm-{os.getpid()}", 1_000_000, STEPS["tiny"])
    command = [sys.executable, "-m", "tidewire", "worker", store, "--processes", str(workers)]
    serving = subprocess.Popen(command, cwd=Path(__file__).parent, stdin=subprocess.DEVNULL)
    warm.resume()
    until = time.monotonic() + WARM_UP_S
    while sum(worker.runs > 0 for worker in warm.status().workers) < workers:
        if time.monotonic() > until:
            raise SystemExit(f"the workers were not there after {WARM_UP_S:.0f} s")
        time.sleep(LOOK_S)
    warm.cancel()
    return serving


def planned(store: str, name: str, runs: int, steps: int) -> tw.Campaign:
    """A campaign of the function as workers import it."""
    return tw.campaign("with_tidewire:simulate", runs=runs, params={"steps": steps}, name=name, store=store)


def timed(store: str, name: str, steps: int, options: Any) -> dict[str, float]:
    """The campaign: from its first lease to its last commit, by the store's clock."""
    campaign = planned(store, name, options.count, steps)
    killed, memory = False, 0.0
    campaign.resume()
    while not (status := campaign.status()).ended:
        if options.kill and not killed and status.done >= KILL_AT * options.count:
            os.kill(next(worker.process for worker in status.workers if worker.state == "working"), signal.SIGKILL)
            killed = True
        memory = max(memory, sum(peak_mb(worker.process) for worker in status.workers))
        time.sleep(LOOK_S)
    rows = {row.run: row.hits for row in campaign.results()}
    wrong = [run for run in range(0, options.count, SAMPLE) if rows.get(run) != hits(run, steps)]
    if wrong or status.rows != len(rows) or campaign.verify() != status.digest:
        raise SystemExit(f"{len(wrong)} runs are wrong, {status.rows} rows for {len(rows)} runs")
    figures = {"rate": status.done / status.seconds, "seconds": status.seconds, "peak_mb": memory}
    if options.kill:
        figures.update(lost=float(options.count - len(rows)), doubled=float(status.rows - len(rows)))
    return figures


if __name__ == "__main__":
    main()
