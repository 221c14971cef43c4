"""Programs that pages print with a name behind the language: a test of their own runs them."""

from __future__ import annotations

import re
from pathlib import Path

GUIDES = Path(__file__).resolve().parents[3] / "docs/guides"


def programs_of(page: str, name: str) -> list[str]:
    """Return the programs of this name on a page."""
    text = (GUIDES / page).read_text(encoding="utf-8")
    return re.findall(rf"^```python {re.escape(name)}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def write_program(page: str, name: str, folder: Path) -> Path:
    """Write the program of this name on a page to a file in the folder, and return its path."""
    [program] = programs_of(page, name)
    path = folder / name
    path.write_text(program, encoding="utf-8")
    return path
