"""Errors of a worker for the caller: of the same type if possible, with the worker's traceback."""

from __future__ import annotations

import pickle
from typing import Any

from tidewire.errors import RemoteError, RemoteTraceback
from tidewire.pools.processes.pickler import Dumps, plain
from tidewire.pools.processes.wire import FAILED

_TEXT_MAX = 65_536
_PICKLED_MAX = 1_048_576

Packed = tuple[int, str, str, str, "bytes | None"]


def pack(error: BaseException, dumps: Dumps = plain) -> Packed:
    """Encode an error for the parent process. Never raises."""
    trace = _shortened("".join(_trace(error)))
    return (FAILED, type(error).__name__, message_of(error), trace, _pickled(error, dumps))


def unpack(packed: Packed) -> BaseException:
    """Decode an error for the caller. Never raises."""
    _, type_name, message, trace, pickled = packed
    error = _unpickled(pickled) or RemoteError(type_name, message, trace)
    error.__cause__ = RemoteTraceback(trace)
    return error


def for_caller(error: BaseException) -> BaseException:
    """Return the error for the caller of a worker thread."""
    return error if _is_transferable(error) else unpack(pack(error))


def message_of(error: BaseException) -> str:
    """Return the message of an error, even if its ``__str__`` raises."""
    try:
        return _shortened(str(error))
    except BaseException as str_error:  # noqa: BLE001
        return f"<its message can't be made: {type(str_error).__name__}>"


def _trace(error: BaseException) -> list[str]:
    # Imported late, so that worker processes start sooner.
    import traceback

    try:
        return traceback.format_exception(type(error), error, error.__traceback__)
    except BaseException:  # noqa: BLE001
        return [f"{type(error).__name__}: {message_of(error)}\n"]


def _is_transferable(error: BaseException) -> bool:
    # Other types have side effects in the caller: they end the program or a generator.
    return isinstance(error, Exception) and not isinstance(error, (StopIteration, StopAsyncIteration))


def _pickled(error: BaseException, dumps: Dumps) -> bytes | None:
    if not _is_transferable(error):
        return None
    try:
        pickled = dumps(error)
        return pickled if len(pickled) <= _PICKLED_MAX else None
    except BaseException:  # noqa: BLE001
        return None


def _unpickled(pickled: bytes | None) -> BaseException | None:
    if pickled is None:
        return None
    try:
        error: Any = pickle.loads(pickled)
    except BaseException:  # noqa: BLE001
        return None
    return error if isinstance(error, Exception) and _is_transferable(error) else None


def _shortened(text: str) -> str:
    # Surrogates can't be printed when the text is logged.
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX // 2]} [...] {text[-_TEXT_MAX // 2 :]}"
