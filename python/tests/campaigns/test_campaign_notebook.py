"""Campaigns in a notebook: its cells are executed by a kernel, as a person would."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cloudpickle")
pytest.importorskip("ipykernel")
nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

CELLS = (
    "import tidewire as tw\nscale = 2.5",
    """\
from dataclasses import dataclass

@dataclass
class Outcome:
    hits: int
    area: float

def simulate(run: tw.Run) -> Outcome:
    return Outcome(run.index, run.index * scale)""",
    'campaign = tw.campaign(simulate, runs=400, seed=7, name="cells", store="sqlite:///farm.db")\ncampaign',
    "report = campaign.run(workers=2)\nreport",
    "print(report.state, campaign.function, campaign.columns, sum(row.area for row in campaign.results()))\ncampaign.summary()",
    "report = await campaign.run_async(workers=1)\nprint(report.done)",
    "def simulate(run: tw.Run) -> Outcome:\n    return Outcome(-run.index, run.index * scale)",
    'tw.campaign(simulate, runs=400, seed=7, name="cells", store="sqlite:///farm.db")',
)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    folder: Path = tmp_path_factory.mktemp("notebook")
    client = nbclient.NotebookClient(
        notebook, timeout=60, kernel_name="python3", allow_errors=True, resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    return [cell.outputs for cell in notebook.cells]


def test_a_function_of_a_cell_runs_in_workers(outputs: list[list[Any]]) -> None:
    printed, table = outputs[4]
    columns = {"hits": "integer", "area": "float"}
    assert printed.text == f"done __main__:simulate {columns} {2.5 * sum(range(400))}\n"
    assert "<table" in table.data["text/html"]
    assert outputs[5][-1].text == "400\n", "in the loop of the kernel"


def test_progress_is_one_bar_and_the_report_has_a_form_for_cells(outputs: list[list[Any]]) -> None:
    bar, report = outputs[3]
    shown = bar.data["text/html"]
    assert re.search(r'<progress max="1" value="1\.0000"', shown), shown
    assert "400/400" in shown and "done in" in shown
    assert report.output_type == "execute_result"
    assert "cells" in report.data["text/html"] and "<" in report.data["text/html"]
    assert outputs[2][0].data["text/plain"].startswith("<Campaign 'cells', number 1")


def test_a_cell_that_was_changed_is_told_that_its_code_differs(outputs: list[list[Any]]) -> None:
    error = outputs[7][-1]
    assert (error.output_type, error.ename) == ("error", "CodeChanged")
    assert "accept_code=True" in error.evalue
