"""Lease holder: takes a lease whenever it is free, renews it as long as possible, and trusts it no
longer than it is held.
"""

from __future__ import annotations

import asyncio
import contextlib
from time import monotonic
from typing import TYPE_CHECKING, Any

from tidewire import _binding
from tidewire._runtime.futures import ended_within
from tidewire.errors import LeaseHeld, LeaseLost, TidewireError
from tidewire.streams.home import WAIT_US

if TYPE_CHECKING:
    from tidewire.streams.home import Home


class LeaseHolder:
    """A lease of one holder. Used by one event loop, but for ``fence`` and ``is_held``.

    Args:
        home: Where the lease is.
        name: Its name.
        holder: Name of the holder, for people.
        ttl_us: After how many microseconds it is free if it is not renewed.
    """

    def __init__(self, home: Home, name: str, holder: str, ttl_us: int) -> None:
        self.name = name
        self._home = home
        self._holder = holder
        self._ttl_us = ttl_us
        self._machine = _binding.LeaseTenure(ttl_us)
        self._watched: Any = None

    @property
    def fence(self) -> int:
        """The fencing token.

        Raises:
            LeaseLost: if the lease is not held for sure.
        """
        fence = self._machine.fence(monotonic())
        if fence is None:
            raise LeaseLost(f"lease {self.name!r}: it is not held any more: stop what it protects; another may hold it")
        return fence

    @property
    def is_held(self) -> bool:
        """True if the lease is certainly held, by the clock of this process."""
        return self._machine.fence(monotonic()) is not None

    async def acquire(self) -> None:
        """Wait for the lease, for as long as it takes. Cancelled, it does not hold it.

        Raises:
            TidewireError: if its home can't be reached.
        """
        machine = self._machine
        if self._home.is_remote:
            self._watched = self._home.hold(self.name, self._holder, self._ttl_us)
            try:
                fence = await anext(self._watched, None)
                if fence is None:
                    raise LeaseLost(f"lease {self.name!r}: the hub is stopping: it is tried again")
            except BaseException:
                await self._close_watch()
                raise
        else:
            while True:
                with contextlib.suppress(LeaseHeld):
                    fence, _ = await self._home.call("acquire", self.name, self._holder, self._ttl_us, WAIT_US)
                    break
        machine.granted(fence, monotonic())
        try:
            await self._renew()
        except BaseException:
            await self._give_up()
            raise

    async def keep(self) -> None:
        """Renew the lease until it is lost. Cancelled, it is still held."""
        tasks = [asyncio.ensure_future(self._renewals())]
        if self._watched is not None:
            tasks.append(asyncio.ensure_future(_end_of(self._watched)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _renewals(self) -> None:
        while (times := self._machine.times()) is not None and monotonic() < times[1]:
            renew, until = times
            await asyncio.sleep(max(0.0, min(renew, until) - monotonic()))
            try:
                is_renewed = await ended_within(self._renew(), max(0.0, until - monotonic()))
            except LeaseLost:
                return
            except TidewireError:
                is_renewed = False
            if not is_renewed:
                # Its home may be back before its time is over.
                self._machine.failed(monotonic())

    async def _renew(self) -> None:
        begun = monotonic()
        await self._home.call("renew", self.name, self._machine.newest())
        self._machine.renewed(begun)

    async def release(self) -> None:
        """Give the lease back, if it is held: another caller has it at once. After an error the
        lease ends with its time.
        """
        await self._give_up()

    async def _give_up(self) -> None:
        fence = self._machine.end()
        try:
            with contextlib.suppress(TidewireError):
                if fence is not None:
                    await self._home.call("release", self.name, fence)
        finally:
            await self._close_watch()

    async def _close_watch(self) -> None:
        """Read the hub's stream no more."""
        watched, self._watched = self._watched, None
        if watched is not None:
            with contextlib.suppress(TidewireError):
                await watched.aclose()


async def _end_of(watched: Any) -> None:
    """Wait until the hub says that the lease is not held any more, or its link is lost."""
    with contextlib.suppress(StopAsyncIteration, TidewireError):
        await anext(watched)
