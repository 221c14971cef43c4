"""The driver of a contender: starts its workers, warms them up, times the runs, kills a worker if
it is told to, counts what is stored.

A contender is a ``Farm``. Its rows are stored by its driver (``results``), or by its workers
(``submit``), which then write a mark for each batch once it is stored. One line of JSON comes out.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from workload import STEPS, hits, lines

Batch = tuple[int, int, int]
"""First run, number of runs, steps of each."""

KILL_AT = 0.3
BATCHES = 20
"""A worker has at least so many batches, so that all end about together."""
LOOK_S, COUNT_S = 0.001, 0.05
MARK_BYTES = 8
WARM_UP_S = 60.0
WARM_UP_STEPS = 83
SAMPLES = 97
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


class Farm(ABC):
    """Workers of one contender."""

    batch = 100
    """How many runs its tasks have."""
    stored_by_workers = False

    def __init__(self, workers: int, store: Store, marks: Marks) -> None:
        self.workers, self.store, self.marks = workers, store, marks
        self.processes: list[subprocess.Popen[bytes]] = []

    @abstractmethod
    def start(self) -> None:
        """Starts the workers; they need not be ready when it returns."""

    def results(self, batches: Sequence[Batch]) -> Iterator[tuple[int, bytes]]:
        """The process and the lines of each batch, in any order, where the driver stores."""
        raise NotImplementedError

    def submit(self, batches: Sequence[Batch]) -> None:
        """Hands batches to the workers, where these store."""
        raise NotImplementedError

    def stop(self) -> None:
        """Ends the workers in order."""
        for process in self.processes:
            process.terminate()

    def run(self, *command: str, **environment: str) -> None:
        """Starts a program that belongs to the farm, in the folder of this file."""
        inherited = {**os.environ, "CAMPAIGN_MARKS": self.marks.path, "CAMPAIGN_TABLE": self.store.table}
        self.processes.append(
            subprocess.Popen(
                [sys.executable, *command],
                cwd=Path(__file__).parent,
                env={**inherited, **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None if "CAMPAIGN_LOUD" in os.environ else subprocess.DEVNULL,
            )
        )


class Store:
    """A table of results in PostgreSQL. It has no key, so that a run that is stored twice is
    seen.
    """

    def __init__(self, url: str, table: str) -> None:
        import psycopg

        self.table = table
        self._connection = psycopg.connect(url, autocommit=True)

    def create(self) -> None:
        self._connection.execute(f"CREATE TABLE {self.table} (run bigint, hits integer, area double precision)")

    def empty(self) -> None:
        self._connection.execute(f"TRUNCATE {self.table}")

    def drop(self) -> None:
        self._connection.execute(f"DROP TABLE IF EXISTS {self.table}")

    def copy(self, rows: bytes) -> None:
        """Stores lines in a transaction."""
        with self._connection.cursor() as cursor, cursor.copy(f"COPY {self.table} FROM STDIN") as copy:
            copy.write(rows)

    def counts(self) -> tuple[int, int]:
        """How many rows there are, and of how many runs."""
        found = self._connection.execute(f"SELECT count(*), count(DISTINCT run) FROM {self.table}").fetchone()
        assert found is not None
        return found[0], found[1]

    def sample(self, count: int) -> dict[int, int]:
        """Some runs with their hits."""
        step = max(1, count // SAMPLES)
        return dict(self._connection.execute(f"SELECT run, hits FROM {self.table} WHERE run % {step} = 0").fetchall())


class Marks:
    """A file that workers append their process to, once for each stored batch: what is seen of them
    without asking the database.
    """

    def __init__(self) -> None:
        handle, self.path = tempfile.mkstemp(prefix="campaign-marks-")
        os.close(handle)

    def count(self) -> int:
        return os.stat(self.path).st_size // MARK_BYTES

    def processes(self) -> set[int]:
        data = Path(self.path).read_bytes()
        ends = range(MARK_BYTES, len(data) + 1, MARK_BYTES)
        return {int.from_bytes(data[end - MARK_BYTES : end], "little") for end in ends}

    def add(self, process: int) -> None:
        with open(self.path, "ab", buffering=0) as file:
            file.write(process.to_bytes(MARK_BYTES, "little"))


class Worker:
    """The side of a worker that stores by itself: one connection, one file of marks."""

    def __init__(self) -> None:
        self._store = Store(os.environ["TIDEWIRE_TEST_POSTGRES"], os.environ["CAMPAIGN_TABLE"])
        self._marks = open(os.environ["CAMPAIGN_MARKS"], "ab", buffering=0)  # noqa: SIM115 (lives as long as the worker)
        self._mark = os.getpid().to_bytes(MARK_BYTES, "little")

    def work(self, first: int, count: int, steps: int) -> None:
        """Makes runs, stores them, marks them."""
        self._store.copy(lines(first, count, steps))
        self._marks.write(self._mark)


class Session:
    """One timed campaign of a farm."""

    def __init__(self, farm: Farm, options: argparse.Namespace) -> None:
        self.farm, self.options = farm, options
        self.steps = options.steps or STEPS[options.workload]
        self.pids: set[int] = set()
        self.stored = self.batch = 0
        self.began = self.last = self.used = 0.0
        self.killed = False
        self.over = threading.Event()

    def warm_up(self) -> None:
        """Small batches until every worker has done some."""
        farm, until = self.farm, time.monotonic() + WARM_UP_S
        batches = [(0, farm.batch, WARM_UP_STEPS)] * (2 * farm.workers)
        submitted = 0
        while len(self.pids) < farm.workers:
            if time.monotonic() > until:
                raise SystemExit(f"{len(self.pids)} of {farm.workers} workers were there after {WARM_UP_S:.0f} s")
            if farm.stored_by_workers:
                farm.submit(batches)
                submitted += len(batches)
                wait_for(farm.marks, submitted, until)
                self.pids = farm.marks.processes()
            else:
                self.pids |= {process for process, _ in farm.results(batches)}
        farm.store.empty()

    def run(self) -> dict[str, float]:
        """The campaign; what was found."""
        count = self.options.count
        batch = self.batch = min(self.farm.batch, max(1, count // (BATCHES * self.farm.workers)))
        batches = [(first, min(batch, count - first), self.steps) for first in range(0, count, batch)]
        used = {process: processor_s(process) for process in self.pids}
        self.began = self.last = time.perf_counter()
        done = threading.Thread(
            target=self._by_workers if self.farm.stored_by_workers else self._by_driver, args=(batches,)
        )
        done.daemon = True
        done.start()
        while not self.over.wait(0.1) and time.perf_counter() - self.last < self.options.patience:
            pass
        self.over.set()
        done.join(1.0)
        self.used = sum(processor_s(process) - before for process, before in used.items())
        return self._figures()

    def _by_driver(self, batches: Sequence[Batch]) -> None:
        try:
            for process, rows in self.farm.results(batches):
                self.farm.store.copy(rows)
                self._progress(self.stored + rows.count(b"\n"))
                self.pids.add(process)
        except Exception as error:  # noqa: BLE001 (whatever ends a peer is a finding)
            print(f"{type(error).__name__}: {str(error).splitlines()[0][:200]}", file=sys.stderr)
        self.over.set()

    def _by_workers(self, batches: Sequence[Batch]) -> None:
        marks, before = self.farm.marks, self.farm.marks.count()
        threading.Thread(target=self.farm.submit, args=(batches,), daemon=True).start()
        seen = 0
        while not self.over.is_set() and not self._whole(seen, len(batches)):
            time.sleep(COUNT_S if self.killed else LOOK_S)
            now = marks.count() - before
            if now != seen:
                seen = now
                self._progress(min(seen * self.batch, self.options.count))
        self.over.set()

    def _whole(self, seen: int, batches: int) -> bool:
        """True if all is stored. After a kill, batches may be missing from the count and the store
        decides.
        """
        if not self.killed:
            return seen >= batches
        return seen >= batches - self.farm.workers and self.farm.store.counts()[1] >= self.options.count

    def _progress(self, stored: int) -> None:
        self.stored, self.last = stored, time.perf_counter()
        if self.options.kill and not self.killed and stored >= KILL_AT * self.options.count:
            self.killed = True
            os.kill(min(self.pids), signal.SIGKILL)

    def _figures(self) -> dict[str, float]:
        rows, runs = self.farm.store.counts()
        wrong = [
            run for run, found in self.farm.store.sample(self.options.count).items() if hits(run, self.steps) != found
        ]
        if wrong or (runs < self.options.count and not self.options.kill):
            raise SystemExit(f"{self.options.count - runs} runs are missing, {len(wrong)} are wrong")
        seconds = self.last - self.began
        figures = {"rate": runs / seconds, "seconds": seconds, "peak_mb": sum(map(peak_mb, self.pids))}
        if not self.options.kill:
            figures["cpu_us"] = self.used * 1e6 / runs
        if self.options.kill:
            figures.update(lost=float(self.options.count - runs), doubled=float(rows - runs))
        return figures


def wait_for(marks: Marks, count: int, until: float) -> None:
    """Looks often."""
    while marks.count() < count:
        if time.monotonic() > until:
            raise SystemExit("the workers did not take up their tasks")
        time.sleep(LOOK_S)


def peak_mb(process: int) -> float:
    """The most resident memory that a process has had; 0 if it is gone."""
    with suppress(OSError), open(f"/proc/{process}/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1e3
    return 0.0


def processor_s(process: int) -> float:
    """The processor time that a process has used so far; 0 if it is gone."""
    with suppress(OSError):
        return time.clock_gettime(~process << 3 | 2)
    return 0.0


def bare_us(steps: int, seconds: float = 0.2) -> float:
    """The processor time of a run in a loop that does nothing else."""
    began, runs = time.process_time(), 0
    while (now := time.process_time()) - began < seconds:
        for run in range(runs, runs + 10):
            hits(run, steps)
        runs += 10
    return (now - began) / runs * 1e6


def options_of() -> argparse.ArgumentParser:
    """The command line of all contenders."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", choices=sorted(STEPS), default="tiny")
    parser.add_argument("--steps", type=int, default=0, help="instead of those of the workload")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--kill", action="store_true", help="SIGKILL for a worker when 30 % is stored")
    parser.add_argument("--kill-every", type=float, default=0.0, help="SIGKILL for some worker every so many seconds")
    parser.add_argument("--cold", action="store_true", help="times everything, from nothing to the last row stored")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds without a row after which it hangs")
    parser.add_argument("--form", default="")
    return parser


