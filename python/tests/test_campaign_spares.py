"""Spares of campaigns: processes that have loaded the function, and replace workers that die."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import tidewire as tw
from campaign_support import Status, gone, running, server, until, working

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="spares need handles of processes (Linux, pidfd)")

MODULE = """
import os, random, sys, threading, time
import tidewire as tw

LOADED_BY = os.getpid()
{more}

def where(run: tw.Run) -> dict[str, int]:
    time.sleep(0.002)
    return {{"loaded_by": LOADED_BY, "process": os.getpid(), "parent": os.getppid(), "draw": random.getrandbits(60)}}
"""
THREAD = "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()"
FILE = "FILE = open(__file__)"
CHILD = "import subprocess\nCHILD = subprocess.Popen(['sleep', '600'])"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A module of its own with the function ``where``; the parameter is a line more."""
    name = f"module_of_{request.node.name.partition('[')[0]}_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(MODULE.format(more=getattr(request, "param", "")))
    monkeypatch.syspath_prepend(tmp_path)
    return name


def killed(campaign: tw.Campaign, times: int) -> Status:
    """Kill a worker so many times, each once it has stored something, and wait until its successor
    has.
    """
    seen: set[int] = set()
    for _ in range(times):
        status = until(campaign, lambda status: any(busy(worker, seen) for worker in status.workers))
        worker = next(worker for worker in working(status) if busy(worker, seen))
        seen.add(worker.id)
        os.kill(worker.process, signal.SIGKILL)
        assert gone(worker.process)
        until(campaign, lambda status, worker=worker: any(one.id > worker.id and one.runs for one in status.workers))
    return campaign.status()


def busy(worker: object, seen: set[int]) -> bool:
    return worker.state == "working" and worker.runs > 0 and worker.id not in seen  # type: ignore[attr-defined]


def deaths(store: str, module: str, times: int) -> tw.Campaign:
    """A campaign in which workers have died, one after the other."""
    campaign = tw.campaign(f"{module}:where", runs=1_000_000, store=store, range=0.02)
    with running(campaign, workers=1):
        killed(campaign, times)
        campaign.cancel()
    return campaign


@pytest.mark.promise("P15.21", "P15.22", "P15.24")
def test_workers_that_die_are_replaced_by_forks_of_a_process_that_has_loaded_the_function(
    store: str, module: str
) -> None:
    campaign = deaths(store, module, 4)
    rows = list(campaign.results())
    processes = list(dict.fromkeys(row.process for row in rows))
    loaded = {row.process: row.loaded_by for row in rows}
    assert len(processes) >= 5
    # The first two are new processes; by the second death the spare is there, if the machine is not
    # too busy.
    forked = [process for process in processes if loaded[process] != process]
    assert len(forked) >= 2
    assert len({loaded[process] for process in forked}) == 1, "one spare has forked them"
    assert {row.parent for row in rows if row.process in forked} == {loaded[forked[0]]}
    assert loaded[forked[0]] not in processes, "a spare that forks runs nothing itself"
    first = {process: next(row.draw for row in rows if row.process == process) for process in processes}
    assert len(set(first.values())) == len(processes), "Python's own generator is seeded anew in each"
    assert gone(loaded[forked[0]]), "the spare ends with the campaign"


@pytest.mark.promise("P15.22")
@pytest.mark.parametrize("module", [THREAD, FILE, CHILD], indirect=True, ids=["thread", "file", "child"])
def test_a_function_that_has_more_than_a_fork_would_copy_is_never_forked(tmp_path: Path, module: str) -> None:
    campaign = deaths(f"sqlite:///{tmp_path}/farm.db", module, 4)
    rows = list(campaign.results())
    assert len({row.process for row in rows}) >= 5
    assert all(row.loaded_by == row.process and row.parent == os.getpid() for row in rows), "each has loaded it itself"


@pytest.mark.promise("P15.21")
def test_a_campaign_that_loses_no_worker_has_no_spare(tmp_path: Path, module: str) -> None:
    campaign, before = tw.campaign(f"{module}:where", runs=1_000_000, store=f"sqlite:///{tmp_path}/farm.db"), children()
    with running(campaign, workers=2):
        status = until(campaign, lambda status: len([one for one in status.workers if one.runs]) == 2)
        assert children() - before == {worker.process for worker in status.workers}
        campaign.cancel()
    assert children() == before


@pytest.mark.promise("P15.23")
def test_a_spare_that_dies_takes_its_workers_with_it_and_they_are_replaced(store: str, module: str) -> None:
    campaign = tw.campaign(f"{module}:where", runs=1_000_000, store=store, range=0.02)
    with running(campaign, workers=1) as end:
        spare = 0
        while not spare:
            worker = working(killed(campaign, 1))[-1]
            parent = int(Path(f"/proc/{worker.process}/stat").read_text().rpartition(")")[2].split()[1])
            spare = 0 if parent == os.getpid() else parent
        os.kill(spare, signal.SIGKILL)
        assert gone(worker.process)
        until(campaign, lambda status: any(one.id > worker.id and one.runs for one in status.workers))
        campaign.cancel()
        report = end()
    assert campaign.verify() == report.digest


@pytest.mark.promise("P15.23")
def test_forked_workers_end_with_their_starter_and_on_sigterm(tmp_path: Path, module: str) -> None:
    store = f"sqlite:///{tmp_path}/farm.db"
    campaign = tw.campaign(f"{module}:where", runs=1_000_000, store=store, range=0.02)
    campaign.start()
    with server(store, 2, tmp_path) as serving:
        killed(campaign, 3)
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(30) == 0
    status = campaign.status()
    assert (status.leased, status.losses) == (0, 3), "what was at work has left, and stored what it had"
    assert status.done == sum(len(batch.runs) for batch in campaign.batches())
    with server(store, 2, tmp_path) as serving:
        at_work = working(killed(campaign, 3))
        serving.kill()
        assert all(gone(worker.process) for worker in at_work)


def children() -> set[int]:
    """The processes that this one has started."""
    while True:
        threads = Path("/proc/self/task").glob("*/children")
        try:
            return {int(child) for thread in threads for child in thread.read_text().split()}
        except (FileNotFoundError, ProcessLookupError):
            # A thread has ended since it was listed: what it had started is another's now.
            continue
