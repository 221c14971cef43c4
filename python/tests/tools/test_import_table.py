"""The import table of tools/imports.toml holds."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.skipif(shutil.which("cargo") is None, reason="the checker asks cargo for the crates' dependencies")
def test_nobody_imports_what_the_table_forbids() -> None:
    checked = subprocess.run(
        [sys.executable, str(ROOT / "tools/check_imports.py")], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
