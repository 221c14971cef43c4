"""Campaigns whose program has gone: what the command line says of them, and how they go on."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import campaign_functions as functions
import pytest
import tidewire as tw
from campaign_support import SUPPORT, gated, plan_of, program, running, until, working
from command_support import run_all
from link_processes import ends
from tidewire._campaigns.store import without_password

RUNS = 1_000
COMMAND = """
import runpy, sys
sys.argv = ["tidewire", "campaign", "run", "campaign_functions:slow_pi", "--runs", "{runs}", "--seed", "7",
            "--name", "pi", "--workers", "2", "--store", {store!r}]
runpy.run_module("tidewire", run_name="__main__")
"""


def tidewire(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_all(arguments, folder=SUPPORT)[0]


@pytest.mark.promise("P15.28", "P15.73", "P15.75")
def test_a_campaign_whose_starter_was_killed_is_interrupted_and_one_command_continues_it(
    store: str, tmp_path: Path, undisturbed: str, gate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", urlsplit(store).password or "")  # No command shows it.
    with gated(gate) as go_on:
        with program(COMMAND.format(runs=RUNS, store=store), tmp_path) as starter:
            campaign = plan_of(store)
            at_work = working(until(campaign, lambda status: status.done > 50 and len(working(status)) == 2))
            assert campaign.status().condition == "running"
            starter.kill()
            starter.wait()
            assert all(ends(worker.process) for worker in at_work)
        [listed] = json.loads(tidewire("campaign", "list", "--store", store, "--json").stdout)
        assert (listed["state"], listed["condition"]) == ("running", "interrupted")
        assert campaign.status().seconds_left is None
        shown = tidewire("campaign", "show", "pi", "--store", store).stdout
        assert "interrupted" in shown and "0 workers at work" in shown and "s left" not in shown
        resumed = tidewire("campaign", "resume", "pi", "--store", store)
        assert resumed.returncode == 1 and "pi is interrupted" in resumed.stdout
        command = shlex.split(resumed.stdout.partition("continue with: ")[2].splitlines()[0])
        assert (
            command[:4] == ["tidewire", "campaign", "continue", "pi"]
            and command[1:] == shlex.split(shown.partition("continue with: ")[2].splitlines()[0])[1:]
        )
        go_on()
        continued = tidewire(*command[1:], "--workers", "2", "--json")
    assert continued.returncode == 0, continued.stderr
    report = json.loads(continued.stdout)
    assert (report["condition"], report["done"], report["digest"]) == ("done", RUNS, undisturbed)
    assert campaign.verify() == undisturbed


@pytest.mark.promise("P15.76")
def test_ctrl_c_says_what_is_stored_and_how_to_go_on(store: str, tmp_path: Path) -> None:
    with program(COMMAND.format(runs=100_000, store=store), tmp_path) as starter:
        campaign = plan_of(store)
        until(campaign, lambda status: status.done > 20)
        starter.send_signal(signal.SIGINT)
        out, err = starter.communicate(timeout=30)
    assert starter.returncode == 130, err
    done = campaign.status().done
    assert f"pi is interrupted: {done:,} of 100,000 runs are stored" in out
    assert f"tidewire campaign continue pi --workers 2 --url {without_password(store)}" in out


@pytest.mark.promise("P15.73", "P15.74")
def test_a_campaign_with_an_owner_or_none_waits_for_workers(store: str) -> None:
    campaign = tw.campaign(functions.pi, runs=RUNS, name="pi", store=store)
    campaign.start()
    assert campaign.status().condition == "waiting for workers"
    with running(campaign, workers=0):
        until(campaign, lambda _: any(str(os.getpid()) in event.reason for event in campaign.events()))
        assert campaign.status().condition == "waiting for workers"
        campaign.pause("lunch")
        assert campaign.status().condition == "paused"
        campaign.cancel()
    assert campaign.status().condition == "cancelled"
