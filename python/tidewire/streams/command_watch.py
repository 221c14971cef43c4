"""Shared watch for changes of command records in this process."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from tidewire.errors import TidewireError
from tidewire.streams.home import WAIT_US

if TYPE_CHECKING:
    from tidewire.streams.home import Home

_PAGE = 1_000
_KIND = ".state"

Change = tuple[str, "bytes | None", int, int]
"""A change of a bucket: its key, its value, its revision and its time."""


class CommandWatch:
    """Shared watch of the callers in this process that wait for changes of records. A watch of a
    single record costs the storage backend as much as a watch of all, and a NATS server keeps each
    watch for a while. The one watch ends once no caller has waited for as long as a watch takes.
    """

    def __init__(self, home: Home, bucket: str) -> None:
        self._home = home
        self._bucket = bucket
        self._waited = 0.0
        # Of each record who waits, and after which revision.
        self._waiting: dict[str, dict[asyncio.Future[Change], int]] = {}
        self._following: asyncio.Task[None] | None = None

    async def next(self, name: str, after: int, wait_us: int) -> tuple[list[Change], int]:
        """Wait for a change of one record.

        Args:
            name: The id of the command.
            after: Changes after this revision only.
            wait_us: For how long.

        Returns:
            The newest change, if there is one, and after which revision to wait next.
        """
        loop = asyncio.get_running_loop()
        follower = self._following
        if follower is not None and follower.get_loop() is not loop:
            # A caller on another event loop than the shared watch has a watch of its own.
            changes, after, _ = await self._home.call("watch", self._bucket, name + _KIND, after, 1, wait_us)
            return changes, after
        change: asyncio.Future[Change] = loop.create_future()
        self._waiting.setdefault(name, {})[change] = after
        try:
            if follower is None:
                self._following = loop.create_task(self._follow(after))
            # The watch does not repeat changes from before the call.
            found = await self._home.call("get", self._bucket, name + _KIND, None)
            if found is None or found[2] > after:
                return [(name + _KIND, None, after, 0) if found is None else found], after if found is None else found[
                    2
                ]
            await asyncio.wait({change}, timeout=wait_us / 1_000_000)
            return ([change.result()], change.result()[2]) if change.done() else ([], after)
        finally:
            change.cancel()
            waiting = self._waiting.get(name, {})
            waiting.pop(change, None)
            if not waiting:
                self._waiting.pop(name, None)
            self._waited = monotonic()

    async def _follow(self, after: int) -> None:
        """Watch all records for as long as somebody waits."""
        try:
            while self._waiting or monotonic() - self._waited < WAIT_US / 1_000_000:
                changes, after, _ = await self._home.call("watch", self._bucket, f"*{_KIND}", after, _PAGE, WAIT_US)
                for found in changes:
                    # The watch may have begun before some of them: what they know is no change.
                    for change, known in self._waiting.get(found[0].removesuffix(_KIND), {}).items():
                        if found[2] > known and not change.done():
                            change.set_result(found)
        except TidewireError as error:
            for waiting in self._waiting.values():
                for change in waiting:
                    if not change.done():
                        change.set_exception(error)
        finally:
            self._following = None