def drive(kind: type[Farm]) -> None:
    """Runs a farm as the command line says, and prints its figures."""
    options = options_of().parse_args()
    adopt()
    store = Store(os.environ["TIDEWIRE_TEST_POSTGRES"], f"results_{os.getpid()}")
    store.create()
    marks = Marks()
    farm = kind(options.workers, store, marks)
    try:
        session = Session(farm, options)
        if options.cold:
            say(cold(farm, session))
        else:
            farm.start()
            session.warm_up()
            before = bare_us(session.steps)
            say(with_cost(session.run(), before, bare_us(session.steps)))
    finally:
        store.drop()
        os.unlink(marks.path)
        stopping = threading.Thread(target=farm.stop, daemon=True)
        stopping.start()
        stopping.join(5.0)
        end_all()
        # A pool whose worker was killed would wait for it here for ever.
        os._exit(0 if sys.exc_info()[0] is None else 1)


def cold(farm: Farm, session: Session) -> dict[str, float]:
    """A small campaign together with the start of its workers."""
    began = time.perf_counter()
    farm.start()
    session.run()
    return {"seconds": session.last - began}


def adopt() -> None:
    """Makes this process the parent of what its children leave behind, so that all of it is found
    at the end: also that of the runner.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    system = ctypes.CDLL(None)
    system.prctl(PR_SET_CHILD_SUBREAPER, 1)
    system.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def end_all() -> None:
    """Kills every process below this one."""
    parents = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(place.parent.name)] = int(place.read_text().rpartition(")")[2].split()[1])
    below, found = {os.getpid()}, 0
    while len(below) > found:
        found = len(below)
        below |= {process for process, parent in parents.items() if parent in below}
    for process in below - {os.getpid()}:
        with suppress(OSError):
            os.kill(process, signal.SIGKILL)


def with_cost(figures: dict[str, float], before: float, after: float) -> dict[str, float]:
    """Adds what a run takes of its worker's processor beyond the bare loop, which was timed before
    and after.
    """
    bare = (before + after) / 2
    cost = {"cost_us": figures["cpu_us"] - bare} if "cpu_us" in figures else {}
    return {**figures, "bare_us": bare, **cost}


def say(figures: dict[str, Any]) -> None:
    """The line that the runner reads."""
    print(json.dumps({"figures": figures}), flush=True)
