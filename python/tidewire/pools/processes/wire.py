"""Frames between a pool and a worker process, with their length in front.

A frame holds one value in the format of ``marshal``: both ends are the same interpreter, numbers
and short texts need no pickle at all, and everything else lies in it as bytes that ``pickle`` made,
one by one. Tasks are pickled one by one so that two of them never share an object, and so that a
task can go out again without being pickled again.

- to the worker: first the setup, then lists of items. An item is a tuple of plain arguments, or the
  pickled ``(args, kwargs)``; for a function that takes batches it is a list of items. A tuple of
  plain values has one argument of one task each.
- from the worker: ``(READY,)`` or ``(BROKEN, failure)``, then ``(RESULTS, spent_ns, outcomes)`` and
  ``(PROGRESS, position, fraction, note)``. An outcome is a plain value, or a tuple: ``(PICKLED,
  bytes)``, ``(FAILED, ...)`` as in ``failure.py``, or ``(SKIPPED,)``.
"""

from __future__ import annotations

import marshal
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tidewire.pools.processes.pickler import Dumps

READY: Final = 0
BROKEN: Final = 1
RESULTS: Final = 2
PROGRESS: Final = 3

PICKLED: Final = 0
FAILED: Final = 1
SKIPPED: Final = 2

PLAIN: Final = frozenset({int, float, bool, type(None)})
"""Types whose values travel without pickle."""
TEXT: Final = frozenset({str, bytes})
"""Types whose short values travel without pickle."""
TEXT_PLAIN_MAX: Final = 1_024

_HEADER = struct.Struct("<Q")
_FRAME_BYTES_MAX = 2**31
# Later versions look for values that occur twice, which takes longer than writing them twice.
_MARSHAL_VERSION = 2


class BrokenFrame(Exception):
    """The other side wrote something that is no frame."""


def is_plain(value: Any) -> bool:
    """Tell whether a value travels as it is."""
    kind = type(value)
    return kind in PLAIN or (kind in TEXT and len(value) <= TEXT_PLAIN_MAX)


def are_plain(values: Sequence[Any]) -> bool:
    """Tell whether all values travel as they are."""
    kinds = set(map(type, values))
    return kinds <= PLAIN or (kinds <= PLAIN | TEXT and all(map(is_plain, values)))


def pack_arguments(args: tuple[Any, ...], kwargs: dict[str, Any], dumps: Dumps) -> Any:
    """Return the item of one task. Raises whatever pickle raises."""
    if not kwargs:
        for value in args:
            if type(value) not in PLAIN and not is_plain(value):
                break
        else:
            return args
    return dumps((args, kwargs))


def unpicklable(args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception, dumps: Dumps) -> str:
    """Say which argument of a task can't be pickled."""
    named = [*((f"args[{index}]", value) for index, value in enumerate(args)), *kwargs.items()]
    for name, value in named:
        try:
            pack_arguments((value,), {}, dumps)
        except Exception:  # noqa: BLE001
            return f"{name}: {value!r:.200} can't be pickled for a worker process ({error}): give plain data"
    return f"args: they can't be pickled for a worker process ({error}): give plain data"


def frame(value: Any) -> bytes:
    """Return a value as a frame."""
    body = marshal.dumps(value, _MARSHAL_VERSION)
    return _HEADER.pack(len(body)) + body


class Frames:
    """Puts frames together again from pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> Iterator[Any]:
        """Take a piece, and yield the values of the frames that are complete now. Raises
        BrokenFrame.
        """
        self._buffer += piece
        while len(self._buffer) >= _HEADER.size:
            (length,) = _HEADER.unpack_from(self._buffer)
            if length > _FRAME_BYTES_MAX:
                raise BrokenFrame(f"a frame of {length:,} bytes")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                return
            yield self._cut(end)

    def _cut(self, end: int) -> Any:
        with memoryview(self._buffer) as view:
            try:
                value = marshal.loads(view[_HEADER.size : end])
            except (EOFError, ValueError, TypeError) as error:
                raise BrokenFrame(str(error)) from error
        del self._buffer[:end]
        return value
