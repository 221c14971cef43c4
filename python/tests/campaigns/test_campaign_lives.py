"""Campaigns whose workers and starters die, stand still, come and go: each run is stored once, and
the digest is the same.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import campaign_functions as functions
import pytest
import tidewire as tw
from campaign_support import gated, plan_of, program, running, sqlite_alone, until, working
from link_processes import ends
from server_keeper import Keeper

RUNS = 1_000
STARTER = """
import sys
import campaign_functions as functions
import tidewire as tw

if __name__ == "__main__":
    tw.campaign(functions.slow_pi, runs=1_000, seed=7, name="pi", store={store!r}, lease=0.5).run(workers=2)
"""
AT_WORK = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle' AND backend_type = 'client backend'
"""
LOOK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=1.0)
connection.execute("BEGIN IMMEDIATE")
connection.rollback()
"""


@pytest.fixture
def go_on(gate: str) -> Iterator[Callable[[], None]]:
    """Until this is called no campaign of ``slow_pi`` is over, however late the story acts."""
    with gated(gate) as opens:
        yield opens


def plan(store: str, lease: float = 5.0) -> tw.Campaign:
    return tw.campaign(functions.slow_pi, runs=RUNS, seed=7, name="pi", store=store, lease=lease)


def check(report: tw.Report, digest: str) -> None:
    assert (report.state, report.done, report.rows, report.failed, report.quarantined) == ("done", RUNS, RUNS, 0, 0)
    assert (report.digest, report.campaign.verify()) == (digest, digest)


@pytest.mark.promise("P15.17")
def test_the_results_of_a_worker_that_stood_still_beyond_its_lease_are_refused(
    store: str, undisturbed: str, go_on: Callable[[], None]
) -> None:
    campaign = plan(store, lease=2.0)
    with running(campaign) as end:
        still = stop_one_with_a_lease(campaign)
        go_on()
        lost = until(campaign, lambda status: status.losses or status.ended)
        os.kill(still, signal.SIGCONT)
        report = end()
    check(report, undisturbed)
    assert lost.losses == 1


def stop_one_with_a_lease(campaign: tw.Campaign) -> int:
    """Stop a worker. One that stands still and holds no range, or SQLite's lock, too, may go on,
    and another one is tried.
    """
    while True:
        status = until(campaign, lambda status: status.done > 50 and len(working(status)) == 2)
        for worker in working(status):
            os.kill(worker.process, signal.SIGSTOP)
            now = next(other for other in campaign.status().workers if other.id == worker.id)
            if now.leased and others_can_write(campaign.store):
                # Results that it had sent to a server before it stood still are stored by now.
                now = next(other for other in campaign.status().workers if other.id == worker.id)
                if now.leased:
                    return worker.process
            os.kill(worker.process, signal.SIGCONT)


def others_can_write(store: str) -> bool:
    """True if no stopped worker is in the middle of a commit: with SQLite all would wait until the
    commit goes on, and a server ends it by itself.

    Another process looks: a second copy of SQLite in this one would take the locks of the first
    with it as it closes the file.
    """
    if not store.startswith("sqlite"):
        look = ["psql", store, "--no-align", "--tuples-only", "--command", AT_WORK]
        return subprocess.run(look, timeout=60, check=True, capture_output=True, text=True).stdout.strip() == "0"
    look = [sys.executable, "-S", "-c", LOOK, store.removeprefix("sqlite:///")]
    return subprocess.run(look, timeout=60, check=False, stderr=subprocess.DEVNULL).returncode == 0


@sqlite_alone
@pytest.mark.promise("P15.16")
def test_a_lease_is_renewed_while_a_run_holds_the_interpreter(store: str) -> None:
    campaign = tw.campaign(functions.stubborn, runs=8, store=store, lease=2.0)
    report = campaign.run(workers=2, progress=False)
    assert [row.value for row in campaign.results()] == [1] * 8
    assert report.losses == 0


def test_two_starters_of_one_campaign(store: str, tmp_path: Path, undisturbed: str, go_on: Callable[[], None]) -> None:
    campaign = plan(store, lease=0.5)
    with program(STARTER.format(store=store), tmp_path) as other, running(campaign) as end:
        until(plan_of(store), lambda status: len(working(status)) == 4)
        go_on()
        report = end()
        assert other.wait() == 0
    check(report, undisturbed)
    assert len(campaign.report().workers) == 4


@pytest.mark.promise("P15.4", "P15.20")
def test_workers_that_are_killed_again_and_again(store: str, undisturbed: str, go_on: Callable[[], None]) -> None:
    campaign, draw = plan(store), random.Random(3)
    killed: set[int] = set()
    with running(campaign) as end:
        done = 0
        while done < RUNS * 0.8:
            status = until(campaign, lambda status, done=done: status.done > done + 60 or status.done >= RUNS * 0.8)
            done = status.done
            alive = [worker for worker in working(status) if worker.id not in killed]
            if alive:
                worker = draw.choice(alive)
                killed.add(worker.id)
                os.kill(worker.process, signal.SIGKILL)
        go_on()
        report = end()
    check(report, undisturbed)
    assert len(killed) > 2
    assert {worker.id for worker in report.workers if worker.state == "lost"} == killed
    assert len(report.workers) <= 2 + len(killed), "each was replaced once at most"


@pytest.mark.promise("P15.29")
def test_workers_that_are_told_to_end_store_what_they_have(
    store: str, undisturbed: str, go_on: Callable[[], None]
) -> None:
    campaign = plan(store)
    with running(campaign) as end:
        left = working(until(campaign, lambda status: status.done > 50 and status.leased))[0]
        os.kill(left.process, signal.SIGTERM)
        go_on()
        report = end()
    check(report, undisturbed)
    assert report.losses == 0
    assert {worker.id: worker.state for worker in report.workers}[left.id] == "left"


@pytest.mark.promise("P15.48", "P15.53")
def test_a_pause_lets_what_is_out_be_stored_and_leases_no_more(
    store: str, undisturbed: str, go_on: Callable[[], None]
) -> None:
    campaign = plan(store)
    with running(campaign) as end:
        until(campaign, lambda status: status.done > 50)
        seen = [row.run for row in campaign.results()]
        assert len(seen) > 50 and seen == sorted(set(seen)), "results are read while it runs"
        campaign.pause("lunch")
        go_on()
        paused = until(campaign, lambda status: not status.leased)
        assert (paused.state, paused.reason) == ("paused", "lunch")
        assert campaign.status().done == paused.done < RUNS
        campaign.resume()
        check(end(), undisturbed)
    assert [event.after for event in campaign.events()] == ["draft", "running", "paused", "running", "done"]


@pytest.mark.promise("P15.49")
def test_a_campaign_that_is_cancelled_ends_and_keeps_what_was_stored(store: str, go_on: Callable[[], None]) -> None:
    campaign = plan(store)
    with running(campaign) as end:
        until(campaign, lambda status: status.done > 50)
        campaign.cancel("enough")
        go_on()
        report = end()
    assert (report.state, report.reason, report.leased) == ("cancelled", "enough", 0)
    assert 50 < report.done == report.rows < RUNS
    assert campaign.verify() == report.digest
    with pytest.raises(tw.CampaignError, match="cancelled"):
        campaign.resume()


@pytest.mark.promise("P15.35")
def test_a_server_that_is_restarted_in_the_middle_is_waited_for(undisturbed: str, go_on: Callable[[], None]) -> None:
    with Keeper() as keeper:
        campaign = plan(keeper.url, lease=0.5)
        with running(campaign) as end:
            until(campaign, lambda status: status.done > 50)
            assert keeper.order("restart") == {"done": "restart"}
            go_on()
            check(end(), undisturbed)


@pytest.mark.promise("P15.35", "P15.36")
def test_a_server_that_stays_away_ends_a_run_with_its_name(go_on: Callable[[], None]) -> None:
    with Keeper() as keeper:
        campaign = plan(keeper.url, lease=0.5)
        with running(campaign, store_wait=0.5) as end:
            at_work = working(until(campaign, lambda status: status.done > 50))
            keeper.order("stop")
            go_on()
            with pytest.raises(tw.StoreUnavailable) as caught:
                end()
            assert all(ends(worker.process) for worker in at_work)
        assert (caught.value.code, caught.value.retryable) == ("store_unavailable", True)
        keeper.order("start")
        assert campaign.run(workers=1, progress=False).done == RUNS


NOISY = """
import os, signal, sys
from pathlib import Path
import tidewire as tw

def count(run: tw.Run) -> int:
    return run.index

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: None)
    report = tw.campaign(count, runs=20, seed=1, store={store!r}).run(workers=1, progress=False)
    print(report.state, len(report.workers))
else:
    with Path("loads").open("a") as loads:
        print(os.getpid(), file=loads)
    os.killpg(0, signal.SIGTERM)
"""


@sqlite_alone
@pytest.mark.promise("P15.59")
def test_a_worker_that_loads_its_function_leaves_signals_of_the_group_to_its_starter(
    store: str, tmp_path: Path
) -> None:
    with program(NOISY.format(store=store), tmp_path) as starter:
        out, err = starter.communicate(timeout=30)
    assert (starter.returncode, out, err) == (0, "done 1\n", "")
    assert len((tmp_path / "loads").read_text().split()) == 1
