"""The programs that run the workloads of agents and pools."""

from __future__ import annotations

import sys
from pathlib import Path

from .model import Program
from .programs import NO_CHECKOUT, Programs


def prepare(bench: Path | None, needed: set[Program]) -> Programs:
    """Finds the programs that can be run here."""
    programs = Programs()
    programs.commands["agents-ours"] = [sys.executable, "-m", "tidewire_bench.agents_workloads"]
    programs.commands["pools-ours"] = [sys.executable, "-m", "tidewire_bench.pool_workloads"]
    if bench is None:
        programs.missing.update(dict.fromkeys(needed - {"agents-ours", "pools-ours"}, NO_CHECKOUT))
        return programs
    programs.commands["agents-peers"] = [sys.executable, str(bench / "python" / "agent_peers.py")]
    programs.commands["pools-peers"] = [sys.executable, str(bench / "python" / "pool_peers.py")]
    return programs
