"""Settings of ``tidewire up``: options, which take precedence, and the table ``hub`` of a file."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import tidewire as tw
from tidewire._binding import table_of_toml
from tidewire._urls import is_nats
from tidewire.services.contract.names import short

URL = "tide://127.0.0.1:7420"


@dataclass(frozen=True)
class HubJoin:
    """Another hub to join. The fields are those of ``node.join``, and the PEM files of
    ``tw.Tls``.
    """

    url: str
    as_: str | None = None
    export: tuple[str, ...] = ()
    import_: tuple[str, ...] = ()
    token: str | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None


@dataclass(frozen=True)
class HubSettings:
    """Settings of a hub: addresses, tokens, TLS and storage.

    Args:
        name: Its name, or None for a name with the process id.
        listen: The URLs at which nodes join.
        http: HTTP addresses of its public services: ``http://127.0.0.1:8080``, or
            ``127.0.0.1:8080``.
        cors: Origins of pages that may call over HTTP.
        hosts: Host names that the gateway of a hub without tokens accepts.
        http_files: A folder that is served to everybody over HTTP, at ``/files/``.
        console: True to serve the operator console at ``/console/``.
        console_admin: True to allow actions in the console of a hub without tokens.
        http_limits: HTTP limits by name.
        tokens: Tokens of the nodes that may join; without tokens everybody who reaches the
            address.
        cert: PEM file of the certificate, for URLs with TLS.
        key: PEM file of its private key.
        ca: PEM file of the certificates that must sign those of joining nodes.
        insecure: True to allow other machines without TLS or a token.
        timeout: Seconds to drain calls when it stops.
        data: A data folder with streams, buckets and leases for all joining nodes.
        nats: URL of the NATS servers of a cluster. Nodes and clients of this hub can reach the
            cluster, and the cluster can reach the nodes.
        join: Other hubs to join, with the names shared with each.
    """

    name: str | None = None
    listen: tuple[str, ...] = (URL,)
    http: tuple[str, ...] = ()
    cors: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    http_files: Path | None = None
    console: bool = False
    console_admin: bool = False
    http_limits: Mapping[str, int] = field(default_factory=dict)
    tokens: tuple[tw.Token, ...] = ()
    cert: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    insecure: bool = False
    timeout: float = 10.0
    data: Path | None = None
    nats: str | None = None
    join: tuple[HubJoin, ...] = ()

    @classmethod
    def of_file(cls, file: Path | None) -> HubSettings:
        """Read the table ``hub`` of a TOML file. Its paths are relative to the folder of the file.
        The rest of the file is for the node.

        Raises:
            ConfigError: if the table has errors; the message lists all of them.
        """
        table = None if file is None else _table(file)
        if file is None or table is None:
            return cls()
        reader = _TableReader(file)
        values = {key: reader.value(key, value) for key, value in table.items()}
        if reader.problems:
            problems = [f"{problem} (from {file})" for problem in reader.problems]
            raise tw.ConfigError("configuration: " + "\n  ".join(problems), problems=problems)
        return cls(**values)

    def changed(self, **options: Any) -> HubSettings:
        """Return a copy with the options that are not None.

        Raises:
            InvalidArgument: if the name is empty, or the timeout is not a duration.
        """
        new = replace(self, **{name: value for name, value in options.items() if value is not None})
        problem = None if new.name is None else _name_problem("name", new.name)
        problem = problem or _timeout_problem("timeout", new.timeout)
        problem = problem or (None if new.nats is None else _nats_problem("nats", new.nats))
        if new.nats is not None and new.data is not None:
            problem = problem or "nats: data is given, too: streams are stored in one place; leave one out"
        if problem is not None:
            raise tw.InvalidArgument(problem)
        return new


class _TableReader:
    def __init__(self, file: Path) -> None:
        self.problems: list[str] = []
        self._folder = file.parent
        self._readers: Mapping[str, Callable[[str, Any], Any]] = {
            "name": self._checked(_name_problem),
            "nats": self._checked(_nats_problem),
            "listen": self._texts,
            **dict.fromkeys(("http", "cors", "hosts"), self._texts),
            "http_limits": self._numbers,
            "tokens": self._tokens,
            "join": self._joins,
            **dict.fromkeys(("insecure", "console", "console_admin"), self._flag),
            "timeout": self._checked(_timeout_problem),
            **dict.fromkeys(("cert", "key", "ca"), partial(self._path, "give the path of a PEM file")),
            **dict.fromkeys(("data", "http_files"), partial(self._path, "give the path of a folder")),
        }

    def value(self, key: str, value: Any) -> Any:
        read = self._readers.get(key)
        if read is None:
            self._unknown(f"hub.{key}", key, self._readers)
            return None
        return read(f"hub.{key}", value)

    def _unknown(self, path: str, key: str, known: Mapping[str, Any] | tuple[str, ...]) -> None:
        close = difflib.get_close_matches(key, list(known), n=1)
        fix = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
        self.problems.append(f"{path}: unknown key; {fix}")

    def _add_problem(self, path: str, value: Any, fix: str) -> None:
        self.problems.append(f"{path}: {short(value)} is not allowed: {fix}")

    def _checked(self, problem_of: Callable[[str, Any], str | None]) -> Callable[[str, Any], Any]:
        def read(path: str, value: Any) -> Any:
            self.problems += filter(None, [problem_of(path, value)])
            return value

        return read

    def _texts(self, path: str, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not value or not all(isinstance(text, str) and text for text in value):
            self._add_problem(path, value, 'give a list of text, such as ["tide://127.0.0.1:7420"]')
            return ()
        return tuple(value)

    def _numbers(self, path: str, value: Any) -> dict[str, int]:
        if isinstance(value, dict) and all(type(number) is int for number in value.values()):
            return value
        self._add_problem(path, value, "give a table of whole numbers, such as { http_body_bytes = 1_000_000 }")
        return {}

    def _path(self, fix: str, path: str, value: Any) -> Path:
        if not isinstance(value, str) or not value:
            self._add_problem(path, value, fix)
        return self._folder / str(value)

    def _flag(self, path: str, value: Any) -> bool:
        if not isinstance(value, bool):
            self._add_problem(path, value, "give true or false")
        return bool(value)

    def _tokens(self, path: str, value: Any) -> tuple[tw.Token, ...]:
        if not isinstance(value, list) or not value:
            self._add_problem(path, value, 'give tables: [[hub.tokens]], with token = "a secret"')
            return ()
        found = [self._token(f"{path}[{number}]", one) for number, one in enumerate(value)]
        return tuple(token for token in found if token is not None)

    def _joins(self, path: str, value: Any) -> tuple[HubJoin, ...]:
        if not isinstance(value, list) or not all(isinstance(one, dict) and one.get("url") for one in value):
            self._add_problem(path, value, 'give tables: [[hub.join]], with url = "tide://other:7420"')
            return ()
        return tuple(self._join(f"{path}[{number}]", one) for number, one in enumerate(value))

    def _join(self, path: str, table: Mapping[str, Any]) -> HubJoin:
        known = {one.name.rstrip("_"): one.name for one in fields(HubJoin)}
        found: dict[str, Any] = {}
        for key, value in table.items():
            if key not in known:
                self._unknown(f"{path}.{key}", key, tuple(known))
            elif key in ("export", "import"):
                found[known[key]] = self._texts(f"{path}.{key}", value)
            elif key in ("ca", "cert", "key"):
                found[key] = self._path("give the path of a PEM file", f"{path}.{key}", value)
            elif isinstance(value, str) and value:
                found[known[key]] = value
            else:
                # The value may be a secret.
                self.problems.append(f"{path}.{key}: the value is not allowed: give text")
        return HubJoin(**{"url": "", **found})

    def _token(self, path: str, value: Any) -> tw.Token | None:
        known = tuple(one.name for one in fields(tw.Token))
        if not isinstance(value, dict):
            # The value may be a secret that was meant to be a token.
            self.problems.append(f'{path}: the value is no table: write [[hub.tokens]] and token = "a secret"')
            return None
        for key in value:
            if key not in known:
                self._unknown(f"{path}.{key}", key, known)
                return None
        try:
            frozen: dict[str, Any] = {key: tuple(one) if isinstance(one, list) else one for key, one in value.items()}
            return tw.Token(**{"token": None, **frozen})
        except tw.InvalidArgument as error:
            self.problems.append(f"{path}.{error}")
            return None


def _table(file: Path) -> dict[str, Any] | None:
    try:
        return table_of_toml(file.read_text(encoding="utf-8"), "hub")
    # The configuration of the node reads the same file, and reports its errors.
    except (OSError, UnicodeDecodeError):
        return None


def _name_problem(path: str, value: Any) -> str | None:
    if isinstance(value, str) and value:
        return None
    return f"{path}: {short(value)} is not allowed: give text of one character or more"


def _nats_problem(path: str, value: Any) -> str | None:
    if is_nats(value):
        return None
    # The value may contain a password.
    return f"{path}: the value is no URL of NATS: give one such as nats://127.0.0.1:4222"


def _timeout_problem(path: str, value: Any) -> str | None:
    # The comparison refuses NaN as well.
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return None
    return f"{path}: {value} is not allowed: give seconds, 0 or more"
