"""Finds the nodes of this user that can be looked at, and asks them."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidewire._inspect import VARIABLE
from tidewire.errors import AskTimeout, ConfigError, NodeStopped, NoSuchTarget, TidewireError, Unauthorized
from tidewire.top.answer import ANSWER_BYTES_MAX
from tidewire.top.places import check, directories, is_stale, peer_uid

WHO_TIMEOUT_S = 2.0
LOOK_TIMEOUT_S = 5.0
_CHUNK_BYTES = 65_536


@dataclass(frozen=True)
class Found:
    """A node that listens. One that is stopped or very busy has no name, only that of its socket."""

    path: Path
    name: str | None = None
    pid: int | None = None

    @property
    def key(self) -> str:
        """What tells it from all others of this user."""
        return self.path.stem

    def look(self) -> dict[str, Any]:
        """Look at the node.

        Raises:
            NodeStopped: if it is gone.
            AskTimeout: if it does not answer in time.
            Unauthorized: if the socket can't be opened by this user, or is another user's.
            TidewireError: if it could not look at itself, or what answered is no node.
        """
        return ask(self.path, "top", LOOK_TIMEOUT_S)


def choose(wanted: str | None) -> Found:
    """Return the node with a name, process id or key; without one, the only node there is.

    Raises:
        NoSuchTarget: if there is none, or more than one; the text lists those there are.
        Unauthorized: if the sockets can't be opened by this user.
    """
    found = list(find())
    fits = [one for one in found if wanted is None or wanted in (one.name, str(one.pid), one.key)]
    fits = [one for one in fits if one.key == wanted] or fits
    if len(fits) == 1:
        return fits[0]
    raise NoSuchTarget(_none(wanted, found) if not fits else _several(wanted, fits))


def find() -> Iterator[Found]:
    """Find the nodes of this user, and remove the sockets of processes that have died.

    Raises:
        Unauthorized: if a directory of this user's sockets can be opened by others.
    """
    for path in _sockets():
        try:
            told = ask(path, "who", WHO_TIMEOUT_S)
            yield Found(path, str(told.get("node")), _whole(told.get("pid")))
        except NodeStopped:
            # It may also have hung up: only where nobody listens the file is of no use.
            if is_stale(path):
                path.unlink(missing_ok=True)
        except Unauthorized:
            raise
        except TidewireError:
            yield Found(path)


def ask(path: Path, question: str, timeout_s: float) -> dict[str, Any]:
    """Ask the node behind a socket. For the errors see ``Found.look``."""
    deadline_s = time.monotonic() + timeout_s
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(path))
            if peer_uid(connection) != os.geteuid():
                raise Unauthorized(f"{path}: another user listens here: remove the file")
            connection.sendall(json.dumps({"ask": question}).encode() + b"\n")
            return _parse(path, _line(path, connection, deadline_s))
    except (TimeoutError, BlockingIOError) as error:
        raise AskTimeout(f"{path.stem} did not answer within {timeout_s:g} s: it is stopped or very busy") from error
    except PermissionError as error:
        raise Unauthorized(f"{path}: permission denied: run tidewire top as the user who runs the node") from error
    except (FileNotFoundError, ConnectionError) as error:
        raise NodeStopped(f"{path.stem} is gone: the node has stopped, or its process has ended") from error


def _sockets() -> list[Path]:
    """The sockets in the directories there are. One that is refused is told of if the others have none."""
    paths: list[Path] = []
    refused: list[str] = []
    for directory in directories():
        try:
            check(directory)
            paths += sorted(path for path in directory.iterdir() if path.suffix == ".sock")
        except FileNotFoundError:
            continue
        except PermissionError:
            refused.append(f"{directory}: permission denied: chmod 700 it, or run tidewire top as the user who owns it")
        except ConfigError as error:
            refused.append(str(error))
    if refused and not paths:
        raise Unauthorized(refused[0])
    return paths


def _line(path: Path, connection: socket.socket, deadline_s: float) -> bytes:
    line = bytearray()
    while not line.endswith(b"\n"):
        connection.settimeout(max(deadline_s - time.monotonic(), 0.001))
        part = connection.recv(_CHUNK_BYTES)
        line += part
        if not part:
            raise ConnectionResetError("the node closed the connection")
        if len(line) > ANSWER_BYTES_MAX:
            raise TidewireError(f"{path.stem}: the answer is longer than {ANSWER_BYTES_MAX:,} bytes: this is no node")
    return bytes(line)


def _parse(path: Path, line: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(line)
    except ValueError as error:
        raise TidewireError(f"{path.stem}: the answer is not JSON: this is no node") from error
    if not isinstance(answer, dict) or "error" in answer:
        reason = answer["error"] if isinstance(answer, dict) else "the answer is no object"
        raise TidewireError(f"{path.stem} could not answer: {reason}")
    return answer


def _none(wanted: str | None, found: list[Found]) -> str:
    if wanted is not None and found:
        return f"node: {wanted!r} is not among the nodes that can be looked at:\n{_listed(found)}"
    which = f"node: {wanted!r} can't be looked at" if wanted is not None else "no node can be looked at"
    return f"{which}: enable it with tw.Node(inspect=True), or start the program with {VARIABLE}=1"


def _several(wanted: str | None, found: list[Found]) -> str:
    which = f"node: {len(found)} nodes are called {wanted!r}" if wanted is not None else f"{len(found)} nodes run"
    return f"{which}: choose one with --node and the text in front:\n{_listed(found)}"


def _listed(found: list[Found]) -> str:
    return "\n".join(
        f"  {one.key}   {f'{one.name!r}, process {one.pid}' if one.name is not None else 'does not answer'}"
        for one in found
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None
