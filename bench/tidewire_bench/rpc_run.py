"""One run: a hub if there is one, a service and a caller, each a process of its own, ended when the
run is over.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any

from .programs import RunFailed, environment
from .rpc_cases import CROWD

START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Roles:
    """The commands of a contender."""

    service: tuple[str, ...]
    caller: tuple[str, ...]
    hub: tuple[str, ...] | None = None
    crowd: tuple[str, ...] | None = None
    """What joins many nodes that keep quiet."""


def figures_of(roles: Roles, arguments: Sequence[str], timeout_s: float) -> list[dict[str, float]]:
    """Starts the roles one after the other; what the caller found in each round.

    Raises:
        RunFailed: if one of them fails, hangs or prints something else.
    """
    watch: list[str] = []
    url = ""
    crowd, arguments = without_crowd(arguments)
    with ExitStack() as stack:
        for name, command in (("hub", roles.hub), ("service", roles.service)):
            if command is not None:
                place = stack.enter_context(server(name, [*command, "--url", url]))
                if name == "hub" and crowd:
                    stack.enter_context(
                        server("crowd", [*crowd_of(roles), "--url", str(place["url"]), "--count", str(crowd)])
                    )
                url = str(place["url"])
                watch += ["--watch", f"{name}={place['pid']}"]
        return called([*roles.caller, "--url", url, *watch, *arguments], timeout_s)


def without_crowd(arguments: Sequence[str]) -> tuple[int, list[str]]:
    """How many others shall be joined, and what is left for the caller."""
    rest = list(arguments)
    if CROWD not in rest:
        return 0, rest
    at = rest.index(CROWD)
    count = int(rest[at + 1])
    del rest[at : at + 2]
    return count, rest


def crowd_of(roles: Roles) -> tuple[str, ...]:
    """The command that joins others.

    Raises:
        RunFailed: if it has not been built.
    """
    if roles.crowd is None:
        raise RunFailed("crowd: the Rust program that joins other nodes has not been built")
    return roles.crowd


def called(command: list[str], timeout_s: float) -> list[dict[str, float]]:
    """Runs the caller."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env=environment(),
        )
    except subprocess.TimeoutExpired:
        raise RunFailed(f"the caller was not done after {timeout_s:.0f} s") from None
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        raise RunFailed(f"caller: {last_line(done.stderr) or f'exit status {done.returncode}'}")
    return [json.loads(line)["figures"] for line in lines]


@contextmanager
def server(name: str, command: list[str]) -> Iterator[dict[str, Any]]:
    """A hub or a service: its line says where it is, and the end of its standard input ends it."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            start_new_session=True,
            env=environment(),
        )
        try:
            yield first_line(name, process, said)
        finally:
            end(process)


def first_line(name: str, process: subprocess.Popen[str], said: IO[str]) -> dict[str, Any]:
    """Ready line of a server: others can connect after it."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], START_TIMEOUT_S)
    line = process.stdout.readline() if ready else ""
    if line.startswith("{"):
        place: dict[str, Any] = json.loads(line)
        return place
    said.seek(0)
    why = last_line(said.read()) or f"it said {line!r}"
    raise RunFailed(f"{name}: {why}" if ready else f"{name}: was not ready after {START_TIMEOUT_S:.0f} s")


def end(process: subprocess.Popen[str]) -> None:
    """Asks a server to end, waits, and kills what is left of it and of the programs that it
    started.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(OSError):
        process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_TIMEOUT_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def last_line(text: str) -> str:
    """The line of an error's report that names it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
