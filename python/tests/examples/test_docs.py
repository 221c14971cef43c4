"""Every Python block of the README and the pages runs as printed, unless it has a file name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", ROOT / "python" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE), 1
    )
]


@pytest.mark.parametrize("block", BLOCKS)
def test_the_block_runs(block: str, tmp_path: Path) -> None:
    store = {"TIDEWIRE_STORE": f"sqlite:///{tmp_path}/docs.db"}
    ran = subprocess.run(
        [sys.executable, "-c", block],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        cwd=tmp_path,
        env={**os.environ, **store},
    )
    assert ran.returncode == 0, ran.stderr


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *PAGES]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"
