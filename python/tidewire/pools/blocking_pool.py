"""The blocking form of a pool, for plain threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from tidewire._node.ledger import Ledger
from tidewire._runtime import steps
from tidewire._runtime.blocking_portal import refuse_loop
from tidewire.errors import InvalidArgument
from tidewire.pools import statistics_wait
from tidewire.pools.core import Core
from tidewire.pools.results.answers import Blocked
from tidewire.pools.results.map import checked_ahead, map_sync
from tidewire.pools.thread_workers import current

if TYPE_CHECKING:
    from tidewire.pools.pool import Pool

STOP_TIMEOUT_S = 30.0

_P = ParamSpec("_P")
_R_co = TypeVar("_R_co", covariant=True)


class Sync(Generic[_P, _R_co]):
    """Blocking calls, at ``pool.sync``."""

    def __init__(self, pool: Pool[_P, _R_co]) -> None:
        self._pool = pool

    def submit(self, /, *args: _P.args, **kwargs: _P.kwargs) -> _R_co:
        """Submit one task, and block until its result is there. Raises as ``pool.submit`` does."""
        pool = self._pool
        _may_block(pool._core, "submit")
        task = pool._packing.task(args, kwargs)
        answer = Blocked()
        task.answer = answer
        pool._submit(task)
        try:
            return answer.wait()  # type: ignore[no-any-return]
        except KeyboardInterrupt:
            pool._core.cancel(task)
            raise

    def map(self, items: Iterable[Any], *, ahead: int | None = None) -> Iterator[_R_co]:
        """Submit a task for each item, and iterate over the results in the order of the items, as
        ``pool.map`` does.
        """
        pool = self._pool
        _may_block(pool._core, "map")
        return map_sync(pool, items, checked_ahead(ahead))

    def until(self, condition: Callable[[dict[str, Any]], object], timeout: float | None = None) -> dict[str, Any]:
        """Block until the statistics fit a condition, and return them, as ``pool.until`` does."""
        _may_block(self._pool._core, "until")
        return steps.blocking(statistics_wait.fits(self._pool, condition, timeout))

    def stop(self, drain: bool = True, timeout: float | None = STOP_TIMEOUT_S) -> Ledger:
        """Stop the pool, and block until it has stopped, as ``pool.stop`` does."""
        _may_block(self._pool._core, "stop")
        return self._pool._stop_blocking(drain, timeout)


def _may_block(core: Core, name: str) -> None:
    refuse_loop(name)
    if getattr(current, "core", None) is core:
        raise InvalidArgument(
            f"pool {core.options.name!r}: a worker would wait for its own pool: use another pool for tasks of tasks"
        )
