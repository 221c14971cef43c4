"""Leases: mutual exclusion for a time, with fencing tokens."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tidewire._runtime.blocking_portal import Blocking, run
from tidewire.errors import InvalidArgument, LeaseLost

if TYPE_CHECKING:
    from tidewire._binding import HeldLease
    from tidewire.streams.home import Home


class Lease:
    """A lease: ``async with node.lease("nightly", ttl=5.0) as lease``. It is renewed while the
    block runs.

    If a renewal fails, ``is_held`` becomes False before the TTL ends on this process's clock, and
    the end of the block raises LeaseLost.
    """

    def __init__(
        self, home: Home, name: str, holder: str, ttl: float, timeout: float | None = None, tied: bool = False
    ) -> None:
        if not isinstance(ttl, (int, float)) or not 0.05 <= ttl <= 86_400:
            raise InvalidArgument(f"ttl: {ttl!r} is not allowed: give 0.05 to 86,400 seconds")
        self._home = home
        self.name = name
        self._holder = holder
        self._ttl = float(ttl)
        self._timeout = timeout
        # The hub releases a tied lease as soon as the link of this process ends.
        self._tied = tied
        self._grant: HeldLease | None = None

    @property
    def fence(self) -> int:
        """Fencing token: greater than the tokens of all earlier holders. Pass it to stores that
        compare fencing tokens.

        Raises:
            LeaseLost: if the lease is not held.
        """
        fence = None if self._grant is None else self._grant.fence
        if fence is None:
            raise LeaseLost(
                f"lease {self.name!r}: it is not held: acquire it, and stop the protected work when it is lost"
            )
        return fence

    @property
    def is_held(self) -> bool:
        """True if the lease is certainly held: its TTL, counted on the clock of this process from
        before the request, has not passed.
        """
        return self._grant is not None and self._grant.fence is not None

    async def acquire(self) -> int:
        """Wait for the lease, and return its fencing token. Cancelled, it acquires nothing.

        Raises:
            LeaseHeld: if another holder still has the lease after ``timeout`` seconds.
        """
        self._grant = await self._home.lease(self.name, self._holder, self._ttl, self._timeout, self._tied)
        return self.fence

    async def lost(self) -> None:
        """Wait until the lease is no longer certainly held, or was released."""
        if self._grant is not None:
            await self._grant.lost()

    async def release(self) -> None:
        """Release the lease, even if this call is cancelled."""
        grant, self._grant = self._grant, None
        if grant is not None:
            with contextlib.suppress(LeaseLost):
                await grant.release()

    async def __aenter__(self) -> Lease:
        await self.acquire()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        was_held = self.is_held
        await self.release()
        if not was_held and kind is None:
            raise LeaseLost(
                f"lease {self.name!r}: it was lost while its block ran: the protected work may have run twice"
            )

    def __repr__(self) -> str:
        return f"<Lease {self.name}{' held' if self.is_held else ''}>"


class SyncLease(Blocking[Lease]):
    """A lease for plain threads: ``with node.sync.lease("nightly") as lease``."""

    fence: int
    is_held: bool

    def __enter__(self) -> SyncLease:
        run(self._node, self._of.acquire())
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        run(self._node, self._of.__aexit__(kind, *error))
