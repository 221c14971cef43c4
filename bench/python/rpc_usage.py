"""Processor time and peak memory of each process that takes part in a workload."""

from __future__ import annotations

import time


class Usage:
    """Processor time between a start and a stop, of this process and of others that are named."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids
        self._before: dict[str, float] = {}
        self._spent: dict[str, float] = {}

    def start(self) -> None:
        """The clock of the workload is about to start."""
        self._before = {name: processor_s(pid) for name, pid in self._pids.items()}

    def stop(self) -> None:
        """The clock has stopped."""
        self._spent = {name: processor_s(pid) - self._before[name] for name, pid in self._pids.items()}

    def figures(self, count: float) -> dict[str, float]:
        """Microseconds for each of ``count``, and megabytes at the peak, which includes the start
        and the warm-up.
        """
        cpu = {f"cpu_us_{name}": spent * 1e6 / count for name, spent in self._spent.items()}
        return {**cpu, **{f"peak_mb_{name}": peak_bytes(pid) / 1e6 for name, pid in self._pids.items()}}


def processor_s(pid: int) -> float:
    """User and system time of all threads: what /proc/<pid>/stat has in steps of 10 ms, read from
    the process's own clock.
    """
    return time.clock_gettime(~pid << 3 | 2)


def peak_bytes(pid: int) -> int:
    """The most resident memory that a process has had."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
