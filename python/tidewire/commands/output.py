"""Output of commands: any value as JSON, errors, and the log."""

from __future__ import annotations

import codecs
import json
import logging
import math
import os
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import tidewire as tw
from tidewire._log import logger

Level = StrEnum("Level", ["debug", "info", "warning", "error"])
Format = StrEnum("Format", ["text", "json"])


def option(name: str, help: str, metavar: str | None = None, shown: str | bool = False, **more: Any) -> Any:
    """Declare an option of a command. ``shown`` is the default that its help shows."""
    return typer.Option(name, help=help, metavar=metavar, show_default=shown, **more)


def again(name: str, help: str, metavar: str | None = None, shown: str | bool = False) -> Any:
    """Declare an option that may be given several times."""
    return option(name, f"{help}; may be given again.", metavar, shown)


LogLevel = Annotated[Level, typer.Option("--log-level", help="Least level of the log on the standard error.")]
LogFormat = Annotated[
    Format | None, option("--log-format", "Lines of text, or an object a line.", shown="text; json with --json")
]
_NOT_REACHABLE = (tw.LinkLost, tw.StoreUnavailable, tw.HomeUnavailable)
_ESCAPES = "tidewire.escape"
_DEFAULTS = ("strict", "surrogateescape")
_OWN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


def escape_in(stream: Any) -> None:
    """Escape characters that the encoding of a stream lacks, unless the user chose otherwise."""
    if getattr(stream, "errors", None) in _DEFAULTS and hasattr(stream, "reconfigure"):
        codecs.register_error(_ESCAPES, _escape)
        stream.reconfigure(errors=_ESCAPES)


def as_json(value: Any) -> str:
    """Return a value as JSON. Values without a JSON form, such as bytes, times, infinite numbers
    and keys other than text, become text.
    """
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)


def complain(text: str, *, code: str, retryable: bool = False, kind: str | None = None, json_wanted: bool) -> None:
    """Print an error to the standard error: a line with its code, or a JSON object with
    ``error``.
    """
    if json_wanted:
        fields = {"code": code, "type": kind, "message": text, "retryable": retryable}
        text = json.dumps({"error": {key: value for key, value in fields.items() if value is not None}})
    else:
        text = f"{code}: {text}" if kind is None else f"{code}: {kind}: {text}"
    print(text, file=sys.stderr)


def fail(error: tw.TidewireError, json_wanted: bool) -> int:
    """Print an error, and return the exit code: 2 for wrong usage, 3 if a hub, a server or a store
    is unreachable, else 1.
    """
    complain(str(error), code=error.code, retryable=error.retryable, json_wanted=json_wanted)
    return 2 if isinstance(error, tw.InvalidArgument) else 3 if isinstance(error, _NOT_REACHABLE) else 1


def print_table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a table. Columns whose titles begin with ``>`` are aligned to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title.lstrip(">"), justify="right" if title[0] == ">" else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)


def stop_output() -> int:
    """Discard all further output, since its reader, such as ``head``, has closed it. Return the
    exit code.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def log_to_stderr(level: Level, log_format: Format | None, json_wanted: bool) -> None:
    """Write the log of the package to the standard error: a line or a JSON object for each record,
    with its time.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(_LogLines(log_format is Format.json or (log_format is None and json_wanted)))
    logger.addHandler(handler)
    logger.setLevel(level.upper())


class _LogLines(logging.Formatter):
    """Formatter of log records as text or JSON, with time and zone."""

    def __init__(self, is_json: bool) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")
        self._is_json = is_json

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")

    def format(self, record: logging.LogRecord) -> str:
        if not self._is_json:
            return super().format(record)
        data = {"time": self.formatTime(record), "level": record.levelname.lower(), "logger": record.name}
        data["message"] = record.getMessage()
        # Standard fields take precedence over extra fields.
        data = {**{key: value for key, value in vars(record).items() if key not in _OWN}, **data}
        return as_json({**data, "traceback": self.formatException(record.exc_info)} if record.exc_info else data)


def _escape(error: UnicodeError) -> tuple[str, int]:
    """Escape characters as JSON does, so that JSON output stays valid."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return {_key(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(one) for one in value]
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    # Arrays and scalars of NumPy.
    to_list = getattr(value, "tolist", None)
    return str(value) if to_list is None else _plain(to_list())


def _key(key: Any) -> str:
    plain = _plain(key)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
