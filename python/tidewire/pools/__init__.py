"""Supervised worker pools: threads, or processes for CPU-bound work.

>>> from tidewire.pools import Pool
>>> with Pool("math:sqrt", workers=1, kind="process") as pool:
...     pool.sync.submit(49)
7.0
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidewire.pools.options import Batch, Restarts, Scale
    from tidewire.pools.pool import Pool
    from tidewire.pools.task import Task

__all__ = ["Batch", "Pool", "Restarts", "Scale", "Task"]

_MODULES = {"Batch": "options", "Pool": "pool", "Restarts": "options", "Scale": "options", "Task": "task"}


def __getattr__(name: str) -> Any:
    # Worker processes import this package without its modules, so that they start sooner.
    if name not in _MODULES:
        raise AttributeError(f"module 'tidewire.pools' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"tidewire.pools.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
