"""Stacks of threads, for reports of stuck handlers."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Iterable

from tidewire._runtime.process_state import lock

_lock = lock()


def stacks(threads: Iterable[int]) -> dict[int, tuple[str, ...]]:
    """Return the stacks of live threads by their identities; the innermost line is last.

    Garbage collection is off meanwhile: CPython before 3.11.8 and 3.12.2 creates frames while its
    list of threads is locked. A finalizer that releases the GIL there deadlocks with a thread that
    starts or ends.
    """
    idents = set(threads)
    if not idents:
        return {}
    with _lock:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            frames = sys._current_frames()
        finally:
            if was_enabled:
                gc.enable()
    return {
        ident: tuple(f"{line.filename}:{line.lineno} in {line.name}" for line in traceback.extract_stack(frame))
        for ident, frame in frames.items()
        if ident in idents
    }
