"""Servers of a test beside their keeper, a process of ``tools/servers.py``."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Self

import pytest

SERVERS = Path(__file__).parents[3] / "tools" / "servers.py"
WAIT_S = 60


class Keeper:
    """Servers and their keeper, until a block ends; a PostgreSQL, if nothing else is said."""

    def __init__(self, server: str = "postgres", *arguments: str) -> None:
        command = [sys.executable, str(SERVERS), server, *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        said = self.answer()
        if "error" in said:
            self.process.wait(WAIT_S)
            pytest.skip(said["error"])
        self.folder = Path(said["TIDEWIRE_TEST_SERVERS"])
        self.said = said
        self.url = said.get("TIDEWIRE_TEST_POSTGRES") or said.get("TIDEWIRE_TEST_NATS", "")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Nobody needs what an orderly end would write.
        self.order("kill")
        assert self.end() == 0

    def end(self) -> int:
        """End them, and return the exit code of the keeper."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(WAIT_S)

    def answer(self) -> dict[str, str]:
        assert self.process.stdout is not None
        found: dict[str, str] = json.loads(self.process.stdout.readline())
        return found

    def order(self, order: str) -> dict[str, str]:
        """Have a server stopped, started, killed, frozen or thawed."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{order}\n")
        self.process.stdin.flush()
        return self.answer()

    async def tell(self, order: str) -> None:
        """Order something while the event loop goes on."""
        assert await asyncio.to_thread(self.order, order) == {"done": order}

    def server(self) -> int:
        """Descriptor that is readable once the present PostgreSQL has ended."""
        return os.pidfd_open(int((self.folder / "postgres" / "data" / "postmaster.pid").read_text().split()[0]))
