"""Servers of a test beside their keeper, a process of ``tools/servers.py``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SERVERS = Path(__file__).parents[3] / "tools" / "servers.py"
WAIT_S = 30


class Keeper:
    """Servers and their keeper; a PostgreSQL, if nothing else is said."""

    def __init__(self, server: str = "postgres") -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SERVERS), server], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        said = self.answer()
        if "error" in said:
            self.process.wait(WAIT_S)
            pytest.skip(said["error"])
        self.folder = Path(said["TIDEWIRE_TEST_SERVERS"])
        self.said = said
        self.url = said.get("TIDEWIRE_TEST_POSTGRES", "")

    def answer(self) -> dict[str, str]:
        assert self.process.stdout is not None
        found: dict[str, str] = json.loads(self.process.stdout.readline())
        return found

    def order(self, order: str) -> dict[str, str]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{order}\n")
        self.process.stdin.flush()
        return self.answer()

    def server(self) -> int:
        """Descriptor that is readable once the present server has ended."""
        return os.pidfd_open(int((self.folder / "postgres" / "data" / "postmaster.pid").read_text().split()[0]))
