"""Wire form of errors."""

from __future__ import annotations

import traceback
from functools import partial
from typing import Any

from tidewire.errors import RemoteError, RemoteTraceback, WireError
from tidewire.values.plans import type_name
from tidewire.values.records import find

_TEXT_MAX = 65_536


def describe(error: BaseException) -> tuple[tuple[str, Any], ...]:
    """Return the entries of the map of an error. Only its arguments and its state may have
    unsendable values.
    """
    state = {name: value for name, value in vars(error).items() if not name.startswith("__")}
    notes = [_sendable(str(note)) for note in getattr(error, "__notes__", None) or ()]
    arguments = _arguments(error)
    return (
        ("type", type_name(type(error))),
        ("message", _message(error)),
        ("args", error.args),
        *([] if arguments == error.args else [("arguments", arguments)]),
        ("state", state),
        ("notes", notes),
        ("traceback", _sendable(_trace(error))),
    )


def build(fields: dict[Any, Any]) -> BaseException:
    """Build an error from its map: of its own type if known here, else a RemoteError."""
    name, message, trace = (_text(fields, key) for key in ("type", "message", "traceback"))
    remote = RemoteError(name.removeprefix("builtins:"), message, trace)
    if trace:
        remote.__cause__ = RemoteTraceback(trace)
    error = _as_its_type(name, fields)
    if error is None:
        return _with_notes(remote, fields)
    error.__cause__ = remote
    return _with_notes(error, fields)


def _as_its_type(name: str, fields: dict[Any, Any]) -> BaseException | None:
    kind, args, state = find(name), fields.get("args"), fields.get("state")
    arguments = fields.get("arguments", args)
    if kind is None or not issubclass(kind, Exception) or not isinstance(args, tuple):
        return None
    # Both classes would end a generator of the receiving program.
    if issubclass(kind, (StopIteration, StopAsyncIteration)):
        return None
    error = _constructed(kind, args, arguments if isinstance(arguments, tuple) else args)
    if error is not None and isinstance(state, dict):
        vars(error).update((key, value) for key, value in state.items() if isinstance(key, str))
    return error


def _constructed(kind: type[Exception], args: tuple[Any, ...], arguments: tuple[Any, ...]) -> Exception | None:
    """Build an error from its constructor arguments.

    The constructor is skipped if it passes other arguments to its base: the result would differ.
    """
    for make, values in ((kind, arguments), (partial(kind.__new__, kind), args)):
        try:
            error: Exception = make(*values)
            if type(error) is kind and bool(error.args == args):
                return error
        except Exception:  # noqa: BLE001, S112
            continue
    return None


def _with_notes(error: BaseException, fields: dict[Any, Any]) -> BaseException:
    notes = fields.get("notes")
    if isinstance(notes, list) and notes:
        error.__notes__ = [note for note in notes if isinstance(note, str)]
    return error


def _arguments(error: BaseException) -> tuple[Any, ...]:
    """Return the constructor arguments: some built-in errors have more than ``args``."""
    try:
        reduced: tuple[Any, ...] = tuple(error.__reduce__())
        kind, arguments = reduced[:2]
    except Exception:  # noqa: BLE001
        return error.args
    return arguments if kind is type(error) and isinstance(arguments, tuple) else error.args


def _text(fields: dict[Any, Any], key: str) -> str:
    text = fields.get(key, "" if key == "traceback" else None)
    if not isinstance(text, str):
        raise WireError(f"data: an error needs text as its {key}, not {type(text).__name__}")
    return text


def _message(error: BaseException) -> str:
    try:
        return _sendable(str(error))
    except Exception as second:  # noqa: BLE001
        return f"<its message can't be made: {type(second).__name__}>"


def _trace(error: BaseException) -> str:
    if error.__traceback__ is None and error.__cause__ is None:
        return ""
    try:
        return "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except Exception:  # noqa: BLE001
        return f"{type(error).__name__}: {_message(error)}\n"


def _sendable(text: str) -> str:
    # UTF-8 has no surrogates.
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX // 2 - 8]} [...] {text[8 - _TEXT_MAX // 2 :]}"
