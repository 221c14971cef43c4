"""A supervised pool of workers that run one function."""

from __future__ import annotations

import itertools
import random
import threading
import time
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, overload

from tidewire import _limits as limits
from tidewire._node.ledger import Ledger
from tidewire._node.statistics_wait import Condition, fits
from tidewire._runtime import steps
from tidewire._runtime.blocking_portal import Blocking, blocking, refuse_loop
from tidewire._runtime.current import running_loop
from tidewire._runtime.waiter import Waiter
from tidewire._tracing.process_spans import find_spans
from tidewire._unknown_options import refuse_unknown
from tidewire.errors import InvalidArgument
from tidewire.pools import function as functions
from tidewire.pools.core import Core, State
from tidewire.pools.live_pools import live as _live
from tidewire.pools.live_pools import supervisors as _supervisors
from tidewire.pools.options import Batch, Kind, OnCancel, OnDead, OnProgress, Options, Overflow, Restarts, Scale
from tidewire.pools.policies.restarts import WorkerReplacement
from tidewire.pools.processes import main_module
from tidewire.pools.processes.pickler import Pickler, of_program
from tidewire.pools.processes.process_workers import ProcessWorkers
from tidewire.pools.processes.task_pickle import Packing
from tidewire.pools.results.answers import Blocked
from tidewire.pools.results.map import checked_ahead, map_async, map_sync
from tidewire.pools.supervisor import PoolSupervisor, WorkerSet
from tidewire.pools.task import Task
from tidewire.pools.thread_workers import ThreadWorkers, current

if TYPE_CHECKING:
    from asyncio import Future
    from typing import Self

    from typing_extensions import ParamSpec, TypeVar, Unpack

    from tidewire._runtime.steps import Steps
    from tidewire._typed import PoolOptions
    from tidewire.agents.agent import Agent
    from tidewire.pools.results.futures import Submitted

    _P = ParamSpec("_P", default=...)
    _R_co = TypeVar("_R_co", covariant=True, default=Any)
else:
    from typing import ParamSpec, TypeVar

    _P = ParamSpec("_P")
    _R_co = TypeVar("_R_co", covariant=True)

_Q = ParamSpec("_Q")
_M = TypeVar("_M", bound=Any)
_T = TypeVar("_T")
_JOIN_S = 5.0
STOP_TIMEOUT_S = 30.0
_ABORT_TIMEOUT_S = limits.ABORT_TIMEOUT_MS.default / 1000
_numbers = itertools.count(1)


