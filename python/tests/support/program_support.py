"""Programs of a process of their own, with a watchdog: how they end is what the tests look at."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).resolve().parents[2]
LIMIT_S = 30.0
CTRL_C = -signal.SIGINT

LOOPS = pytest.mark.parametrize(
    "loop",
    [
        "asyncio",
        pytest.param("uvloop", marks=pytest.mark.skipif(find_spec("uvloop") is None, reason="uvloop is not installed")),
    ],
)

_BEGIN = """
import asyncio, os, signal, sys, threading, time
import tidewire as tw
from {loop} import run

async def answer(message):
    await asyncio.sleep(0.001)
    return message

def plain(message):
    return message

async def items():
    for number in range(3):
        await asyncio.sleep(0.001)
        yield number

async def never(message):
    await asyncio.Event().wait()

def stuck(message):
    print("now")
    time.sleep(60)
"""


class Ended(NamedTuple):
    """How a program ended: its exit code, or None if the watchdog ended it."""

    code: int | None
    out: str
    err: str
    seconds: float


def program(code: str, loop: str = "asyncio", signals: tuple[signal.Signals, ...] = (), *options: str) -> Ended:
    """Run a program. Whenever it writes a line that says "now", it gets the next of the signals."""
    command = [sys.executable, *options, "-c", _BEGIN.format(loop=loop) + textwrap.dedent(code)]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "PYTHONUNBUFFERED": "1"}
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=err)
        assert process.stdout is not None
        was_late = threading.Event()

        def end() -> None:
            was_late.set()
            process.kill()

        watchdog = threading.Timer(LIMIT_S, end)
        watchdog.start()
        said = []
        try:
            for one in signals:
                for line in process.stdout:
                    said.append(line)
                    if "now" in line:
                        break
                began = time.monotonic()
                process.send_signal(one)
            # Lines that came together with the one that was waited for are in this reader, and in
            # no other.
            said.extend(process.stdout)
            process.wait()
        finally:
            watchdog.cancel()
            process.stdout.close()
        err.seek(0)
        return Ended(
            None if was_late.is_set() else process.returncode, "".join(said), err.read(), time.monotonic() - began
        )
