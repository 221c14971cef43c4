"""`tidewire bench streams`: each workload runs, and the page of rows has all kinds of reports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[3] / "bench"

RUN = [{"rate": 90.0}, {"rate": 100.0}, {"rate": 120.0}]
PEER = [{"rate": 125.0}]
REPORTS = {
    "streams": {
        "cases": [
            {"id": "one", "figures": ["rate"], "ours": ["ours"], "results": {"ours": RUN, "SQLite": PEER}},
            {"id": "failover", "figures": ["p99_s"], "ours": ["ours"], "results": {"ours": [{"p99_s": 0.5}]}},
        ]
    },
    "http": {"runs": {"gateway-rust": RUN, "axum-hop": PEER, "gateway-python": []}},
}


@pytest.mark.parametrize("workload", ["one", "gathers", "batches", "pipelined", "consume"])
def test_each_workload_of_streams_runs_in_a_folder(workload: str, tmp_path: Path) -> None:
    command = [sys.executable, BENCH / "python/streams_roles.py", "tidewire", tmp_path / "data", workload, "200"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["rate"] > 0


def test_the_page_of_rows_begins_with_those_behind_a_peer(tmp_path: Path) -> None:
    for name, report in REPORTS.items():
        (tmp_path / f"bench-{name}.json").write_text(json.dumps(report), encoding="utf-8")
    command = [sys.executable, BENCH / "rows.py", "--reports", tmp_path]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    table, last = ran.stdout.rsplit("\n\n", 1)
    found = [line.split() for line in table.splitlines()[1:]]
    assert [line[:2] for line in found] == [["0.80", "gateway-rust"], ["0.80", "one,"], ["failover,", "ours"]], table
    assert last.startswith("2 of 2 workloads with a peer are behind it, in 2 reports")
