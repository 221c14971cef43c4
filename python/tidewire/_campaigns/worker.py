"""The program of a worker process: finds the function, joins the campaign, runs ranges until it
ends.

A supervisor starts the worker, which never outlives the supervisor. The socket of its orders also
carries its final message: a refusal, or the end of the campaign.

Imports cost start time: modules that the first run does not need are imported later, or never.
"""

from __future__ import annotations

import _thread
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from tidewire._processes.child_setup import flush_prints, set_up

REFUSED = 3
"""Exit code of a worker that can't run its campaign; its final message has the reason."""
WITHOUT_FILES = 4
"""Exit code of a worker whose run has closed its files."""
_ORDERS_BYTES_MAX = 1 << 20


def main(connection: int, page_fd: int) -> None:
    """Run one campaign with the orders from the socket."""
    from tidewire._binding import end_with_parent

    set_up(connection, page_fd)
    orders = json.loads(_line(connection))
    if not end_with_parent(orders["parent"]):
        return
    if not sys.platform.startswith("linux"):
        _thread.start_new_thread(_end_with_supervisor, (connection,))
    try:
        state = _work(orders, page_fd)
    except BaseException as error:  # noqa: BLE001
        _send(connection, _refusal(error))
        flush_prints()
        os._exit(REFUSED)
    # All results are stored. The exit of the interpreter may take long: it runs the handlers of
    # the function.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _send(connection, {"state": state})


def end_without_files(run: int) -> NoReturn:
    """End this process, whose run has closed its files."""
    print(f"run {run} closed file descriptors of its worker: close only those that it opened", file=sys.stderr)
    flush_prints()
    os._exit(WITHOUT_FILES)


def _load(orders: dict[str, Any]) -> tuple[Callable[..., Any], Callable[[int], Any], str]:
    """Import the function, and check its code. Return it with its parameters and the identity of
    its code.
    """
    from tidewire._binding import CampaignStore
    from tidewire._campaigns import code
    from tidewire._campaigns.parameters import SETS_AT_ONCE, Parameters, StoredSets
    from tidewire._campaigns.store import Connection

    sys.path[:] = orders["path"]
    url, campaign = orders["store"], orders["campaign"]
    store = CampaignStore(url, create=False)
    plan = store.campaign(campaign)
    function, identity = code.load(plan["function"], plan["pickled"], plan["code"])
    difference = code.check_same(plan["code"], identity, orders["accept_code"])
    if difference is not None:
        store.note(campaign, f"a worker with other code was accepted: {difference}")
    connection = Connection(url)
    stored_sets = StoredSets(
        lambda first, most: connection().parameters(campaign, first, most), store.parameters(campaign, 0, SETS_AT_ONCE)
    )
    return function, Parameters(function, plan["sets"], stored_sets), identity


def _work(orders: dict[str, Any], page_fd: int) -> str:
    from tidewire._binding import CampaignWorker

    function, parameters, identity = _load(orders)
    if orders["trace"]:
        from tidewire._tracing.process_spans import spans_of_worker

        spans_of_worker().continue_from(orders["trace"])
    worker = CampaignWorker(
        orders["store"],
        orders["campaign"],
        function,
        parameters,
        name=orders["name"],
        host=os.uname().nodename,
        code=identity,
        board=page_fd,
        store_wait=orders["store_wait"],
        work_wait=orders["work_wait"],
    )
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    return worker.serve(time.monotonic() - orders["started"])


def _end_with_supervisor(connection: int) -> None:
    """Exit, even during a run, when the supervisor has ended: a thread for systems that do not do
    this.
    """
    while os.read(connection, 1):
        pass
    os._exit(1)


def _line(connection: int) -> bytes:
    received = b""
    while not received.endswith(b"\n"):
        chunk = os.read(connection, _ORDERS_BYTES_MAX)
        if not chunk or len(received) > _ORDERS_BYTES_MAX:
            raise EOFError("the supervisor has gone")
        received += chunk
    return received


def _refusal(error: BaseException) -> dict[str, Any]:
    import traceback

    from tidewire.errors import TidewireError

    is_known = isinstance(error, TidewireError)
    return {
        "class": type(error).__name__,
        "message": str(error)[:4_000],
        "known": is_known,
        "kind": getattr(error, "kind", None),
        "traceback": "" if is_known else "".join(traceback.format_exception(error))[-16_000:],
    }


def _send(connection: int, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        os.write(connection, json.dumps(message).encode() + b"\n")
