"""Docstrings as descriptions: the first line describes, and "Args:" describes the parameters."""

from __future__ import annotations

import inspect
import re
from typing import Any

_PART = re.compile(r"^[A-Z][A-Za-z ]*:\s*$")
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")


def whole(target: Any) -> str:
    """Return the docstring of a class or a function without its indentation, or an empty text."""
    # A class without a docstring does not inherit that of its base.
    text = target.__dict__.get("__doc__") if isinstance(target, type) else getattr(target, "__doc__", None)
    return inspect.cleandoc(text) if isinstance(text, str) else ""


def first_line(target: Any) -> str:
    """Return the first line of the docstring of a class or a function, or an empty text."""
    found = whole(target)
    return found.splitlines()[0].strip() if found else ""


def arguments(target: Any) -> dict[str, str]:
    """Return the descriptions of the parameters in a Google-style docstring."""
    described: dict[str, str] = {}
    name, level = "", None
    for line in _part(whole(target).splitlines(), "Args:"):
        indent = len(line) - len(line.lstrip())
        level = indent if level is None else level
        entry = _ENTRY.match(line.strip()) if indent <= level else None
        if entry is not None:
            name, described[entry[1]] = entry[1], entry[2].strip()
        elif name:
            described[name] = f"{described[name]} {line.strip()}".strip()
    return described


def _part(lines: list[str], title: str) -> list[str]:
    starts = [at for at, line in enumerate(lines) if line.strip() == title]
    if not starts:
        return []
    after = lines[starts[0] + 1 :]
    end = next((at for at, line in enumerate(after) if _PART.match(line)), len(after))
    return [line for line in after[:end] if line.strip()]