class Pool(Generic[_P, _R_co]):
    """Workers that run one function, each one task at a time.

    Use it as a context manager, ``async with`` in asyncio or ``with`` in plain threads: at the end
    of the block everything accepted is handled, and ``pool.ledger`` is the stop report. Without
    one, the first submit starts it, and its workers end when nothing refers to the pool any more
    and all accepted tasks are handled.

    An exception that leaves the block stops it soon: what no worker has begun is returned in the
    ledger, coroutines in threads are cancelled (their submits raise PoolStopped), and what else was
    begun has a second to end (the default of ``abort_timeout_ms``).

    Args:
        function: The function of the workers: a function, a coroutine function, or an import
            path ``"package.module:name"``.
        workers: How many: 1 to 1,024, or a ``Scale`` for a number that follows the queueing time.
        kind: "thread", or "process" for work that needs a core of its own.
        batch: The function takes a list of tasks' values, and returns a list of as many results.
        name: The pool's name, for people.
        capacity: Most tasks that wait for a worker, 1 to 10,000,000.
        overflow: Behavior of a full backlog: "wait" for capacity, or "fail".
        task_timeout: Most seconds that one call may take; then its worker is replaced. None for no
            limit.
        heartbeat_timeout: Most seconds that a worker process which has tasks may give no sign of
            life; then it is killed and replaced, and the task that it was at counts a delivery.
            None for no limit. See below.
        max_deliveries: A task is given up when this many workers have ended while they were at it,
            1 to 1,000.
        restarts: When replacing workers has no sense any more.
        result_bytes_max: Largest pickled result of a process, 1,024 to 1,073,741,824.
        on_dead: Called with the task, the reason and the error (or None) of every task that was
            given up: "failed", "timeout", "worker_lost", "quarantined", "cancelled", "pool_failed"
            or "abandoned". On a thread of the pool, or of who cancels.
        pickler: Pickler of the function, arguments and results for processes. "pickle" knows
            functions and classes by their names. "cloudpickle" must be installed; it takes along
            definitions of a notebook, a console or a function. "auto" is "pickle", and in a
            notebook or console "cloudpickle" for what workers can't import, if it is installed.
        on_cancel: End of a running task whose ``submit`` is cancelled, or that its ``map`` drops.
            "interrupt": a coroutine is cancelled, ``tw.context().cancelled`` is true, ``progress``
            raises CancelledError; a process that goes on for 5 seconds is killed and replaced.
            "kill": its process is killed and replaced at once. "leave": it runs to its end.

    The heart of a worker process is a thread of Python. It also stops with C code that is only slow
    and does not release the interpreter lock: then give more seconds or None for
    ``heartbeat_timeout``, and limit the task with ``task_timeout``.

    Raises:
        InvalidArgument: if an argument is not allowed, or the function can't be sent to a process.
    """

    agent: Agent | None = None
    """The agent that stands for a pool of agents; None for a pool of functions."""

    @overload
    def __init__(
        self: Pool[_Q, _T],
        function: Callable[_Q, Coroutine[Any, Any, _T]],
        workers: int | Scale = ...,
        kind: Kind = ...,
        batch: None = None,
        **options: Unpack[PoolOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Pool[_Q, _T],
        function: Callable[_Q, _T],
        workers: int | Scale = ...,
        kind: Kind = ...,
        batch: None = None,
        **options: Unpack[PoolOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Pool[[_M], _T],
        function: Callable[[list[_M]], list[_T]],
        workers: int | Scale = ...,
        kind: Kind = ...,
        *,
        batch: Batch,
        **options: Unpack[PoolOptions],
    ) -> None: ...

    @overload
    def __init__(
        self,
        function: Callable[..., Any] | str,
        workers: int | Scale = ...,
        kind: Kind = ...,
        batch: Batch | None = None,
        **options: Unpack[PoolOptions],
    ) -> None: ...

    def __init__(
        self,
        function: Callable[..., Any] | str,
        workers: int | Scale = limits.POOL_WORKERS.default,
        kind: Kind = "thread",
        batch: Batch | None = None,
        *,
        name: str | None = None,
        capacity: int = limits.POOL_CAPACITY.default,
        overflow: Overflow = "wait",
        task_timeout: float | None = None,
        heartbeat_timeout: float | None = limits.POOL_HEARTBEAT_MS.default / 1_000,
        max_deliveries: int = limits.POOL_MAX_DELIVERIES.default,
        restarts: Restarts | None = None,
        result_bytes_max: int = limits.POOL_RESULT_BYTES.default,
        on_dead: OnDead | None = None,
        pickler: Pickler = "auto",
        on_cancel: OnCancel = "interrupt",
        **unknown: Any,
    ) -> None:
        refuse_unknown(unknown, Pool.__init__, "Pool")
        called = functions.name_of(function) if callable(function) or isinstance(function, str) else ""
        is_traced = batch is None and not isinstance(function, functions.PerWorker) and find_spans() is not None
        self._options = Options(
            name if name is not None else f"pool-{next(_numbers)}",
            workers,
            kind,
            batch,
            capacity,
            overflow,
            task_timeout,
            heartbeat_timeout,
            max_deliveries,
            restarts if restarts is not None else Restarts(),
            result_bytes_max,
            on_dead,
            of_program(pickler) if kind == "process" else pickler,
            on_cancel,
            called if is_traced else None,
        )
        self.name = self._options.name
        self._function = called
        self._core = Core(self._options)
        self._packing = Packing(self._options)
        self._replacement = WorkerReplacement(self._options.scale.min, self._options.restarts, random.getrandbits(64))
        self._worker_set = _workers(self._core, function, self._replacement)
        self._supervisor: PoolSupervisor | None = None
        self._starting = threading.Lock()
        self._leave: Callable[[], Any] | None = None

    # Tasks

    def submit(self, /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_R_co]:
        """Submit one task, and await its result: ``await pool.submit(x)``.

        Cancelling drops the task, or ends it as ``on_cancel`` says if a worker has begun it; a
        batch, once each of its tasks was cancelled. Other tasks are not affected.

        Raises:
            InvalidArgument: if an argument can't be pickled for a process, or no event loop runs on
                this thread.
            PayloadTooLarge: if the pickled arguments are too large.
            LimitExceeded: if the pool is full, and its overflow is "fail".
            PoolStopped: if the pool takes no more tasks, or stopped before the task was done.
            PoolFailed: if the pool has failed.
            TaskTimeout: if the function ran longer than ``task_timeout``.
            TaskQuarantined: if its workers ended while they were at it, ``max_deliveries`` times.
            WorkerLost: if its worker ended while it was at it, and ``max_deliveries`` is 1.
            RemoteError: if the function raised what can't be pickled.
            Exception: whatever the function raised.
        """
        task, future = self._prepare(args, kwargs)
        self._submit(task)
        return future

    def with_(self, *, on_cancel: OnCancel | None = None, on_progress: OnProgress | None = None) -> Calls[_P, _R_co]:
        """Return the pool with settings for single submits: ``await pool.with_(...).submit(x)``.

        Args:
            on_cancel: As for the pool, which gives the default.
            on_progress: Called on this event loop with the fraction, 0 to 1, and the note of each
                ``tw.context().progress``, until the task ends; the newest of quick reports.

        Raises:
            InvalidArgument: if an argument is not allowed.
        """
        if on_cancel is not None:
            self._options.check_on_cancel(on_cancel)
        if on_progress is not None and not callable(on_progress):
            raise InvalidArgument(f"on_progress: {on_progress!r} is not allowed: give a function, or None")
        return Calls(self, on_cancel, on_progress)

    def _prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Task, Submitted]:
        loop = running_loop()
        if loop is None:
            raise InvalidArgument("pool.submit needs a running event loop: use pool.sync.submit in a plain thread")
        task = self._packing.task(args, kwargs)
        return task, _submitted(self, task, loop)

    def map(self, items: Iterable[Any] | AsyncIterable[Any], *, ahead: int | None = None) -> AsyncIterator[_R_co]:
        """Submit a task for each item, and iterate over the results in the order of the items:
        ``async for``.

        Args:
            items: Read as results are taken.
            ahead: Most tasks under way whose results were not taken, 1 to 1,000,000.

        Raises:
            Exception: the error of the first item that failed; the tasks after it are dropped. As
                for ``submit``.
        """
        most = checked_ahead(ahead)
        return map_async(self, items, most)

    @property
    def sync(self) -> Sync[_P, _R_co]:
        """Blocking forms of what is otherwise awaited, for plain threads."""
        # The object is made each time: with a reference to it, only the cycle collector could
        # release the pool.
        return Sync(self)

    def _submit(self, task: Task) -> None:
        if self._supervisor is None:
            self.start()
        self._core.submit(task)

    async def until(
        self, condition: Callable[[dict[str, Any]], object], timeout: float | None = None
    ) -> dict[str, Any]:
        """Wait until the statistics fit a condition, and return them.

        The pool checks the condition after each of its actions: a worker came, went or was
        replaced, a task was assigned or ended, the number of workers was decided. The statistics
        also show actions that a process begins by itself, but nothing signals them.

        Args:
            condition: Called with ``statistics()``, often; true if they fit.
            timeout: Seconds after which it is given up; None for no limit.

        Raises:
            TimeoutError: if they do not fit in time.
            PoolStopped: if the pool has ended, and they do not fit. PoolFailed if it has failed.
            InvalidArgument: if an argument is not allowed.
        """
        return await steps.awaited(self._fits(condition, timeout))

    def _fits(self, condition: Condition, timeout: float | None = None) -> Steps[dict[str, Any]]:
        waiter: Waiter | None = None

        def watch() -> Callable[[float | None], Waiter]:
            nonlocal waiter
            waiter = changed = Waiter()
            return changed.within

        def tell() -> None:
            nonlocal waiter
            # At most one call waits for the loop, however long that is busy.
            notified, waiter = waiter, None
            if notified is not None:
                notified.wake()

        self._core.watch(tell)
        try:
            return (yield from fits(self, f"pool {self.name!r}", self._core.refusal, watch, condition, timeout))
        finally:
            self._core.unwatch(tell)

    # Life

    def start(self) -> None:
        """Start the workers. The context manager and the first submit do this by themselves; a
        second call does nothing.

        Raises:
            PoolStopped: if the pool has been stopped.
        """
        with self._starting:
            if self._supervisor is not None:
                return
            if self._core.stop is not None:
                raise self._core.refusal()
            supervisor = PoolSupervisor(self._core, self._worker_set, self._replacement)
            self._core.listener = supervisor
            supervisor.start()
            self._supervisor = supervisor
            _supervisors.add(supervisor)
            self._leave = leave = weakref.finalize(self, supervisor.leave)
            # ``live_pools.py`` stops all supervisors at the end of the program.
            leave.atexit = False
        _live.add(self)

    def scale(self, workers: int | None) -> None:
        """Set the number of workers, and return at once. A spare worker leaves after its task.

        Args:
            workers: From ``min`` to ``max`` of its ``Scale``; it stays until the next ``scale``.
                None lets the number follow the queueing time again.

        Raises:
            InvalidArgument: if the number is not between the limits, which are equal for a pool
                without a ``Scale``.
            PoolStopped: if the pool is stopping or has stopped. PoolFailed if it has failed.
        """
        limit = self._options.scale
        if workers is not None and (
            not isinstance(workers, int) or isinstance(workers, bool) or not limit.min <= workers <= limit.max
        ):
            raise InvalidArgument(
                f"workers: {workers!r} is not allowed: pool {self.name!r} takes {limit.min} to {limit.max}, or None; "
                "make it with workers=tw.Scale(min=..., max=...) for others"
            )
        self._core.set_workers(workers)

    def drain(self) -> None:
        """Take no more tasks, and stop after the accepted ones, however long they take. Returns at
        once; ``stop`` waits, and may give a limit.
        """
        self._core.ask_to_stop(True, None)
        self._close_unstarted()

    async def stop(self, drain: bool = True, timeout: float | None = STOP_TIMEOUT_S) -> Ledger:
        """Stop the pool. Every call gets the same ledger.

        Args:
            drain: Handle what was accepted; otherwise what no worker has begun is returned in the
                ledger, and its submits raise PoolStopped.
            timeout: Seconds after which the rest is given up: processes are killed, threads
                abandoned.

        Returns:
            Outcome of all tasks.
        """
        return await steps.awaited(self._ending(drain, timeout))

    def _ending(self, drain: bool = True, timeout: float | None = STOP_TIMEOUT_S) -> Steps[Ledger]:
        waiter = Waiter()
        self._core.ask_to_stop(drain, timeout, waiter)
        self._close_unstarted()
        yield waiter
        self._join()
        for closing in self._core.closing:  # noqa: UP028 - a list takes no results
            yield closing
        assert self._core.ledger is not None
        return self._core.ledger

    async def __aenter__(self) -> Self:
        from tidewire._runtime.loop import bridge_of

        # Ctrl-C wakes the loop from here on.
        loop = running_loop()
        if loop is not None:
            bridge_of(loop)
        self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
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

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            self._interrupt(_ABORT_TIMEOUT_S)
        steps.blocking(self._ending() if kind is None else self._ending(False, _ABORT_TIMEOUT_S))

    def _interrupt(self, timeout: float) -> None:
        self._core.interrupt(timeout)

    def _close_unstarted(self) -> None:
        with self._starting:
            if self._supervisor is None and self._core.ledger is None:
                self._core.close(self._core.counters.ledger(0, (), (), "stopped"))

    def _join(self) -> None:
        if self._supervisor is not None and self._leave is not None:
            self._supervisor.join(_JOIN_S)
            self._leave()

    def _started(self) -> Core:
        if self._supervisor is None:
            self.start()
        return self._core

    # Observation

    @property
    def state(self) -> State:
        """ "starting", "running", "failed", "stopping" or "stopped"."""
        return self._core.state

    @property
    def ledger(self) -> Ledger | None:
        """Outcome of all tasks, once the pool has stopped or failed."""
        return self._core.ledger

    def statistics(self) -> dict[str, Any]:
        """Return counts, times and what each worker is at.

        Of the pool: tasks by what became of them, the depth of the queue (``waiting``) and the age
        of its oldest (``oldest_wait_ms``), the limits of its workers and the number that ``scale``
        set (``workers_set``), ``utilisation`` (the mean busy share), batches, and the
        quantiles of ``queueing`` (sampled, one of each batch) and ``handling``. Of each of its
        ``workers``: counts, ``busy_share``, ``restarts`` under its number, the ``task`` that it is
        at and for how long (``task_ms``), and its last sign of life (``last_heartbeat_ms_ago``): a
        process beats only while it has tasks.
        """
        now_ns, scale = time.monotonic_ns(), self._options.scale
        bounds = {"workers_min": scale.min, "workers_max": scale.max, "workers_set": self._core.workers_set}
        idle = {"workers_wanted": self._replacement.wanted, "workers": [], "utilisation": 0.0, "decisions": []}
        supervised = idle if self._supervisor is None else self._supervisor.statistics(now_ns)
        return {"name": self.name, "function": self._function, **self._core.statistics(now_ns), **bounds, **supervised}

    def __repr__(self) -> str:
        return f"<Pool {self.name!r} of {self._options.kind} workers for {self._function}, {self.state}>"

    def __reduce__(self) -> Any:
        raise InvalidArgument(f"{self!r} can't be pickled: a worker can't use the pool of its parent")


class Sync(Blocking[Pool[_P, _R_co]], Generic[_P, _R_co]):
    """Blocking calls, at ``pool.sync``."""

    until = blocking(Pool.until, "_fits")
    stop = blocking(Pool.stop, "_ending")

    def submit(self, /, *args: _P.args, **kwargs: _P.kwargs) -> _R_co:
        """Submit one task, and block until its result is there. Raises as ``pool.submit`` does."""
        pool = self._of
        self._may_block("submit")
        task = pool._packing.task(args, kwargs)
        task.answer = answer = Blocked()
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
        self._may_block("map")
        return map_sync(self._of, items, checked_ahead(ahead))

    def _may_block(self, title: str) -> None:
        super()._may_block(title)
        core = self._of._core
        if getattr(current, "core", None) is core:
            raise InvalidArgument(
                f"pool {core.options.name!r}: a worker would wait for its own pool: use another pool for tasks of tasks"
            )


class Calls(Generic[_P, _R_co]):
    """A pool with settings for single submits; see ``Pool.with_``."""

    def __init__(self, pool: Pool[_P, _R_co], on_cancel: OnCancel | None, on_progress: OnProgress | None) -> None:
        self._pool, self._on_cancel, self._on_progress = pool, on_cancel, on_progress

    def submit(self, /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_R_co]:
        """As ``Pool.submit``."""
        task, future = self._pool._prepare(args, kwargs)
        task.on_cancel = self._on_cancel
        if self._on_progress is not None:
            task.listener = future.listener(self._on_progress)
        self._pool._submit(task)
        return future


def _submitted(pool: Pool, task: Task, loop: Any) -> Submitted:
    # asyncio runs already, so that this loads it for nobody.
    from tidewire.pools.results.futures import submitted

    global _submitted
    _submitted = submitted
    return submitted(pool, task, loop)


def _workers(core: Core, function: Callable[..., Any] | str, replacement: WorkerReplacement) -> WorkerSet:
    """Return the workers of a pool, which start with its supervisor.

    Raises:
        InvalidArgument: if the function is none, can't be sent to a process, or this process must
            not have processes.
    """
    if functions.is_agent(function):
        raise InvalidArgument(
            f"function: {function!r} is an agent, and an agent lives in a node: use node.pool(...) with its class"
        )
    if core.options.kind == "thread":
        return ThreadWorkers(core, functions.for_thread(function), replacement)
    if main_module.importing:
        raise InvalidArgument(
            "kind: a worker process that imports its parent's program can't make a pool of processes: "
            "make it under `if __name__ == '__main__':`"
        )
    return ProcessWorkers(core, functions.spec_for_process(function, core.options.pickler), replacement)
