"""The processes that run a campaign, from its events: the running and the ended ones."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

_NOTE = re.compile(r"(run|left) by process (\d+) on (.*) \[(\d+)-(\d+)\]")
_END_STATES = ("done", "failed", "cancelled")


class OwnerProcess(NamedTuple):
    """A process that calls ``Campaign.run``."""

    process: int
    host: str
    start: int
    """Start time of the process, in ticks since the boot of the machine."""
    namespace: int
    """PID namespace of the process: containers may share a host name."""

    def note(self, verb: str) -> str:
        """Return the reason of an event, with ``run`` or ``left`` as its verb."""
        return f"{verb} by process {self.process} on {self.host} [{self.start}-{self.namespace}]"

    def owns(self, worker: dict[str, Any]) -> bool:
        """Return whether this process started a worker."""
        return bool(worker["host"] == self.host and worker["name"].startswith(f"{self.process}-"))

    def is_gone(self, row: dict[str, Any], lease_us: int) -> bool:
        """Return whether this process has ended. A process of another machine counts as ended when
        its workers are silent for two leases.
        """
        if (self.host, self.namespace) != (os.uname().nodename, _namespace()):
            seen = [worker["seen_us"] for worker in row["workers"] if self.owns(worker)]
            return bool(seen) and row["now_us"] - max(seen) > 2 * lease_us
        try:
            os.kill(self.process, 0)
            return self.start != _start(self.process)
        except ProcessLookupError:
            return True
        except OSError:
            # A process of another user, or a system without /proc.
            return False


def this_process() -> OwnerProcess:
    """Return this process as an owner."""
    process = os.getpid()
    try:
        return OwnerProcess(process, os.uname().nodename, _start(process), _namespace())
    except OSError:
        return OwnerProcess(process, os.uname().nodename, 0, 0)


def condition_of(row: dict[str, Any], events: Iterable[tuple[int, str, str, str]], lease_us: int) -> str:
    """Return the condition of a campaign from its status and its events. Workers of an ended owner
    become ``lost`` in the status.
    """
    state: str = row["state"]
    if state != "running":
        return state
    owners: set[OwnerProcess] = set()
    was_run = False
    for _, _, after, reason in events:
        if after in _END_STATES:
            owners.clear()
            was_run = False
        elif (match := _NOTE.fullmatch(reason)) is not None:
            verb, process, host, start, namespace = match.groups()
            owner = OwnerProcess(int(process), host, int(start), int(namespace))
            (owners.add if verb == "run" else owners.discard)(owner)
            was_run = True
    ended = {owner for owner in owners if owner.is_gone(row, lease_us)}
    working = False
    for worker in row["workers"]:
        if worker["state"] == "working":
            # A later process may have the id of an ended one.
            if any(owner.owns(worker) for owner in ended) and not any(owner.owns(worker) for owner in owners - ended):
                worker["state"] = "lost"
            else:
                working = True
    if working:
        return state
    return "interrupted" if was_run and ended == owners else "waiting for workers"


def _start(process: int) -> int:
    """Return the start time of a process; -1 for a zombie."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return -1 if fields[0] in "ZX" else int(fields[19])


def _namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
