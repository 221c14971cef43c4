"""The command `tidewire bench campaigns`: what it runs, what it says, what it refuses, and what it
leaves behind.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_support import PACKAGE, bench
from tidewire_bench.campaigns import by_workers, pairs
from tidewire_bench.campaigns_cases import PEERS, WORKERS, make
from tidewire_bench.campaigns_programs import key_of, said_by
from tidewire_bench.model import Case, Run
from tidewire_bench.programs import RunFailed
from tidewire_bench.results import CaseResult

PROGRAMS = PACKAGE.parent / "bench" / "campaigns"
sys.path.append(str(PROGRAMS.parent))

import figure_tables


def result(id: str, **rates: float) -> CaseResult:
    found = CaseResult(Case(id, "", "rate", "runs/s", True, ()))
    for form, rate in rates.items():
        found.add(Run(f"tidewire, {form}", "ours", "campaigns", form, ()), {"rate": rate})
    return found


def test_a_smoke_run_has_rates_costs_and_pictures(tmp_path: Path) -> None:
    ran = bench("campaigns", "--smoke", "--json", "--peers", "bare loop", "--out", str(tmp_path))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads(ran.stdout)
    assert report["failures"] == [] and report["not_run"] == {}
    assert json.loads((tmp_path / "bench-campaigns.json").read_text()) == report
    assert [case["id"] for case in report["cases"]] == ["tiny-2", "ms-2"]
    for case in report["cases"]:
        [one] = case["results"]
        assert one["figures"]["rate"] > 0 and one["figures"]["bare_us"] > 0 and one["figures"]["peak_mb"] > 5
    assert "bare loop" in (tmp_path / "bench-campaigns-tiny.svg").read_text()
    table = figure_tables.campaigns_all(report)
    assert table.splitlines()[0] == "| contender | tiny, 2 | ms, 2 | MB | killed: lost | doubled |"
    assert table.splitlines()[2].startswith("| bare loop | ")


def test_every_contender_has_its_program_and_its_packages() -> None:
    pinned = {line.split("==")[0].split("[")[0] for line in (PROGRAMS / "requirements.txt").read_text().splitlines()}
    for peer in PEERS:
        assert (PROGRAMS / peer.program).is_file()
        assert set(peer.packages) <= pinned, peer.name
    plan = make("short", None, [], [])
    assert [case.id for case in plan.cases[: len(WORKERS)]] == ["tiny-1", "tiny-2", "tiny-3"]
    assert [case.id for case in plan.cases[-3:]] == ["killed", "cold", "often"]
    assert {key_of(run) for case in plan.cases for run in case.runs} == {peer.key for peer in PEERS}


def test_a_contender_that_hangs_is_ended_with_what_it_has_started() -> None:
    code = "import subprocess, sys; child = subprocess.Popen(['sleep', '61.25']); print(child.pid, file=sys.stderr, flush=True); child.wait()"
    with pytest.raises(RunFailed, match="was not done after 1 s"):
        said_by([sys.executable, "-c", code], {}, 1.0)
    assert subprocess.run(["pgrep", "-xf", "sleep 61.25"], capture_output=True, text=True, check=False).stdout == ""


def test_a_contender_that_fails_says_why() -> None:
    with pytest.raises(RunFailed, match="no such broker"):
        said_by([sys.executable, "-c", "raise SystemExit('no such broker')"], {}, 10.0)


def test_promised_ratios_are_between_our_own_medians() -> None:
    cases = [
        result("tiny-2", SQLite=80.0, PostgreSQL=76.0),
        result("tiny-3", SQLite=84.0),
        result("killed", SQLite=64.0),
    ]
    assert pairs(cases) == {
        "PostgreSQL / SQLite, tiny, 2 workers": 0.95,
        "3 / 2 workers, tiny, SQLite": 1.05,
        "killed / undisturbed, SQLite": 0.8,
    }
    assert by_workers(cases[:2])["tidewire, SQLite"] == [(2, 80.0), (3, 84.0)]
