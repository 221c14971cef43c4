"""The programs of ``bench/campaigns``: an environment with the peers' packages, and the servers
that they need.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from .campaigns_cases import PEERS, Peer
from .environments import Environment, environment_of
from .model import Run
from .programs import NO_CHECKOUT, Programs, RunFailed, Say, environment

START_S = 90.0
"""What a contender may take to start and to warm up, beside its campaign."""


@dataclass
class CampaignPrograms(Programs):
    """Commands by contender and form, and where the servers are."""

    contenders: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)

    def can(self, run: Run) -> bool:
        """True if the run's program, its packages and its servers are there."""
        return key_of(run) in self.contenders

    def figures(self, run: Run, timeout_s: float) -> list[dict[str, float]]:
        """Runs one campaign in processes of its own, none of which is left behind."""
        said = said_by([*self.contenders[key_of(run)], *run.arguments], self.addresses, timeout_s + START_S)
        return [json.loads(line)["figures"] for line in said if line.startswith("{")]


def key_of(run: Run) -> tuple[str, str]:
    """Of its contender: our name in a run holds its form, so that each form has its line in a
    picture.
    """
    return run.contender.removesuffix(f", {run.form}"), run.form


def said_by(command: Sequence[str], addresses: Mapping[str, str], timeout_s: float) -> list[str]:
    """Lines that a contender prints. It ends its own processes; if it hangs its session is killed.

    Raises:
        RunFailed: if it fails or hangs.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        env={**environment(), **addresses},
    )
    try:
        said, complaints = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise RunFailed(f"was not done after {timeout_s:.0f} s") from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    lines = said.splitlines()
    if process.returncode != 0 or not any(line.startswith("{") for line in lines):
        last = [line.strip() for line in complaints.splitlines() if line.strip()][-1:]
        raise RunFailed(last[0][:300] if last else f"exit status {process.returncode}")
    return lines


@contextmanager
def prepared(
    bench: Path | None, needed: set[tuple[str, str]], say: Say, *, build: bool = True
) -> Iterator[CampaignPrograms]:
    """Installs the packages and starts the servers that the contenders need, and says of the rest
    why it can't be run.
    """
    programs = CampaignPrograms()
    peers = [peer for peer in PEERS if peer.key in needed]
    if bench is None:
        programs.not_run.update({peer.name: NO_CHECKOUT for peer in peers})
        yield programs
        return
    folder = bench / "campaigns"
    packages = Environment(sys.executable)
    if any(peer.packages for peer in peers):
        place = bench.parent / ".make" / "bench-campaigns"
        packages = environment_of(place, folder / "requirements.txt", say, build=build)
        programs.versions.update(packages.versions)
    with servers(bench.parent / "tools", peers, say) as (addresses, problem):
        programs.addresses = addresses
        for peer in peers:
            missing = next(
                (f"{name}: {packages.missing[name]}" for name in peer.packages if name in packages.missing), ""
            )
            why = missing or (problem if peer.servers else "")
            if why:
                programs.not_run[f"{peer.name}, {peer.form}"] = why
            else:
                python = packages.python if peer.packages else sys.executable
                programs.contenders[peer.key] = [python, str(folder / peer.program)]
        yield programs


@contextmanager
def servers(tools: Path, peers: Sequence[Peer], say: Say) -> Iterator[tuple[Mapping[str, str], str]]:
    """The servers while the block runs, writing to disk as if the data mattered: their addresses,
    and why there are none.
    """
    names = sorted({name for peer in peers for name in peer.servers})
    if not names:
        yield {}, ""
        return
    say(f"starting {', '.join(names)}")
    starting = [sys.executable, str(tools / "servers.py"), *names, "--durable"]
    keeper = subprocess.Popen(
        starting, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    try:
        said = json.loads(keeper.stdout.readline() or '{"error": "tools/servers.py has ended"}')
        yield ({}, said["error"]) if "error" in said else (said, "")
    finally:
        keeper.stdin.close()
        keeper.wait()
        keeper.stdout.close()
