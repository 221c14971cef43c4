"""Campaigns: what is stored of the results of functions, whichever form they have."""

from __future__ import annotations

import datetime

import campaign_functions as functions
import pytest
import tidewire as tw


@pytest.mark.promise("P15.10")
def test_a_campaign_stores_each_run_once_and_in_order(store: str) -> None:
    campaign = tw.campaign(functions.pi, runs=5_000, seed=7, name="pi", store=store)
    assert (campaign.status().state, campaign.columns) == ("draft", {"hits": "integer", "area": "float"})
    report = campaign.run(workers=2, progress=False)
    assert (report.state, report.runs, report.done, report.failed) == ("done", 5_000, 5_000, 0)
    rows = list(campaign.results())
    assert [row.run for row in rows] == list(range(5_000))
    assert all(row.area == row["hits"] / 2.5 for row in rows)
    assert campaign.verify() == report.digest
    assert campaign.replay(17) == functions.Outcome(rows[17].hits, rows[17].area)


@pytest.mark.promise("P15.4")
def test_the_digest_is_that_of_the_seed_alone(store: str) -> None:
    def digest(seed: int | str, workers: int, name: str) -> str:
        campaign = tw.campaign(functions.pi, runs=3_000, seed=seed, name=name, store=store, range=0.005 * workers)
        return campaign.run(workers=workers, progress=False).digest

    first = digest(-7, 1, "one")
    assert digest(-7, 3, "three") == first
    assert digest("-7", 2, "text") != first


def test_results_of_every_form(store: str) -> None:
    def rows(function: object, runs: int = 4) -> list[dict[str, object]]:
        campaign = tw.campaign(function, runs=runs, store=store)  # type: ignore[arg-type]
        assert campaign.run(workers=1, progress=False).state == "done", list(campaign.errors())
        return [row.asdict() for row in campaign.results()]

    assert rows(functions.typed)[2:] == [{"run": 2, "hits": 2, "name": "run 2"}, {"run": 3, "hits": 3, "name": None}]
    utc = datetime.UTC
    at = datetime.datetime(2025, 12, 31, 22, 0, 1, tzinfo=utc)
    assert rows(functions.packed, 2)[1] == {"run": 1, "hits": 1, "at": at, "path": [1, 7]}
    assert [set(row) for row in rows(functions.number, 2)] == [{"run", "value"}] * 2
    seed = tw.Run(3).seed % 1000
    assert rows(functions.plain)[3] == {"run": 3, "index": 3, "flag": True, "seed": seed}
    assert [(row["run"], row["row"], row["hits"]) for row in rows(functions.teams)] == [(1, 0, 0), (2, 0, 0), (2, 1, 1)]


@pytest.mark.promise("P15.1", "P15.3")
def test_parameters_are_checked_and_given_to_each_run_anew(store: str) -> None:
    campaign = tw.campaign(functions.stepped, runs=3, params={"steps": 83}, store=store)
    campaign.run(workers=1, progress=False)
    assert [row.value for row in campaign.results()] == [84, 84, 84]
    with pytest.raises(tw.InvalidArgument, match=r"params: .*steps.*; the function takes Steps"):
        tw.campaign(functions.stepped, runs=3, params={"steps": "83"}, store=store)
    with pytest.raises(
        tw.InvalidArgument, match=r"params\.stepps: the function takes no such parameter; it takes steps, label"
    ):
        tw.campaign(functions.stepped, runs=3, params={"steps": 1, "stepps": 2}, store=store)
    sweep = tw.grid(strategy=["greedy", "rows"], teams=[[1], [1, 2]])
    campaign = tw.campaign(functions.swept, runs=8, sweep=sweep, store=store)
    campaign.run(workers=2, progress=False)
    sets = ["greedy-2", "greedy-3", "rows-2", "rows-3"]
    assert [(row.param_set, row.set) for row in campaign.results()] == [(i % 4, sets[i % 4]) for i in range(8)]
    assert campaign.parameters(3) == {"strategy": "rows", "teams": [1, 2]}


@pytest.mark.promise("P15.50")
def test_a_campaign_goes_on_under_its_name_with_more_runs(store: str) -> None:
    first = tw.campaign(functions.pi, runs=500, seed=1, name="pi", store=store)
    first.run(workers=1, progress=False)
    before = [tuple(row) for row in first.results()]
    again = tw.campaign(functions.pi, runs=800, seed=1, name="pi", store=store)
    assert (again.id, again.runs, again.run(workers=1, progress=False).done) == (first.id, 800, 800)
    assert [tuple(row) for row in again.results()][:500] == before
    with pytest.raises(tw.NameTaken, match=r"'pi': seed is 'int:1' there and 'int:2' here.*another name"):
        tw.campaign(functions.pi, runs=800, seed=2, name="pi", store=store)
    assert tw.open_campaign(store, "pi").id == tw.open_campaign(store, first.id).id
    assert [campaign.name for campaign in tw.campaigns(store)] == ["pi"]
    with pytest.raises(tw.NoSuchCampaign):
        tw.open_campaign(store, "tau")
