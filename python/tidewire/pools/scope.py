"""A pool as a context manager."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from types import TracebackType
from typing import Any, Self

from tidewire._limits import ABORT_TIMEOUT_MS
from tidewire._node.ledger import Ledger
from tidewire._runtime.blocking_portal import refuse_loop
from tidewire._runtime.current import running_loop
from tidewire.pools.blocking_pool import STOP_TIMEOUT_S

_ABORT_TIMEOUT_S = ABORT_TIMEOUT_MS.default / 1000


class Scope(ABC):
    """Starts at the beginning of a block, ``async with`` or ``with``, and stops at its end.

    An exception that leaves the block stops it soon: what no worker has begun is returned in the
    ledger, coroutines in threads are cancelled (their submits raise PoolStopped), and what else was
    begun has a second to end (the default of ``abort_timeout_ms``).
    """

    @abstractmethod
    def start(self) -> None:
        """Start the workers."""

    @abstractmethod
    async def stop(self, drain: bool = True, timeout: float | None = STOP_TIMEOUT_S) -> Ledger:
        """Stop the workers."""

    @abstractmethod
    def _stop_blocking(self, drain: bool, timeout: float | None) -> Ledger:
        """As ``stop``, and block this thread."""

    def stopping(self, drain: bool, timeout: float | None) -> Stopping:
        """Return the end of the workers, which begins when it is awaited or waited for."""
        return Stopping(self, drain, timeout)

    @abstractmethod
    def _interrupt(self, timeout: float) -> None:
        """Take no more, and cancel coroutines that threads run."""

    async def __aenter__(self) -> Self:
        from tidewire._runtime.loop import bridge_of

        # Ctrl-C wakes the loop from here on.
        loop = running_loop()
        if loop is not None:
            bridge_of(loop)
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from tidewire._runtime.signals import is_shutdown_cancellation

        if kind is None or is_shutdown_cancellation(kind):
            await self.stop()
        else:
            self._interrupt(_ABORT_TIMEOUT_S)
            await self.stop(False, _ABORT_TIMEOUT_S)

    def __enter__(self) -> Self:
        refuse_loop("the end of `with Pool()`", "use `async with`")
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._stop_blocking(True, STOP_TIMEOUT_S)
        else:
            self._interrupt(_ABORT_TIMEOUT_S)
            self._stop_blocking(False, _ABORT_TIMEOUT_S)


class Stopping:
    """The end of workers, for procedures that wait for it."""

    def __init__(self, scope: Scope, drain: bool, timeout: float | None) -> None:
        self._scope = scope
        self._drain = drain
        self._timeout = timeout

    def __await__(self) -> Generator[Any, Any, Ledger]:
        return self._scope.stop(self._drain, self._timeout).__await__()

    def wait(self) -> Ledger:
        """Block this thread until they have ended."""
        return self._scope._stop_blocking(self._drain, self._timeout)
