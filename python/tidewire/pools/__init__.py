"""Supervised pools of workers: threads, or processes for work that needs a core of its own.

>>> from tidewire.pools import Pool
>>> with Pool("math:sqrt", workers=1, kind="process") as pool:
...     pool.sync.submit(49)
7.0
"""

from __future__ import annotations

from tidewire.pools.options import Batch, Restarts, Scale
from tidewire.pools.pool import Pool
from tidewire.pools.task import Task

__all__ = ["Batch", "Pool", "Restarts", "Scale", "Task"]
