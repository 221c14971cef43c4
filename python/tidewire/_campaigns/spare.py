"""The program of a spare worker: a process that has loaded a campaign's function and waits to
replace a worker that died.

It forks itself for that, again and again. A fork has only one of its threads and shares what it has
open: where loading the function has left another thread, an open file or a child, the spare becomes
the worker itself, and another spare is started.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _socket import socket

_REQUEST_BYTES_MAX = 1 << 16
_FDS = 2
"""A request for a worker carries its socket and its board."""
_FD_BYTES = 4


def open_files() -> set[str]:
    """Return the numbers of the files that this process has open."""
    return set(os.listdir("/proc/self/fd"))


def replace_workers(channel_fd: int, open_before: set[str]) -> tuple[dict[str, Any], int, int]:
    """Serve the supervisor's requests. Returns in each process that becomes a worker: its orders,
    its socket, its board.

    Args:
        channel_fd: The socket to the supervisor. The process ends once the supervisor has closed
            it.
        open_before: Files that were open before the function was loaded.
    """
    import gc
    from _socket import socket

    forks = _may_fork(open_before)
    # The collector of a forked worker would touch, and so copy, all that was loaded.
    gc.freeze()
    channel = socket(fileno=channel_fd)
    _say(channel, {"ready": True})
    while True:
        request, fds = _receive(channel)
        if "reap" in request:
            _say(channel, {"status": _status(request["reap"])})
            continue
        spare = os.getpid()
        pid = os.fork() if forks else 0
        if pid:
            for fd in fds:
                os.close(fd)
            _say(channel, {"pid": pid})
            continue
        if not forks:
            _say(channel, {"pid": spare})
        channel.close()
        _become_worker(spare if forks else None)
        return request["orders"], fds[0], fds[1]


def _may_fork(open_before: set[str]) -> bool:
    if len(os.listdir("/proc/self/task")) > 1 or not open_files() <= open_before:
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def _become_worker(forked_by: int | None) -> None:
    if forked_by is not None:
        from tidewire._binding import end_with_parent

        if not end_with_parent(forked_by):
            os._exit(0)
        # Python seeds its own generator after a fork.
        if (numpy_random := sys.modules.get("numpy.random")) is not None:
            numpy_random.seed()


def _receive(channel: socket) -> tuple[dict[str, Any], list[int]]:
    import _socket

    message, ancillary, _, _ = channel.recvmsg(_REQUEST_BYTES_MAX, _socket.CMSG_SPACE(_FDS * _FD_BYTES))
    if not message:
        os._exit(0)
    packed = b"".join(data for _, _, data in ancillary)
    fds = [int.from_bytes(packed[at : at + _FD_BYTES], sys.byteorder) for at in range(0, len(packed), _FD_BYTES)]
    return json.loads(message), fds


def _status(pid: int) -> int:
    """Return the exit code of a forked worker that has ended, as subprocess does."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return 1


def _say(channel: socket, words: dict[str, Any]) -> None:
    try:
        channel.send(json.dumps(words).encode())
    except OSError:
        os._exit(0)
