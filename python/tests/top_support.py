"""What the stories of ``tidewire top`` share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidewire.top.serving import QUESTION_BYTES_MAX

PACKAGE = Path(__file__).resolve().parents[1]
PATIENCE_S = 30.0
NOBODY = 65534
TOO_LONG = json.dumps({"ask": "who", "because": "x" * QUESTION_BYTES_MAX}).encode() + b"\n"

ORDERS = """
import sys, time
import tidewire as tw
with tw.Node(name="orders", inspect=True) as node, tw.Pool(abs, workers=1, name="absolutes") as pool:
    node.agent(lambda n: n, id="pricing", type="price", capabilities=["quote", "list"])
    asker, log = node.agent(lambda n: n, id="asker"), node.spawn(lambda n: n, name="log")
    for n in range(3):
        asker.sync.request(n, to="pricing")
    node.sync.ask(log, 1)
    assert list(pool.sync.map(range(5))) == [0, 1, 2, 3, 4]
    print("ready", flush=True)
    sys.stdin.readline()
"""


def top(*arguments: str, columns: int = 80) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidewire", "top", *arguments]
    environment = {**os.environ, "COLUMNS": str(columns)}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, cwd=PACKAGE, env=environment
    )


@contextmanager
def program(text: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A program that says when it is ready, and ends when its input does."""
    command = [sys.executable, "-c", text]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=PACKAGE,
        env={**os.environ, **environment},
    ) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == "ready\n"
            yield started
        finally:
            assert started.stdin is not None
            started.stdin.close()
            started.wait(PATIENCE_S)


def inspectors() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.endswith("-inspect")]


def threads() -> list[str]:
    return [thread.name for thread in inspectors()]
