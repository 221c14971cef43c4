"""Iterator over the pages of a replay or a watch; a cancelled read does not end the iterator."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from tidewire.streams.outage import Outage

_T = TypeVar("_T")


class Pages(AsyncIterator[_T]):
    """Items of a storage backend, fetched page by page: ``async for item in pages``.

    A cancelled read, as by ``asyncio.wait_for(anext(pages), 1.0)``, takes nothing and ends
    nothing: the next read continues at the same position. ``aclose`` and ``async with`` end it.

    Args:
        fetch: Fetches the next page; None is the end.
        outage: Outlasts outages of the storage backend; None to raise their errors.
    """

    def __init__(self, fetch: Callable[[], Awaitable[Iterable[_T] | None]], outage: Outage | None = None) -> None:
        # The position moves in `fetch`, after its last await: a cancelled fetch has not moved it.
        self._fetch: Callable[[], Awaitable[Iterable[_T] | None]] | None = fetch
        self._page: deque[_T] = deque()
        self._outage = outage

    def __aiter__(self) -> Pages[_T]:
        return self

    async def __anext__(self) -> _T:
        while not self._page:
            if self._fetch is None:
                raise StopAsyncIteration
            page = await (self._fetch() if self._outage is None else self._outage.outlast(self._fetch))
            if page is None:
                self._fetch = None
            else:
                self._page.extend(page)
        return self._page.popleft()

    async def aclose(self) -> None:
        """End the iterator; items that were fetched and not read are dropped."""
        self._fetch = None
        self._page.clear()

    async def __aenter__(self) -> Pages[_T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
