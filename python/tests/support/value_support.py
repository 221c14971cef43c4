"""Types of a module that one side has imported and the other has not."""

from __future__ import annotations

from types import ModuleType
from typing import Any


def put(module: ModuleType, kind: Any, name: str) -> Any:
    kind.__module__, kind.__qualname__ = module.__name__, name
    setattr(module, name, kind)
    return kind
