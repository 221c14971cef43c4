"""Processes that serve the campaigns of a store: `tidewire worker`."""

from __future__ import annotations

import json
import os
import random
import re
import signal
from pathlib import Path

import campaign_functions as functions
import pytest
import tidewire as tw
from campaign_support import program, server, sqlite_alone, until, working
from link_processes import ends


def started(campaign: tw.Campaign) -> tw.Campaign:
    """Leave the runs to whoever serves the store."""
    campaign.resume()
    return campaign


def test_a_server_runs_two_campaigns_and_one_that_comes_later(store: str, tmp_path: Path) -> None:
    plans = [tw.campaign(functions.pi, runs=3_000, seed=seed, store=store) for seed in (1, 2)]
    first = [started(plan) for plan in plans]
    with server(store, 2, tmp_path) as serving:
        for campaign in first:
            until(campaign, lambda status: status.state == "done")
        later = started(tw.campaign(functions.pi, runs=100, seed=1, store=store))
        until(later, lambda status: status.state == "done")
        serving.send_signal(signal.SIGTERM)
        _, err = serving.communicate(timeout=30)
        assert serving.returncode == 0
        lines = [re.fullmatch(r"\d{4}-\d\d-\d\dT\S+[+-]\d\d:\d\d INFO    (.*)", line) for line in err.splitlines()]
        logged = [line[1] for line in lines if line is not None]
        assert len(logged) == len(lines), err
        assert "with 2 processes" in logged[0] and logged[-1].endswith("no longer")
        for campaign in (*first, later):
            title = f"campaign {campaign.id} ({campaign.name})"
            assert any(line.startswith(f"{title}: process ") and line.endswith(" joins") for line in logged), err
            done = f"{title} is done: 3,000 of 3,000 runs are done"
            assert campaign is later or any(line.startswith(done) for line in logged), err
    assert [campaign.verify() for campaign in first] == [campaign.status().digest for campaign in first]
    rows = [tuple(row) for row in first[0].results()]
    assert [tuple(row) for row in later.results()] == rows[:100]


def test_a_campaign_that_only_servers_run(store: str, tmp_path: Path) -> None:
    expected = tw.campaign(functions.pi, runs=500, seed=9, store=store).run(workers=1, progress=False).digest
    campaign = tw.campaign(functions.pi, runs=500, seed=9, store=store)
    with server(store, 2, tmp_path) as serving:
        report = campaign.run(workers=0, progress=False)
        assert (report.state, report.digest, report.campaign.verify()) == ("done", expected, expected)
        assert all(worker.name.startswith(f"{serving.pid}-") for worker in report.workers)
        other = tw.campaign(functions.pi, runs=500, seed=9, store=store)
        other.start()
        assert until(other, lambda status: status.ended).digest == expected
        with pytest.raises(tw.CampaignError, match="is done and can't become running"):
            other.start()


def test_a_server_logs_a_worker_that_was_lost_as_an_object(store: str, tmp_path: Path) -> None:
    campaign = started(tw.campaign(functions.slow_pi, runs=100_000, store=store))
    with server(store, 1, tmp_path, "--log-level", "warning", "--log-format", "json") as serving:
        [worker] = working(until(campaign, lambda status: status.done > 5 and len(working(status)) == 1))
        os.kill(worker.process, signal.SIGKILL)
        line = json.loads(serving.stderr.readline())
        assert (line["level"], line["event_name"]) == ("warning", "campaign.worker_lost")
        text = rf"campaign {campaign.id} \(.*\): process {worker.process} was lost( in run [\d,]+)?: killed by SIGKILL"
        assert re.fullmatch(text, line["message"])


@sqlite_alone
def test_a_server_that_starts_before_its_store_waits_for_it(store: str, tmp_path: Path) -> None:
    later = f"sqlite:///{tmp_path}/later.db"
    with server(later, 1, tmp_path) as serving:
        line = serving.stderr.readline()
        assert "waits for the store for up to 60 s: " in line and "later.db" in line
        campaign = started(tw.campaign(functions.pi, runs=10, store=later))
        assert until(campaign, lambda status: status.ended).done == 10


