"""Sockets of nodes that `tidewire top` reads: their folder and its permissions."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
import struct
import tempfile
from pathlib import Path

from tidewire.errors import ConfigError, Unauthorized

PATH_BYTES_MAX = 103
"""Longest path of a Unix socket that all systems take; Linux takes 107."""

_SAFE_MAX = 48
_TWINS_MAX = 1_000
_CREDENTIALS = struct.Struct("3i")


def directories() -> list[Path]:
    """Return where sockets may lie, the place for new ones first.

    A node that a service manager has started may not have the XDG_RUNTIME_DIR of the shell in which
    it is looked for.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    bases = [runtime, tempfile.gettempdir()] if os.path.isabs(runtime) else [tempfile.gettempdir()]
    return [Path(base) / f"tidewire-{os.geteuid()}" for base in dict.fromkeys(bases)]


def place_for(name: str) -> Path:
    """Return where the socket of the node ``name`` of this process is to lie.

    Raises:
        ConfigError: if there is no place for it that only this user can open.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        raise _refused("inspect: this system has no sockets that name their peer: leave inspect off")
    directory = directories()[0]
    try:
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        check(directory)
        return _free_path(directory, name)
    except OSError as error:
        raise _refused(
            f"inspect: no socket can be made in {str(directory)!r}: {error}: set XDG_RUNTIME_DIR to a directory of yours, "
            "or leave inspect off"
        ) from error


def check(directory: Path) -> None:
    """Check that only this user can open what lies in a directory.

    Raises:
        ConfigError: if it is a link or no directory, belongs to somebody else, or others may enter
            it.
        FileNotFoundError: if there is none.
    """
    found, mend = directory.lstat(), "remove it, or set XDG_RUNTIME_DIR to a directory of yours"
    if stat.S_ISLNK(found.st_mode):
        raise _refused(f"inspect: {str(directory)!r} is a link: {mend}")
    if not stat.S_ISDIR(found.st_mode):
        raise _refused(f"inspect: {str(directory)!r} is no directory: {mend}")
    if found.st_uid != os.geteuid():
        raise _refused(f"inspect: {str(directory)!r} belongs to user {found.st_uid}, not to {os.geteuid()}: {mend}")
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise _refused(f"inspect: {str(directory)!r} has mode {mode:04o}, so that others can open it: chmod 700 it")


def is_stale(path: Path) -> bool:
    """Return whether nobody will ever answer at a socket: nobody listens, or the process that did
    is dead, and only a child that it forked has it open.

    A node that is stopped or busy still listens.

    Raises:
        Unauthorized: if it can't be opened by this user, or another user listens there.
        FileNotFoundError: if it is gone.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except PermissionError as error:
            raise Unauthorized(f"{path}: permission denied: run tidewire top as the user who runs the node") from error
        except BlockingIOError:
            # So many wait to be let in that no more can.
            return False
        raw = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, user, _ = _CREDENTIALS.unpack(raw)
        if user != os.geteuid():
            raise Unauthorized(f"{path}: another user listens here: remove the file")
        return pid > 0 and _is_dead(pid)


def _is_dead(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        # It has become another user's since.
        return False
    return False


def _free_path(directory: Path, name: str) -> Path:
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:_SAFE_MAX]
    for number in range(1, _TWINS_MAX):
        path = _path(directory, safe, "" if number == 1 else f"~{number}")
        # A file under this process's id that is stale was left by an earlier process.
        if _is_free(path):
            return path
    raise OSError(f"{_TWINS_MAX:,} nodes of this process are called {name!r} already")


def _is_free(path: Path) -> bool:
    try:
        return is_stale(path)
    except FileNotFoundError:
        return True
    except Unauthorized:
        return False


def _path(directory: Path, safe: str, twin: str) -> Path:
    frame = len(os.fsencode(directory)) + len(f"/{os.getpid()}-{twin}.sock")
    if frame >= PATH_BYTES_MAX:
        raise OSError(f"the path would be longer than {PATH_BYTES_MAX} bytes")
    return directory / f"{os.getpid()}-{safe[: PATH_BYTES_MAX - frame]}{twin}.sock"


def _refused(text: str) -> ConfigError:
    return ConfigError(text, problems=[text])
