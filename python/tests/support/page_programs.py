"""Programs that pages print with a file name behind the language: a test of their own runs them."""

from __future__ import annotations

import re
from pathlib import Path

GUIDES = Path(__file__).resolve().parents[3] / "docs/guides"


def write_program(page: str, name: str, folder: Path) -> Path:
    """Write the program of this name on a page to a file in the folder, and return its path."""
    text = (GUIDES / page).read_text(encoding="utf-8")
    [program] = re.findall(rf"^```python {re.escape(name)}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    path = folder / name
    path.write_text(program, encoding="utf-8")
    return path