@pytest.mark.promise("P15.29")
def test_a_server_that_is_told_to_end_stores_what_it_has_and_its_workers_end(store: str, tmp_path: Path) -> None:
    campaign = started(tw.campaign(functions.slow_pi, runs=100_000, store=store))
    with server(store, 2, tmp_path) as serving:
        at_work = working(until(campaign, lambda status: status.done > 50 and len(working(status)) == 2))
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(30) == 0
        assert all(ends(worker.process) for worker in at_work)
    status = campaign.status()
    assert (status.state, status.leased, status.losses) == ("running", 0, 0)
    assert status.done == sum(len(batch.runs) for batch in campaign.batches())


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_servers_that_join_leave_and_are_killed_change_nothing_but_the_speed(store: str, tmp_path: Path) -> None:
    expected = tw.campaign(functions.pi, runs=3_000, seed=9, store=store).run(workers=1, progress=False).digest
    campaign = started(tw.campaign(functions.slow_pi, runs=3_000, seed=9, store=store, lease=2.0))
    draw = random.Random(1)
    joined = 0
    while not campaign.status().ended:
        with server(store, 2, tmp_path) as process:
            joined += 1
            done = campaign.status().done
            until(campaign, lambda status, done=done: status.ended or status.done > done + 350)
            # Near the end those runs are handed out with which a worker was lost: a second loss
            # would quarantine them.
            signals = [signal.SIGTERM, signal.SIGKILL] if campaign.status().done < 2_300 else [signal.SIGTERM]
            process.send_signal(draw.choice(signals))
            process.wait(30)
    assert (campaign.status().digest, campaign.verify(), campaign.status().rows) == (expected, expected, 3_000)
    assert joined > 2


@sqlite_alone
@pytest.mark.promise("P15.27")
def test_a_campaign_that_can_not_be_served_does_not_hold_up_the_others(store: str, tmp_path: Path) -> None:
    module = tmp_path / "gone_tomorrow.py"
    module.write_text("def simulate(run): return 1\n")
    code = "import gone_tomorrow, tidewire as tw\ntw.campaign(gone_tomorrow.simulate, runs=5, name='gone', store={!r}).resume()\n"
    with program(code.format(store), tmp_path) as planner:
        assert planner.wait(30) == 0
    module.unlink()
    good = started(tw.campaign(functions.pi, runs=100, store=store))
    with server(store, 1, tmp_path) as serving:
        until(good, lambda status: status.state == "done")
        serving.send_signal(signal.SIGTERM)
        _, err = serving.communicate(timeout=30)
    assert "campaign 1 (gone) is not served: a worker can't load the function: ModuleNotFoundError" in err
    assert tw.open_campaign(store, "gone").status().done == 0


@sqlite_alone
def test_two_servers_see_a_quarantine_and_a_time_limit(store: str, tmp_path: Path) -> None:
    killing = started(tw.campaign(functions.killing, runs=30, store=store))
    endless = started(tw.campaign(functions.endless, runs=8, timeout=0.2, attempts=1, store=store))
    with server(store, 2, tmp_path):
        assert until(killing, lambda status: status.state == "done").quarantined == 2
        assert until(endless, lambda status: status.state == "done").failed == 1


def test_two_versions_of_python_or_tidewire_do_not_mix(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tw.__version__
    monkeypatch.setattr(tw, "__version__", "9.9.9")
    campaign = tw.campaign(functions.number, runs=5, store=store)
    monkeypatch.undo()
    with pytest.raises(tw.CodeChanged, match=r"tidewire 9\.9\.9 there"):
        campaign.run(workers=1, progress=False)
    assert campaign.run(workers=1, progress=False, accept_code=True).done == 5
    assert any(f"tidewire 9.9.9 there, {here} here" in event.reason for event in campaign.events())
    if store.startswith("sqlite"):
        kept = b"".join(file.read_bytes() for file in tmp_path.glob("farm.db*"))
        assert str(Path(__file__).parent).encode() not in kept, "the store has no paths of this machine"
