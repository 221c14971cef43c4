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

    If it can't be renewed, ``is_held`` is False before its time is over by this process's own
    clock, and leaving the block raises.
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
        # A hub releases it as soon as the link of this process ends.
        self._tied = tied
        self._held: HeldLease | None = None

    @property
    def fence(self) -> int:
        """The fencing token: greater than that of everybody who held it before. Give it to stores
        that can compare it.

        Raises:
            LeaseLost: if the lease is not held.
        """
        fence = None if self._held is None else self._held.fence
        if fence is None:
            raise LeaseLost(
                f"lease {self.name!r}: it is not held: acquire it, and stop what it protects when it is lost"
            )
        return fence

    @property
    def is_held(self) -> bool:
        """True if the lease is certainly held, by the clock of this process, counted from before
        the request.
        """
        return self._held is not None and self._held.fence is not None

    async def acquire(self) -> int:
        """Wait for the lease, and return its fencing token. Cancelled, it does not hold it.

        Raises:
            LeaseHeld: if another holder has had it for ``timeout`` seconds.
        """
        self._held = await self._home.lease(self.name, self._holder, self._ttl, self._timeout, self._tied)
        return self.fence

    async def lost(self) -> None:
        """Wait until it is not held for sure any more, or was given back."""
        if self._held is not None:
            await self._held.lost()

    async def release(self) -> None:
        """Give the lease back. Cancelled, it gives the lease back all the same."""
        held, self._held = self._held, None
        if held is not None:
            with contextlib.suppress(LeaseLost):
                await held.release()

    async def __aenter__(self) -> Lease:
        await self.acquire()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        held = self.is_held
        await self.release()
        if not held and kind is None:
            raise LeaseLost(
                f"lease {self.name!r}: it was lost while its block ran: what it protects may have run twice"
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
