"""Event loop in its own thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

_END_TIMEOUT_S = 1.0


class LoopThread:
    """An event loop in its own thread, for nodes without asyncio.

    Attributes:
        loop: The loop.
    """

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], None]) -> None:
        """Run a function on the loop's thread, and wait for it."""

        async def run() -> None:
            function()

        asyncio.run_coroutine_threadsafe(run(), self.loop).result()

    def end(self) -> None:
        """End the loop and its thread."""
        self.loop.call_soon_threadsafe(self._leave)
        if threading.current_thread() is not self._thread:
            self._thread.join(_END_TIMEOUT_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            while not self._ended:
                # sys.exit() in a task ends a program only on the loop of the main thread.
                with contextlib.suppress(SystemExit, KeyboardInterrupt):
                    self.loop.run_forever()
        finally:
            self.loop.close()

    def _leave(self) -> None:
        self._ended = True
        self.loop.stop()
