"""300 nodes that say nothing ask for a sign of life every 25 ms."""

from __future__ import annotations

import time
from pathlib import Path

from attacks.target import Target

ITEM = 13
MEMORY_MIB = 32
NODES = 300


def attack(target: Target) -> None:
    """Join with all of them, and stay."""
    links = [target.joined("all", **{"heartbeat-ms": "50"}) for _ in range(NODES)]
    time.sleep(3_600)
    del links


def look(target: Target) -> list[str]:
    """Count what the hub works for them."""
    time.sleep(0.2)
    before, began = _ticks(target.pid), time.monotonic()
    time.sleep(0.25)
    share = (_ticks(target.pid) - before) / 100 / (time.monotonic() - began)
    return [f"the hub takes {share:.0%} of a core"] if share > 0.5 else []


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
