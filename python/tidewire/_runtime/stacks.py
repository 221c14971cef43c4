"""The lines of code that threads are at, for reports of a stuck thread."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Iterable

from tidewire._runtime.process_state import lock

_one_at_a_time = lock()


def stacks(threads: Iterable[int]) -> dict[int, tuple[str, ...]]:
    """Return the stack of each of these threads that lives, by its identity; the innermost line
    comes last.

    No garbage is collected meanwhile: CPython before 3.11.8 and 3.12.2 makes frames with its list
    of threads locked, and a finalizer that lets go of the interpreter there stops it for good, as
    soon as a thread begins or ends.
    """
    wanted = set(threads)
    if not wanted:
        return {}
    with _one_at_a_time:
        collects = gc.isenabled()
        gc.disable()
        try:
            frames = sys._current_frames()
        finally:
            if collects:
                gc.enable()
    return {
        ident: tuple(f"{line.filename}:{line.lineno} in {line.name}" for line in traceback.extract_stack(frame))
        for ident, frame in frames.items()
        if ident in wanted
    }
