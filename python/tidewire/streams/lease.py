"""Leases: mutual exclusion for a time, with fencing tokens."""

from __future__ import annotations

import asyncio
import contextlib
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING

from tidewire._runtime.futures import finish
from tidewire.errors import InvalidArgument, LeaseHeld, LeaseLost, TidewireError
from tidewire.streams.home import WAIT_US, span_us

if TYPE_CHECKING:
    from tidewire.streams.home import Home


class Lease:
    """A lease: ``async with node.lease("nightly", ttl=5.0) as lease``. It is renewed while the
    block runs.

    If it can't be renewed, ``is_held`` is False before its time is over by this process's own
    clock, and leaving the block raises.
    """

    def __init__(self, home: Home, name: str, holder: str, ttl: float, timeout: float | None) -> None:
        if not isinstance(ttl, (int, float)) or not 0.05 <= ttl <= 86_400:
            raise InvalidArgument(f"ttl: {ttl!r} is not allowed: give 0.05 to 86,400 seconds")
        self._home = home
        self.name = name
        self._holder = holder
        self._ttl = float(ttl)
        self._timeout = timeout
        self._fence: int | None = None
        self._until = 0.0
        self._renewing: asyncio.Task[None] | None = None

    @property
    def fence(self) -> int:
        """The fencing token: greater than that of everybody who held it before. Give it to stores
        that can compare it.

        Raises:
            LeaseLost: if the lease is not held.
        """
        if self._fence is None or not self.is_held:
            raise LeaseLost(
                f"lease {self.name!r}: it is not held: acquire it, and stop what it protects when it is lost"
            )
        return self._fence

    @property
    def is_held(self) -> bool:
        """True if the lease is certainly held, by the clock of this process, counted from before
        the request.
        """
        return self._fence is not None and monotonic() < self._until

    async def acquire(self) -> int:
        """Wait for the lease, and return its fencing token.

        Raises:
            LeaseHeld: if another holder has had it for ``timeout`` seconds.
        """
        ttl_us = span_us("ttl", self._ttl)
        until = None if self._timeout is None else monotonic() + self._timeout
        while True:
            left_us = WAIT_US if until is None else max(0, min(WAIT_US, round((until - monotonic()) * 1_000_000)))
            try:
                # A wait counts from when it is over: the time of the grant is that of the last
                # call's begin at the earliest.
                fence, _ = await self._home.take(
                    "acquire", self.name, self._holder, ttl_us, left_us, back=self._give_back
                )
            except LeaseHeld:
                if until is not None and monotonic() >= until:
                    raise
                continue
            self._fence = fence
            break
        # The time of the grant is unknown: the first renewal says from when on the lease is held.
        try:
            await self._renew()
        except BaseException:
            with contextlib.suppress(TidewireError):
                await self.release()
            raise
        self._renewing = asyncio.get_running_loop().create_task(self._keep())
        return int(fence)

    async def _renew(self) -> None:
        begun = monotonic()
        await self._home.call("renew", self.name, self._fence)
        self._until = begun + self._ttl

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._ttl / 3)
            try:
                await self._renew()
            except LeaseLost:
                self._until = 0.0
                return
            except TidewireError:
                # The storage backend may be back before the time is over.
                if not self.is_held:
                    return

    async def lost(self) -> None:
        """Wait until it is not held for sure any more, or was given back."""
        while self._renewing is not None and not self._renewing.done() and self.is_held:
            await asyncio.wait({self._renewing}, timeout=max(0.0, self._until - monotonic()))

    async def release(self) -> None:
        """Give the lease back.

        Cancelled, it gives the lease back all the same, and raises the cancellation then.
        """
        renewing, self._renewing = self._renewing, None
        fence, self._fence = self._fence, None
        await finish(self._released(renewing, fence))

    async def _released(self, renewing: asyncio.Task[None] | None, fence: int | None) -> None:
        if renewing is not None:
            renewing.cancel()
            await asyncio.wait([renewing])
        if fence is not None:
            await self._home.call("release", self.name, fence)

    async def _give_back(self, granted: tuple[int, int]) -> None:
        """Give back a grant whose caller was cancelled."""
        await self._home.call("release", self.name, granted[0])

    async def __aenter__(self) -> Lease:
        await self.acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held = self.is_held
        await self.release()
        if not held and kind is None:
            raise LeaseLost(
                f"lease {self.name!r}: it was lost while its block ran: what it protects may have run twice"
            )

    def __repr__(self) -> str:
        return f"<Lease {self.name}{' held' if self.is_held else ''}>"
