"""Display of a campaign: a line in a terminal, one at the end elsewhere, a bar in a notebook; rows
and annotations.
"""

from __future__ import annotations

import functools
import os
import pickle
import pty
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import campaign_functions as functions
import pytest
import tidewire as tw
from campaign_support import SUPPORT

if TYPE_CHECKING:
    from decimal import Decimal

CODE = """
import campaign_functions as functions, tidewire as tw
if __name__ == "__main__":
    tw.campaign(functions.slow_pi, runs=800, name="pi", store="sqlite:///farm.db").run(workers=1)
"""


def test_a_terminal_has_one_line_that_changes(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(CODE)
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT), "COLUMNS": "120"}
    process = subprocess.Popen([sys.executable, "program.py"], cwd=tmp_path, stderr=theirs, env=environment)
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 4_096)
        except OSError:
            break
        seen += piece
    os.close(ours)
    assert process.wait(30) == 0
    lines = seen.decode().replace("\r\n", "\n").split("\r")
    assert len(lines) > 2
    assert seen.count(b"\n") == 1
    assert "0/800" in lines[1]
    assert "800/800 · done in" in lines[-1]


def test_elsewhere_there_is_one_line_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(CODE)
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT)}
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout == ""
    assert done.stderr.startswith("campaign pi ████████████████████████ 800/800 · done in ")
    assert done.stderr.count("\n") == 1


def test_the_line_says_failures_and_the_report_what_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    campaign = tw.campaign(functions.failing, runs=23, name="luck", store=f"sqlite:///{tmp_path}/farm.db")
    report = campaign.run(workers=1)
    assert capsys.readouterr().err.rstrip("\n").endswith(" · 2 failed, 0 quarantined")
    assert repr(report).splitlines()[0] == "campaign 'luck' is done: 21 of 23 runs, 2 failed"
    assert "The limiting stage is " in repr(report)


def test_rows_have_their_columns_as_attributes_and_can_be_pickled(tmp_path: Path) -> None:
    campaign = tw.campaign(functions.oddly_named, runs=4, store=f"sqlite:///{tmp_path}/farm.db")
    campaign.run(workers=1, progress=False)
    row = list(campaign.results())[3]
    assert (row.run, row["hits"], row["two words"], row.index, row[1], row[1:3]) == (3, 7, "x", 9, 7, (7, "x"))
    assert repr(row) == "Row(run=3, hits=7, two words='x', index=9)"
    again = pickle.loads(pickle.dumps(row))
    assert (again, again.hits, again.asdict()) == (row, 7, row.asdict())
    with pytest.raises(AttributeError, match="no column 'miss': there are run, hits"):
        row.miss  # noqa: B018
    with pytest.raises(KeyError, match="no column 'miss'"):
        row["miss"]


def typed(run: tw.Run[functions.Steps], more: Decimal | None = None) -> list[functions.Outcome]:
    return []


@functools.wraps(typed)
def wrapped(*args: Any) -> Any:
    return typed(*args)


def test_annotations_are_read_one_by_one_and_through_what_wraps_a_function(tmp_path: Path) -> None:
    """`Decimal` is there for type checkers alone."""
    store = f"sqlite:///{tmp_path}/farm.db"
    for function in (typed, wrapped, functools.partial(typed, more=None)):
        assert tw.campaign(function, runs=1, params={"steps": 1}, store=store).columns == {
            "hits": "integer",
            "area": "float",
        }
        with pytest.raises(tw.InvalidArgument, match=r"params: .*steps.*; the function takes Steps"):
            tw.campaign(function, runs=1, params={"steps": "1"}, store=store)

    class Local:
        pass

    def local(run: tw.Run[Local]) -> Local: ...

    with pytest.raises(
        tw.InvalidArgument, match=r"its annotation 'tw\.Run\[Local\]' can't be read .*top level of the module"
    ):
        tw.campaign(local, runs=1, store=store)

    def nothing(run: tw.Run) -> None: ...

    with pytest.raises(tw.InvalidArgument, match="returns None"):
        tw.campaign(nothing, runs=1, store=store)


@pytest.mark.promise("P15.60")
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no device that is always full")
@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-", "2>&1 >/dev/null | true"])
def test_a_stderr_that_takes_nothing_fails_no_run(tmp_path: Path, stderr: str) -> None:
    (tmp_path / "program.py").write_text(f"{CODE}    open('done', 'w').close()\n")
    paths = os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])
    command = f"'{sys.executable}' program.py {stderr}"
    subprocess.run(command, shell=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, timeout=60, check=False)
    assert (tmp_path / "done").exists()
