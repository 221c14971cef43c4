"""Support for the stories of pools of processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tidewire.pools import Pool

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parents[1]


def process_pool(function: Any, workers: Any = 2, **options: Any) -> Pool:
    return Pool(function, workers, "process", **options)


def story(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 50))


PATIENCE = 45.0


def busy(pool: Pool) -> list[dict[str, Any]]:
    return [worker for worker in pool.statistics()["workers"] if worker["task"] is not None]


def pids(pool: Pool) -> list[int]:
    return [worker["pid"] for worker in pool.statistics()["workers"]]


def opened(gate: str) -> None:
    Path(gate).write_bytes(b"")


async def at(gate: str) -> int:
    """Wait until a worker waits at the gate. Closing the number that is returned lets it go."""
    return await asyncio.to_thread(os.open, gate, os.O_WRONLY)


def program(code: str, tmp_path: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program from a file, which must end within 30 seconds."""
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(code))
    environment = {**os.environ, "PYTHONPATH": f"{PACKAGE}{os.pathsep}{HERE}"}
    command = [sys.executable, str(script)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30, env=environment, **options)
