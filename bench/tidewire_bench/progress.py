"""One line that says what runs now, on a terminal; elsewhere one line for each workload."""

from __future__ import annotations

import sys
import time


class Progress:
    """Counts steps on standard error, so that standard output holds the result alone."""

    def __init__(self, total: int, *, quiet: bool = False) -> None:
        self._total = total
        self._done = 0
        self._quiet = quiet
        self._live = sys.stderr.isatty()
        self._started = time.monotonic()
        self._workload = ""

    def close(self) -> None:
        """Clear the line."""
        if self._live and not self._quiet:
            self._write("\r\x1b[K")

    def step(self, what: str) -> None:
        """The next run begins."""
        self._done += 1
        line = f"[{self._done}/{self._total}] {time.monotonic() - self._started:4.0f} s  {what}"
        workload = what.split(" · ")[0].split(":")[0]
        if self._live:
            self._write(f"\r\x1b[K{line[:150]}")
        elif workload != self._workload:
            self._write(f"{line}\n")
        self._workload = workload

    def say(self, what: str) -> None:
        """Something that is not a run."""
        self._write(f"\r\x1b[K{what}" if self._live else f"{what}\n")

    def _write(self, text: str) -> None:
        if not self._quiet:
            sys.stderr.write(text)
            sys.stderr.flush()
