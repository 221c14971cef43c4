"""Sockets of nodes that `tidewire top` reads: their folder and its permissions."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import socket
import stat
import struct
import tempfile
from pathlib import Path

from tidewire.errors import ConfigError, Unauthorized

PATH_BYTES_MAX = 103
"""Longest path of a Unix socket on all systems; Linux allows 107 bytes."""

_NAME_MAX = 48
_CREDENTIALS = struct.Struct("3i")


def new_path(name: str) -> Path:
    """Return the path for the socket of the node ``name`` of this process.

    Raises:
        ConfigError: if there is no folder for it that only this user can open.
    """
    directory = _directories()[0]
    try:
        if not hasattr(socket, "SO_PEERCRED"):
            raise OSError("this system has no sockets that name their peer")
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        _check(directory)
        # A stale file with the id of this process is from an earlier process.
        return next(filter(is_stale, (_path(directory, name, number) for number in itertools.count(1))))
    except OSError as error:
        fix = "set XDG_RUNTIME_DIR to a directory of yours, or leave inspect off"
        text = f"inspect: no socket can be made in {str(directory)!r}: {error}: {fix}"
        raise ConfigError(text, problems=[text]) from error


def live_sockets() -> list[Path]:
    """Return the sockets of this user with a listening process, and remove the others.

    Raises:
        Unauthorized: if others can open a directory or a socket. A refused directory is not an
            error if another one has sockets.
    """
    paths: list[Path] = []
    refused: list[str] = []
    for directory in _directories():
        try:
            _check(directory)
            paths += sorted(path for path in directory.iterdir() if path.suffix == ".sock")
        except FileNotFoundError:
            continue
        except OSError as error:
            refused.append(f"{directory}: {error}: run tidewire top as the user who owns it, or remove it")
    if refused and not paths:
        raise Unauthorized(refused[0])
    for path in filter(is_stale, paths):
        path.unlink(missing_ok=True)
    return [path for path in paths if path.exists()]


def is_stale(path: Path) -> bool:
    """Return whether a socket has no listening process: none at all, or only a forked child of a
    dead process.

    A suspended or busy node still listens.

    Raises:
        Unauthorized: if this user can't open it, or another user listens there.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return True
        except PermissionError as error:
            raise Unauthorized(f"{path}: permission denied: run this command as the user who runs the node") from error
        except BlockingIOError:
            # The backlog of the socket is full.
            return False
        raw = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(raw)
    if user != os.geteuid():
        raise Unauthorized(f"{path}: another user listens here: remove the file")
    try:
        # Process 0 is in another container. Signal 0 only checks the process.
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError) as error:
        # Without permission, another user has the id now.
        return isinstance(error, ProcessLookupError)
    return False


def _path(directory: Path, name: str, number: int) -> Path:
    start, end = f"{directory}/{os.getpid()}-", f"{f'~{number}' if number > 1 else ''}.sock"
    free = PATH_BYTES_MAX - len(os.fsencode(start + end))
    if free <= 0:
        raise OSError(f"the path would be longer than {PATH_BYTES_MAX} bytes")
    return Path(start + re.sub(r"[^A-Za-z0-9_-]", "_", name)[: min(free, _NAME_MAX)] + end)


def _directories() -> list[Path]:
    """Return the directories of sockets, the one for new sockets first.

    A node under a service manager may lack the XDG_RUNTIME_DIR of the user's shell.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    bases = [runtime, tempfile.gettempdir()] if os.path.isabs(runtime) else [tempfile.gettempdir()]
    return [Path(base) / f"tidewire-{os.geteuid()}" for base in dict.fromkeys(bases)]


def _check(directory: Path) -> None:
    """Check that only this user can open the files of a directory."""
    status = directory.lstat()
    if stat.S_ISLNK(status.st_mode):
        raise OSError("it is a link")
    if not stat.S_ISDIR(status.st_mode):
        raise OSError("it is no directory")
    if status.st_uid != os.geteuid():
        raise OSError(f"it belongs to user {status.st_uid}, not to {os.geteuid()}")
    if status.st_mode & 0o077:
        raise OSError(f"it has mode {stat.S_IMODE(status.st_mode):04o}, so that others can open it: chmod 700 it")
