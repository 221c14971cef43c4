"""A pool as a context manager."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING

from tidewire._current import running_loop
from tidewire._ledger import Ledger
from tidewire.errors import InvalidArgument
from tidewire.pools.blocking import STOP_TIMEOUT_S

if TYPE_CHECKING:
    from typing_extensions import Self


class Scope(ABC):
    """Starts at the beginning of a block, ``async with`` or ``with``, and stops at its end."""

    @abstractmethod
    def start(self) -> None:
        """Start the workers."""

    @abstractmethod
    async def stop(self, drain: bool = True, timeout: float | None = STOP_TIMEOUT_S) -> Ledger:
        """Stop the workers."""

    @abstractmethod
    def _stop_blocking(self, drain: bool, timeout: float | None) -> Ledger:
        """As ``stop``, and block this thread."""

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __enter__(self) -> Self:
        if running_loop() is not None:
            raise InvalidArgument("`with Pool()` would block this thread's event loop at its end: use `async with`")
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_blocking(True, STOP_TIMEOUT_S)
