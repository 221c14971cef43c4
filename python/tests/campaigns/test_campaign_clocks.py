"""Campaigns whose clocks are set while leases are out: that of a worker's machine, and that of the
store.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import campaign_functions as functions
import pytest
import tidewire as tw
from campaign_support import gated, running, server, until, working
from clock_support import WHY_NOT, ProcessClock
from test_campaign_lives import stop_one_with_a_lease

RUNS = 1_000
HOUR_S = 3_600
# Found before that of the server, which is in pg_catalog.
CLOCK_OF_THE_STORE = """
CREATE TABLE public.clock_set (seconds double precision NOT NULL);
INSERT INTO public.clock_set VALUES (0);
CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
    'SELECT pg_catalog.clock_timestamp() + make_interval(secs => seconds) FROM public.clock_set';
ALTER DATABASE {name} SET search_path = public, pg_catalog;
"""


class Clock:
    """A PostgreSQL database whose clock can be set."""

    def __init__(self, store: str) -> None:
        self.store = store
        self._sql(CLOCK_OF_THE_STORE.format(name=urlsplit(store).path[1:]))

    def set(self, seconds: int) -> None:
        self._sql(f"UPDATE public.clock_set SET seconds = {seconds}")

    def _sql(self, statements: str) -> None:
        psql = ["psql", self.store, "--quiet", "--set", "ON_ERROR_STOP=1", "--command", statements]
        subprocess.run(psql, check=True, capture_output=True, timeout=60)


@pytest.mark.promise("P15.42")
@pytest.mark.parametrize("store", ["postgres"], indirect=True)
@pytest.mark.parametrize("seconds", [-HOUR_S, HOUR_S], ids=["back", "forward"])
def test_the_clock_of_the_store_is_set_by_an_hour_while_leases_are_out(
    store: str, undisturbed: str, seconds: int, gate: str
) -> None:
    clock = Clock(store)
    campaign = tw.campaign(functions.slow_pi, runs=RUNS, seed=7, store=store, lease=10.0)
    with gated(gate) as go_on, running(campaign) as end:
        until(campaign, lambda status: status.done > 50 and status.leased)
        clock.set(seconds)
        go_on()
        report = end()
    assert (report.state, report.done, report.quarantined) == ("done", RUNS, 0)
    assert (report.digest, campaign.verify()) == (undisturbed, undisturbed)
    if seconds < 0:
        assert report.losses == 0, "leases go back with the clock"


@pytest.mark.promise("P15.42")
@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_a_worker_that_stands_still_loses_its_lease_in_time_although_the_clock_was_set_back(
    store: str, undisturbed: str, gate: str
) -> None:
    clock = Clock(store)
    campaign = tw.campaign(functions.slow_pi, runs=RUNS, seed=7, store=store, lease=2.0)
    with gated(gate) as go_on, running(campaign) as end:
        still = stop_one_with_a_lease(campaign)
        clock.set(-HOUR_S)
        go_on()
        # Within the patience of a test, and not in an hour.
        until(campaign, lambda status: status.losses or status.ended)
        os.kill(still, signal.SIGCONT)
        report = end()
    assert (report.digest, campaign.verify(), report.losses) == (undisturbed, undisturbed, 1)


@pytest.mark.promise("P15.41")
def test_the_clock_of_a_worker_is_set_back_by_an_hour_while_it_holds_leases(
    store: str, undisturbed: str, tmp_path: Path
) -> None:
    if not ProcessClock.possible():
        pytest.skip(WHY_NOT)
    clock = ProcessClock(tmp_path)
    campaign = tw.campaign(functions.clocked_pi, runs=RUNS, seed=7, store=store, lease=1.0)
    campaign.start()
    with server(store, 1, tmp_path, **clock.environment) as serving:
        before = until(campaign, lambda status: status.done > 50 and status.leased and working(status))
        clock.set_back()
        campaign.run(workers=0, progress=False)
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(30) == 0
    assert campaign.verify() == campaign.status().digest
    assert (campaign.status().done, campaign.status().losses) == (RUNS, 0)
    assert len(campaign.status().workers) == len(before.workers) == 1
    hours = [row.hour for row in campaign.results()]
    assert hours[0] - hours[-1] in (1, -23), "the worker's own clock was set back"
