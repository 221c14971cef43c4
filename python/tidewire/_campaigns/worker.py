"""The program of a worker process: finds the function, joins the campaign, runs ranges until it ends.

It is started by a supervisor, which it never outlives. What it has to say at its end (why it refuses, or how the
campaign ended) goes over the socket that its orders came from.

What it imports costs its start: everything that is not needed for the first run is imported later, or not at all.
"""

from __future__ import annotations

import _thread
import contextlib
import json
import os
import signal
import sys
import time
from typing import Any, NoReturn

REFUSED = 3
"""The exit code of a worker that can't work at its campaign, and has said why."""
_ORDERS_BYTES_MAX = 1 << 20


def main(connection: int, board_fd: int, parent: int) -> None:
    """Work at one campaign, as the orders say that come from the socket."""
    from tidewire._binding import end_with_parent

    signal.signal(signal.SIGINT, _ignore)
    if not end_with_parent(parent):
        return
    for fd in (connection, board_fd):
        os.set_inheritable(fd, False)
    orders = json.loads(_line(connection))
    if not sys.platform.startswith("linux"):
        _thread.start_new_thread(_end_with_supervisor, (connection,))
    try:
        state = _work(orders, board_fd)
    except BaseException as error:  # noqa: BLE001
        _say(connection, _refusal(error))
        _flush_prints()
        os._exit(REFUSED)
    # From here on nothing is lost: the end of the interpreter takes its time, and what the function has left behind runs in it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _say(connection, {"state": state})


def end_child(error: BaseException | None) -> NoReturn:
    """End a process that a run has forked and that has returned from it, as a program would end."""
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    elif error is not None:
        import traceback

        traceback.print_exception(error)
        code = 1
    _flush_prints()
    os._exit(code & 0xFF)


def _work(orders: dict[str, Any], board_fd: int) -> str:
    from tidewire._binding import CampaignStore, CampaignWorker
    from tidewire._campaigns import code
    from tidewire._campaigns.parameters import Parameters

    sys.path[:] = orders["path"]
    url, campaign = orders["store"], orders["campaign"]
    store = CampaignStore(url, create=False)
    plan = store.campaign(campaign)
    function, identity = code.load(plan["function"], plan["pickled"], plan["code"])
    differs = code.check_same(plan["code"], identity, orders["accept_code"])
    if differs is not None:
        store.note(campaign, f"a worker with other code was accepted: {differs}")
    worker = CampaignWorker(
        url,
        campaign,
        function,
        Parameters(function, plan["sets"], lambda index: store.parameters(campaign, index)),
        name=orders["name"],
        host=os.uname().nodename,
        code=identity,
        board=board_fd,
        store_wait=orders["store_wait"],
        work_wait=orders["work_wait"],
    )
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    return worker.serve(time.monotonic() - orders["started"])


def _end_with_supervisor(connection: int) -> None:
    """End in the middle of a run when the supervisor is gone, where the system does not see to it. A thread of its own."""
    while os.read(connection, 1):
        pass
    os._exit(1)


def _ignore(*_: object) -> None:
    """A handler rather than SIG_IGN: programs that the function starts shall not inherit it."""


def _line(connection: int) -> bytes:
    received = b""
    while not received.endswith(b"\n"):
        piece = os.read(connection, 65_536)
        if not piece or len(received) > _ORDERS_BYTES_MAX:
            raise EOFError("the supervisor has gone")
        received += piece
    return received


def _refusal(error: BaseException) -> dict[str, Any]:
    import traceback

    from tidewire.errors import TidewireError

    known = isinstance(error, TidewireError)
    return {
        "class": type(error).__name__,
        "message": str(error)[:4_000],
        "known": known,
        "kind": getattr(error, "kind", None),
        "traceback": "" if known else "".join(traceback.format_exception(error))[-16_000:],
    }


def _say(connection: int, words: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        os.write(connection, json.dumps(words).encode() + b"\n")


def _flush_prints() -> None:
    for stream in (sys.stdout, sys.stderr):
        # Whatever the function has put there; nobody can be told.
        with contextlib.suppress(Exception):
            stream.flush()
