"""The command ``tidewire``, in a process that runs many commands one after the other: to start one
takes longer than most commands.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_PROGRAM = """
import contextlib, io, json, os, sys
from tidewire.__main__ import main

for line in sys.stdin:
    given = json.loads(line)
    os.environ.clear()
    os.environ.update(given["environment"])
    os.chdir(given["folder"])
    ended = []
    for arguments in given["commands"]:
        sys.argv = ["tidewire", *arguments]
        code, out, err = 0, io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as end:
                code = end.code or 0
        ended.append([code, out.getvalue(), err.getvalue()])
    print(json.dumps(ended), flush=True)
"""
PACKAGE = Path(__file__).resolve().parents[2]
_idle: list[subprocess.Popen[str]] = []


def run_all(
    *commands: Sequence[str], folder: Path | None = None, **variables: str
) -> list[subprocess.CompletedProcess[str]]:
    """Run commands one after the other, and return how each ended."""
    given = {"commands": commands, "environment": {**os.environ, **variables}, "folder": str(folder or Path.cwd())}
    shell = _idle.pop() if _idle else _started()
    assert shell.stdin is not None and shell.stdout is not None
    try:
        shell.stdin.write(json.dumps(given) + "\n")
        shell.stdin.flush()
        found = json.loads(shell.stdout.readline())
    except BaseException:
        # Nobody reads what it answers later.
        shell.kill()
        raise
    _idle.append(shell)
    return [
        subprocess.CompletedProcess(arguments, code, out, err)
        for arguments, (code, out, err) in zip(commands, found, strict=True)
    ]


def _started() -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _PROGRAM]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(ended: subprocess.CompletedProcess[str]) -> tuple[int, Any]:
    """The exit code of a command with ``--json``, and what it printed: one value or several."""
    with contextlib.suppress(json.JSONDecodeError):
        return ended.returncode, json.loads(ended.stdout or ended.stderr)
    return ended.returncode, [json.loads(line) for line in (ended.stdout or ended.stderr).splitlines()]


def bench(what: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``tidewire bench`` in a process of its own."""
    command, env = [sys.executable, "-m", "tidewire", "bench", what, *arguments], os.environ | environment
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=55, cwd=PACKAGE, env=env)
