"""Pools and campaigns of this process, which all its nodes report. Finds them without a load of
packages that the program does not use.
"""

from __future__ import annotations

import sys
from typing import Any


def pools() -> list[Any]:
    """Return all pools of this process that a node made, or that have started, and that have not
    stopped.
    """
    live = getattr(sys.modules.get("tidewire.pools.pool"), "_live", ())
    return [pool for pool in _settled(live) if pool.state != "stopped"]


def campaigns() -> list[Any]:
    """Return the campaigns of this process, each once."""
    live = _settled(getattr(sys.modules.get("tidewire._campaigns.report"), "live", ()))
    return list({(campaign.store, campaign.id): campaign for campaign in live}.values())


def _settled(live: Any) -> list[Any]:
    while True:
        try:
            return list(live)
        except RuntimeError:
            # Another thread has started a pool meanwhile.
            continue
