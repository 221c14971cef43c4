"""Support for the stories of ``tidewire top``."""

from __future__ import annotations

import os
import platform
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tidewire as tw
from command_support import run_all
from link_processes import programs
from tidewire.top.answer import bounded

PACKAGE = Path(__file__).resolve().parents[2]
PATIENCE_S = 30.0
NOBODY = 65534

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
    return run_all(("top", *arguments), COLUMNS=str(columns))[0]


def look(node: tw.Node) -> dict[str, Any]:
    """Answer of a node in this process."""
    versions = {"tidewire": tw.__version__, "python": platform.python_version()}
    about = {"node": node.name, "pid": os.getpid(), "url": node.url, "versions": versions, "uptime_s": 1.0}
    return {**about, "at_s": time.monotonic(), **bounded(node.statistics())}


def ask(path: Path, method: str, *arguments: Any) -> dict[str, Any]:
    """Call the service of the node behind a socket, as any program of this user can."""
    with tw.Node(f"tide+unix://{path}", inspect=False) as caller:
        answer: dict[str, Any] = caller.request(f"svc.$sys.{path.stem}.{method}", arguments, PATIENCE_S).wait()
        return answer


@contextmanager
def program(text: str, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A program that says when it is ready, and ends when its input does."""
    with programs() as found:
        started = found.run("-c", text, *arguments, env=environment)
        started.expect("ready")
        yield started.process
        started.end()


def inspectors() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.endswith("-inspect")]


def threads() -> list[str]:
    return [thread.name for thread in inspectors()]
