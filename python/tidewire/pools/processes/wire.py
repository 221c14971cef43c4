"""Length-prefixed frames between a pool and a worker process.

A frame has one value in ``marshal`` format, as both ends are the same interpreter. Numbers and
short texts need no pickle; all other values are bytes of ``pickle``. Tasks are pickled one by one,
so that two tasks never share an object, and a redelivered task is not pickled again.

- To the worker: first the setup, then lists of items. An item is a tuple of plain arguments, or the
  pickled ``(args, kwargs)``; for a batch it is a list of items. A tuple of plain values has the one
  argument of each task.
- From the worker: ``(READY,)`` or ``(BROKEN, failure)``, then ``(RESULTS, spent_ns, outcomes)`` and
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
"""Types whose values are sent without pickle."""
TEXT: Final = frozenset({str, bytes})
"""Types whose short values are sent without pickle."""
TEXT_PLAIN_MAX: Final = 1_024

_HEADER = struct.Struct("<Q")
_FRAME_BYTES_MAX = 2**31
# Later versions deduplicate values, which is slower than a second copy.
_MARSHAL_VERSION = 2


class BrokenFrame(Exception):
    """Received bytes are no frame."""


def is_plain(value: Any) -> bool:
    """Return True if a value is sent without pickle."""
    kind = type(value)
    return kind in PLAIN or (kind in TEXT and len(value) <= TEXT_PLAIN_MAX)


def are_plain(values: Sequence[Any]) -> bool:
    """Return True if all values are sent without pickle."""
    kinds = set(map(type, values))
    return kinds <= PLAIN or (kinds <= PLAIN | TEXT and all(map(is_plain, values)))


def pack_arguments(args: tuple[Any, ...], kwargs: dict[str, Any], dumps: Dumps) -> Any:
    """Return the item of one task. Raises the errors of pickle."""
    if not kwargs:
        for value in args:
            if type(value) not in PLAIN and not is_plain(value):
                break
        else:
            return args
    return dumps((args, kwargs))


def unpicklable(args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception, dumps: Dumps) -> str:
    """Return the error text of a task with an argument that can't be pickled."""
    arguments = [*((f"args[{index}]", value) for index, value in enumerate(args)), *kwargs.items()]
    for name, value in arguments:
        try:
            pack_arguments((value,), {}, dumps)
        except Exception:  # noqa: BLE001
            return f"{name}: {value!r:.200} can't be pickled for a worker process ({error}): give plain data"
    return f"args: they can't be pickled for a worker process ({error}): give plain data"


def frame(value: Any) -> bytes:
    """Encode a value as a frame."""
    body = marshal.dumps(value, _MARSHAL_VERSION)
    return _HEADER.pack(len(body)) + body


class Frames:
    """Decoder of frames from pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> Iterator[Any]:
        """Add a piece, and yield the values of complete frames. Raises BrokenFrame."""
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
