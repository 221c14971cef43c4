"""Runs that fail, hang, kill and print; values, sizes and seeds at their borders."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import campaign_functions as functions
import pytest
import tidewire as tw
from campaign_support import running, sqlite_alone


def ran(store: str, function: Callable[..., Any], runs: int, workers: int = 1, **options: Any) -> tw.Report:
    return tw.campaign(function, runs=runs, store=store, **options).run(workers=workers, progress=False)


def values(report: tw.Report) -> dict[int, Any]:
    return {row.run: row.value for row in report.campaign.results()}


def failures(report: tw.Report) -> dict[int, str]:
    return {failed.run: f"{failed.kind} {failed.error} {failed.message}" for failed in report.campaign.errors()}


@pytest.mark.promise("P15.8")
def test_a_run_that_fails_is_tried_again_and_then_recorded(store: str) -> None:
    report = ran(store, functions.failing, 23)
    assert (report.state, report.done, report.failed) == ("done", 21, 2)
    assert failures(report) == {3: "error ValueError run 3 has no luck", 13: "error ValueError run 13 has no luck"}
    failed = next(report.campaign.errors())
    assert failed.attempts == 3
    assert 'raise ValueError(f"run {run.index} has no luck")' in failed.traceback
    assert values(report)[5] == 3
    assert sorted(values(report)) == [run for run in range(23) if run % 10 != 3]


@sqlite_alone
def test_too_many_failures_end_a_campaign(store: str) -> None:
    report = ran(store, functions.failing, 100_000, failed_max=4)
    assert (report.state, report.failed > 4) == ("failed", True)
    assert "failed_max is 4" in report.reason
    with pytest.raises(tw.CampaignError, match="failed"):
        report.campaign.extend(1)


@sqlite_alone
@pytest.mark.promise("P15.9")
def test_a_result_with_other_columns_is_an_error_that_names_the_run(store: str) -> None:
    report = ran(store, functions.changing, 500)
    assert (report.done, report.failed) == (499, 1)
    assert failures(report) == {
        400: "error InvalidResult run 400: other columns than the campaign has: more not among them; its columns are hits"
    }


@pytest.mark.promise("P15.9", "P15.40")
def test_values_at_their_borders(store: str) -> None:
    report = ran(store, functions.special, 14)
    rows = [row.asdict() for row in report.campaign.results()]
    assert math.isnan(rows[1]["real"])
    assert (rows[1]["whole"], rows[1]["text"], rows[1]["nested"]) == (-(2**63), "", {})
    assert (rows[2]["real"], rows[2]["whole"], rows[2]["text"]) == (math.inf, 2**63 - 1, "é\u2028🙂")
    assert rows[3] == {"run": 3, "real": 0.0, "whole": None, "text": None, "nested": {"a": "é", "b": [1, 2]}}
    assert rows[4] == {"run": 4, "real": 1.0, "whole": 1, "text": "x" * 100_000, "nested": "plain"}
    assert len(rows) == 5
    assert report.campaign.verify() == report.digest
    told = failures(report)
    for run, says in {
        5: "column whole: 9223372036854775808 does not fit into 64 bits",
        6: "column whole: 1.5 (float) is not what a column of type integer holds: annotate the column as float",
        7: "column text: 'a\\x00b' has a NUL, which stores can't keep: leave it out",
        8: "has a lone surrogate",
        9: "column real: '0' (str) is not what a column of type float holds",
        10: "column text: b'' (bytes)",
        11: "column nested: [nan] holds nan, which JSON can't represent",
        12: "can't be written as JSON: object is no data",
        13: "nested missing",
    }.items():
        assert f"run {run}: " in told[run]
        assert says in told[run]


@sqlite_alone
@pytest.mark.promise("P15.8", "P15.15")
def test_a_run_may_print_fork_and_try_to_end_the_process(store: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert values(ran(store, functions.printing, 3)) == {0: 0, 1: 1, 2: 2}
    assert capfd.readouterr().out.splitlines() == [f"printed by run {run}" for run in range(3)]
    report = ran(store, functions.forking, 6)
    assert (values(report), report.losses) == ({run: run for run in range(6)}, 0)
    report = ran(store, functions.leaving, 6)
    assert failures(report) == {3: "error SystemExit enough", 4: "error KeyboardInterrupt "}
    assert (sorted(values(report)), report.losses) == ([0, 1, 2, 5], 0)


@pytest.mark.promise("P15.61")
def test_a_run_that_closes_the_files_of_its_worker_ends_the_campaign_run(
    store: str, capfd: pytest.CaptureFixture[str]
) -> None:
    lost = pytest.raises(tw.CampaignError, match="run 7 closed file descriptors of its worker, which it had not opened")
    with running(tw.campaign(functions.closing_files, runs=30, seed=1, store=store)) as end, lost:
        end()
    assert "run 7 closed file descriptors of its worker" in capfd.readouterr().err


@sqlite_alone
@pytest.mark.promise("P15.5", "P15.12")
def test_a_run_that_kills_its_worker_twice_is_quarantined(store: str) -> None:
    report = ran(store, functions.killing, 30, workers=2)
    assert (report.state, report.done, report.quarantined, report.losses) == ("done", 28, 2, 4)
    assert {run: text.split()[0] for run, text in failures(report).items()} == {7: "quarantined", 13: "quarantined"}
    assert sorted(values(report)) == [run for run in range(30) if run not in (7, 13)]


@sqlite_alone
def test_runs_that_all_kill_their_workers_end_the_campaign_by_its_limit(store: str) -> None:
    report = ran(store, functions.always_killing, 1_000, failed_max=2)
    assert (report.state, report.done, report.quarantined) == ("failed", 0, 3)


@sqlite_alone
def test_a_run_that_takes_all_memory_fails(store: str) -> None:
    report = ran(store, functions.greedy, 4)
    assert failures(report)[2].startswith("error MemoryError")
    assert report.done == 3


@sqlite_alone
@pytest.mark.promise("P15.11")
def test_a_run_over_its_time_limit_is_ended_and_counts_as_failed(store: str) -> None:
    report = ran(store, functions.endless, 8, timeout=0.2, attempts=2)
    assert (report.state, report.done, report.failed) == ("done", 7, 1)
    assert failures(report)[4].startswith("timeout")
    assert next(report.campaign.errors()).attempts == 2


@pytest.mark.parametrize("runs", [0, 1])
def test_few_runs(store: str, runs: int) -> None:
    report = ran(store, functions.number, runs, workers=2)
    assert (report.state, report.done, len(list(report.campaign.results()))) == ("done", runs, runs)


@sqlite_alone
@pytest.mark.promise("P15.2")
def test_a_run_draws_the_same_whatever_ran_before(store: str) -> None:
    """The function keeps its runs, so that none is used again, and leaves a number of `gauss` in
    store.
    """
    report = ran(store, functions.drawn, 40, seed=3)
    for row in list(report.campaign.results())[::13]:
        alone = functions.drawn(tw.Run(row.run, campaign_seed=3))
        assert {name: row[name] for name in alone} == alone


@pytest.mark.parametrize("part", ["random", "method", "bits", "numpy", "method of numpy", "bits of numpy", ""])
def test_a_run_draws_the_same_whatever_earlier_runs_have_kept(tmp_path: Path, part: str) -> None:
    """With nothing kept the same generators are used again and again."""
    params = {"part": part or "random"}
    function = functions.keeping if part else functions.forgetting
    report = ran(f"sqlite:///{tmp_path}/farm.db", function, 6, seed=3, params=params)
    assert (report.done, len({row.random for row in report.campaign.results()})) == (6, 6)
    for row in report.campaign.results():
        alone = functions.keeping(tw.Run(row.run, campaign_seed=3, params=params))
        assert {name: row[name] for name in alone} == alone


def test_a_run_that_is_kept_goes_on_with_its_own_numbers(tmp_path: Path) -> None:
    rows = list(ran(f"sqlite:///{tmp_path}/farm.db", functions.looking_back, 6).campaign.results())
    for row in rows[1:]:
        before = tw.Run(row.run - 1).random
        # It has drawn its own, and from its second on it was looked at once.
        drawn = [before.random() for _ in range(2)]
        assert (rows[row.run - 1].own, row.before) == (drawn[0], drawn[1])


BAD_ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"runs": -1}, r"runs: -1 is not allowed: give a whole number from 0"),
    ({"runs": 1.5}, r"runs: 1\.5 is not allowed"),
    ({"runs": 2**49}, r"runs: 562949953421312 is not allowed"),
    ({"seed": 1.5}, r"seed: float is not allowed: give an integer or text"),
    ({"seed": True}, r"seed: a truth value is not allowed"),
    ({"seed": "a\0"}, r"seed: a text with NUL"),
    ({"seed": 10**5000}, r"seed: an integer of"),
    ({"name": ""}, r"name: '' is not allowed"),
    ({"name": "12"}, r"name: '12' looks like the number of a campaign"),
    ({"params": [1]}, r"params: \[1\] is no dict of parameters"),
    ({"params": {"a": object()}}, r"params\.a: <object .* is no plain data"),
    ({"params": {"a": math.nan}}, r"params\.a: nan can't be written as JSON"),
    ({"sweep": []}, r"sweep: 0 parameter sets"),
    ({"sweep": {"a": 1}}, r"sweep: .* is no list of parameter sets"),
    ({"attempts": 0}, r"attempts: 0 is not allowed: give a whole number from 1 to 100"),
    ({"timeout": -1}, r"timeout: -1 is not allowed: give seconds"),
    ({"failed_max": "1"}, r"failed_max: '1' is not allowed"),
    ({"lease": 0}, r"lease: 0 is not allowed"),
    ({"until": 0.1}, r"until: 0\.1 is not allowed: give tw\.Precision"),
    ({"until": tw.Precision("area", 0.1)}, r"until\.column: 'area' is no column of numbers; there are value"),
    ({"store": 7}, r"store: 7 is no URL"),
    ({"store": "mysql://host/farm"}, r"store: .*write sqlite:///farm\.db"),
    (
        {"function": "campaign_functions"},
        r"function: 'campaign_functions' is no place of a function: write 'package\.module:name'",
    ),
    ({"function": "campaign_functions:nothing"}, r"function: .* can't be imported: AttributeError"),
    ({"function": 3}, r"function: 3 is no function"),
]


def test_bad_arguments_are_named_before_anything_is_stored(store: str) -> None:
    for changes, says in BAD_ARGUMENTS:
        arguments: dict[str, Any] = {"function": functions.number, "runs": 3, "store": store, **changes}
        with pytest.raises(tw.InvalidArgument, match=says):
            tw.campaign(arguments.pop("function"), **arguments)
        with pytest.raises(tw.StoreUnavailable, match=r"there is no such file|has no campaigns yet"):
            tw.campaigns(store)


@sqlite_alone
def test_bad_numbers_of_workers_and_precisions(store: str) -> None:
    campaign = tw.campaign(functions.number, runs=3, store=store)
    for workers in (-1, -2, 2.0, True, 5_000):
        with pytest.raises(tw.InvalidArgument, match=r"workers: .* is not allowed: give 0 to 1024"):
            campaign.run(workers=workers)  # type: ignore[arg-type]
    with pytest.raises(tw.InvalidArgument, match="half_width"):
        tw.Precision("value", 0)
    with pytest.raises(tw.InvalidArgument, match="confidence"):
        tw.Precision("value", 0.1, confidence=1)
    assert campaign.status().state == "draft"


@pytest.mark.promise("P15.56")
def test_a_campaign_ends_once_a_mean_is_known_well_enough(store: str) -> None:
    def ends(workers: int, name: str) -> tuple[str, int, str]:
        until = tw.Precision("value", half_width=0.02, confidence=0.99)
        report = ran(store, functions.number, 1_000_000, workers=workers, until=until, seed=5, name=name)
        assert report.look is not None
        assert report.look.reached
        assert abs(report.look.mean - 0.5) < 0.02
        return report.state, report.done, report.digest

    assert ends(1, "one") == ends(2, "two")
    assert tw.open_campaign(store, "one").status().done < 20_000


@pytest.mark.promise("P15.72")
def test_the_precision_is_that_of_each_parameter_set(store: str) -> None:
    until = tw.Precision("value", half_width=0.05)
    # The mean over all sets is known at the first check; that of a set is not.
    alike = [{"level": 7, "noise": 1.0}] * 8
    report = ran(store, functions.noisy, 100_000, workers=2, until=until, seed=5, sweep=alike)
    first = [row.value for row in report.campaign.results() if row.run < 800]
    assert 3 * statistics.stdev(first) / math.sqrt(800) < 0.05 < 2 * statistics.stdev(first) / math.sqrt(100)
    assert 800 < report.done < 4_000
    groups = report.campaign.summary(by="param_set")
    assert [one.count for one in groups] == [report.done / 8] * 8
    assert all(2 * one.standard_error < 0.05 for one in groups)
    # The spread between sets does not count; the set that is known least well decides.
    apart = [{"level": -1_000, "noise": 0.01}, {"level": 0, "noise": 0.1}, {"level": 1_000, "noise": 0.01}]
    report = ran(store, functions.noisy, 100_000, workers=2, until=until, seed=5, sweep=apart)
    assert report.look is not None
    assert (report.done, report.look.set, report.look.reached) == (300, 1, True)
    assert abs(report.look.mean) < 0.05


def test_nothing_of_the_supervisor_stays_open(store: str) -> None:
    campaign = tw.campaign(functions.number, runs=10, store=store)
    campaign.run(workers=2, progress=False)
    before = set(os.listdir("/proc/self/fd"))
    campaign.extend(10)
    campaign.run(workers=2, progress=False)
    assert set(os.listdir("/proc/self/fd")) <= before
