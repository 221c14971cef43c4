"""The command ``tidewire``, several times in one process: to start one takes longer than most
commands.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

_PROGRAM = """
import contextlib, io, json, sys
from tidewire.__main__ import main

ended = []
for arguments in json.load(sys.stdin):
    sys.argv = ["tidewire", *arguments]
    code, out, err = 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    ended.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(ended))
"""


def run_all(*commands: Sequence[str], **variables: str) -> list[subprocess.CompletedProcess[str]]:
    """Run commands one after the other, and return how each ended."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stderr
    return [
        subprocess.CompletedProcess(arguments, code, out, err)
        for arguments, (code, out, err) in zip(commands, json.loads(done.stdout), strict=True)
    ]
