"""Pools and campaigns of this process, for its nodes. Unused packages are not loaded."""

from __future__ import annotations

import sys
from typing import Any


def pools() -> list[Any]:
    """Return the unstopped pools of this process that belong to a node or have started."""
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
            # Another thread has started a pool.
            continue
