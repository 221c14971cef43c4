"""The cells of docs/guides/notebooks.md in a kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_programs import programs_of

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
for package in ("ipykernel", "cloudpickle"):
    pytest.importorskip(package)


def test_the_cells_run_in_order(tmp_path: Path) -> None:
    cells = [nbformat.v4.new_code_cell(cell) for cell in programs_of("notebooks.md", "cell")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=30, kernel_name="python3", resources=resources).execute()
    assert "<table" in notebook.cells[-2].outputs[-1].data["text/html"]
