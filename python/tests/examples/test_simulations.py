"""The programs of docs/guides/simulations.md that need a library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from page_programs import write_program


@pytest.mark.parametrize(("name", "library"), [("clinic.py", "simpy"), ("wealth.py", "mesa")])
def test_a_model_of_a_library_runs_as_a_campaign(name: str, library: str, tmp_path: Path) -> None:
    pytest.importorskip(library)
    command = [sys.executable, write_program("simulations.md", name, tmp_path)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=55)
    assert ran.returncode == 0, ran.stderr
