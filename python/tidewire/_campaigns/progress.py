"""Progress display of a running campaign: a live line in a terminal, a bar in a notebook, or one
line at the end.
"""

from __future__ import annotations

import contextlib
import html
import sys
from typing import Any, Protocol

from tidewire._campaigns.report import Status

_BAR = 24


class Progress(Protocol):
    """A progress display."""

    def __call__(self, status: Status, problem: str | None) -> None:
        """Show a status, and the error of an unreachable store."""

    def end(self, status: Status | None) -> None:
        """Show the final status; None after an error."""


def progress_of(enabled: bool | None) -> Progress:
    """Return the progress display for this process; a silent one for False."""
    if enabled is False:
        return Silent()
    if _in_notebook():
        return Notebook()
    with contextlib.suppress(ValueError, AttributeError):
        if sys.stderr is not None and sys.stderr.isatty():
            return Terminal()
    return ProgressLine()


class Silent:
    """Display without output."""

    def __call__(self, status: Status, problem: str | None) -> None:
        """Do nothing."""

    def end(self, status: Status | None) -> None:
        """Do nothing."""


class ProgressLine(Silent):
    """Display of one line at the end, and of one line when the store is unreachable."""

    _is_reported = False

    def __call__(self, status: Status, problem: str | None) -> None:
        """Report an unreachable store once."""
        if problem is not None and not self._is_reported:
            _show(f"campaign {status.name}: waiting for the store: {problem}\n")
        self._is_reported = problem is not None

    def end(self, status: Status | None) -> None:
        """Write the final status."""
        if status is not None:
            _show(f"{line(status)}\n")


class Terminal(Silent):
    """Display that rewrites one line of a terminal."""

    def __call__(self, status: Status, problem: str | None) -> None:
        text = line(status) if problem is None else f"campaign {status.name}: waiting for the store: {problem}"
        self._write(text)

    def end(self, status: Status | None) -> None:
        """Write the final status, and end the line."""
        if status is not None:
            self._write(line(status))
        _show("\n")

    def _write(self, text: str) -> None:
        import shutil

        width = shutil.get_terminal_size().columns - 1
        _show(f"\r{text[:width]:<{width}}")


class Notebook(Silent):
    """Progress bar in the output of a cell."""

    def __init__(self) -> None:
        self._handle: Any = None

    def __call__(self, status: Status, problem: str | None) -> None:
        from importlib import import_module

        tools = import_module("IPython.display")
        text = line(status) if problem is None else f"waiting for the store: {problem}"
        bar = tools.HTML(
            f'<progress max="1" value="{share(status):.4f}" style="width:20em"></progress> {html.escape(text)}'
        )
        if self._handle is None:
            self._handle = tools.display(bar, display_id=True)
        else:
            self._handle.update(bar)

    def end(self, status: Status | None) -> None:
        """Show the final status."""
        if status is not None:
            self(status, None)


def _show(text: str) -> None:
    """Write to the standard error. Errors are ignored: a display must not fail a run."""
    stream = sys.stderr
    # A full disk, a closed pipe or file, or no standard error.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        stream.write(text)
        stream.flush()


def share(status: Status) -> float:
    """Return the share of ended runs, from 0 to 1."""
    return 1.0 if status.state == "done" or status.runs == 0 else 1 - status.left / status.runs


def line(status: Status) -> str:
    """Format a status in one line: ended runs, rate, remaining time, failures and workers."""
    ended = status.runs - status.left
    filled = int(share(status) * _BAR)
    parts = [f"campaign {status.name} {'█' * filled}{'░' * (_BAR - filled)} {ended:,}/{status.runs:,}"]
    if status.ended:
        parts.append(f"{status.state} in {_seconds(status.seconds)}")
    else:
        parts.append(status.condition if status.condition != "running" else f"{status.rate:,.0f} runs/s")
    left_s = status.seconds_left
    if left_s is not None:
        parts.append(f"{_seconds(left_s)} left")
    if status.failed or status.quarantined:
        parts.append(f"{status.failed:,} failed, {status.quarantined:,} quarantined")
    working = sum(worker.state == "working" for worker in status.workers)
    if not status.ended:
        parts.append(f"{working} worker{'' if working == 1 else 's'}")
    return " · ".join(parts)


def _seconds(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def _in_notebook() -> bool:
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = get_ipython() if get_ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"
