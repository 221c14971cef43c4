"""Keyboard input of a terminal."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from types import TracebackType
from typing import Any


class Keys:
    """The keyboard, read key by key while the block lasts. Without a terminal at the input there
    are no keys, only time.
    """

    def __init__(self) -> None:
        self._file: int | None = None
        self._before: list[Any] = []

    def __enter__(self) -> Keys:
        if sys.stdin is not None and sys.stdin.isatty():
            import termios
            import tty

            self._file = sys.stdin.fileno()
            self._before = termios.tcgetattr(self._file)
            tty.setcbreak(self._file)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before:
            import termios

            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._before)

    def wait(self, seconds: float) -> str:
        """Return the key that was pressed, or an empty text after some seconds without one."""
        if self._file is None:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select([self._file], [], [], seconds)
        if not ready:
            return ""
        # A terminal that is gone is ready for ever, with nothing to read.
        with contextlib.suppress(OSError):
            return os.read(self._file, 1).decode(errors="replace") or "q"
        return "q"
