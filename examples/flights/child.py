"""Child process of the coordinator: ``child.py hub``, or ``child.py specialists URL``. It ends when
its input closes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable


def main() -> None:
    """Run one of the two."""
    role, *arguments = sys.argv[1:]
    try:
        if role == "hub":
            hub()
        else:
            asyncio.run(specialists(*arguments))
    except BrokenPipeError:
        # The coordinator was killed: nobody is there who could be told anything.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def hub() -> None:
    """Run ``tidewire up``, which ends on SIGTERM."""
    from tidewire.cli import main as tidewire

    when_input_closes(lambda: os.kill(os.getpid(), signal.SIGTERM))
    sys.argv = ["tidewire", "up", "--log-level", "warning", "--name", "hub", "--listen", "tide://127.0.0.1:0"]
    tidewire()


async def specialists(url: str) -> None:
    """Serve the specialists, and say their ledger at the end."""
    import counting

    # Each record without an arrival is counted in the report; the log would write over the progress
    # line.
    logging.getLogger("tidewire").setLevel(logging.CRITICAL)
    loop, closed = asyncio.get_running_loop(), asyncio.Event()
    when_input_closes(lambda: loop.call_soon_threadsafe(closed.set))
    await counting.serve(url, closed)


def when_input_closes(call: Callable[[], object]) -> None:
    """Call a function once nobody holds the other end of this process's input."""

    def watch() -> None:
        sys.stdin.buffer.read()
        call()

    threading.Thread(target=watch, name="input", daemon=True).start()


if __name__ == "__main__":
    main()
