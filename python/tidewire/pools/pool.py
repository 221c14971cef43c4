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

    Use it as a context manager, ``async with`` in asyncio or ``with`` in plain threads. The end of
    the block drains the pool, and ``pool.ledger`` is the stop report. Without a block, the first
    submit starts the pool. Its workers then end when the pool object is collected and all accepted
    tasks are handled.

    An exception that leaves the block aborts the pool. Tasks that no worker has begun are returned
    in the stop report. Coroutines in threads are cancelled (their submits raise PoolStopped). Other
    running tasks have one second to end (the default of ``abort_timeout_ms``).

    Args:
        function: The function of the workers: a function, a coroutine function, or an import
            path ``"package.module:name"``.
        workers: Number of workers, 1 to 1,024, or a ``Scale`` for a number that follows the
            queueing time.
        kind: "thread", or "process" for CPU-bound work.
        batch: Batching: the function takes a list of values, one per task, and returns a list of as
            many results.
        name: Name of the pool in statistics, logs and errors.
        capacity: Maximum number of tasks that wait for a worker, 1 to 10,000,000.
        overflow: Behavior of a full backlog: "wait" for capacity, or "fail".
        task_timeout: Timeout of one call in seconds, after which its worker is replaced. None for
            no limit.
        heartbeat_timeout: Seconds without a heartbeat after which a worker process with tasks is
            killed and replaced. Its running task counts a delivery. None for no limit. See below.
        max_deliveries: Limit of deliveries: a task fails when this many workers have ended during
            it, 1 to 1,000.
        restarts: Limit and backoff of the replacement of workers.
        result_bytes_max: Largest pickled result of a process, 1,024 to 1,073,741,824 bytes.
        on_dead: Called with the task, the reason and the error (or None) of every dead task. The
            reason is "failed", "timeout", "worker_lost", "quarantined", "cancelled", "pool_failed"
            or "abandoned". It runs on a thread of the pool, or on the thread that cancels.
        pickler: Pickler of the function, arguments and results for processes. "pickle" refers to
            functions and classes by name. "cloudpickle" must be installed; it includes the
            definitions of a notebook, a console or a function. "auto" is "pickle"; in a notebook or
            console it uses "cloudpickle", if installed, for objects that workers can't import.
        on_cancel: Cancellation of a running task whose ``submit`` is cancelled, or that its ``map``
            drops. "interrupt": a coroutine is cancelled, ``tw.context().cancelled`` is true,
            ``progress`` raises CancelledError; a process that runs for 5 more seconds is killed and
            replaced. "kill": its process is killed and replaced at once. "leave": it runs to its
            end.

    The heartbeat of a worker process is a Python thread. Slow C code that does not release the
    interpreter lock also stops it. For such code use a longer ``heartbeat_timeout`` or None, and
    limit the task with ``task_timeout``.

    Raises:
        InvalidArgument: if an argument is not allowed, or the function can't be sent to a process.
    """

    agent: Agent | None = None
    """Agent of a pool of agents; None for a pool of functions."""

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
        function_name = functions.name_of(function) if callable(function) or isinstance(function, str) else ""
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
            function_name if is_traced else None,
        )
        self.name = self._options.name
        self._function = function_name
        self._core = Core(self._options)
        self._packing = Packing(self._options)
        self._replacement = WorkerReplacement(self._options.scale.min, self._options.restarts, random.getrandbits(64))
        self._worker_set = _workers(self._core, function, self._replacement)
        self._supervisor: PoolSupervisor | None = None
        self._starting = threading.Lock()
        self._detach: Callable[[], Any] | None = None

    # Tasks

    def submit(self, /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_R_co]:
        """Submit one task, and return the future of its result: ``await pool.submit(x)``.

        Cancelling the future drops a task that no worker has begun. A running task is cancelled as
        set by ``on_cancel``; a batch, once all its tasks are cancelled. Other tasks are not
        affected.

        Raises:
            InvalidArgument: if an argument can't be pickled for a process, or no event loop runs on
                this thread.
            PayloadTooLarge: if the pickled arguments are too large.
            LimitExceeded: if the pool is full, and its overflow is "fail".
            PoolStopped: if the pool accepts no more tasks, or stopped before the task ended.
            PoolFailed: if the pool has failed.
            TaskTimeout: if the function ran longer than ``task_timeout``.
            TaskQuarantined: if ``max_deliveries`` workers ended during the task.
            WorkerLost: if its worker ended during the task, and ``max_deliveries`` is 1.
            RemoteError: if the function raised an error that can't be pickled.
            Exception: the error of the function.
        """
        task, future = self._prepare(args, kwargs)
        self._submit(task)
        return future

    def with_(self, *, on_cancel: OnCancel | None = None, on_progress: OnProgress | None = None) -> Calls[_P, _R_co]:
        """Return the pool with settings for single submits: ``await pool.with_(...).submit(x)``.

        Args:
            on_cancel: As for the pool. The default is the setting of the pool.
            on_progress: Called on this event loop with the fraction, 0 to 1, and the note of each
                ``tw.context().progress``, until the task ends. Of reports in quick succession, only
                the newest is delivered.

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
            items: Items, read on demand while results are consumed.
            ahead: Maximum number of submitted tasks without a consumed result, 1 to 1,000,000.

        Raises:
            Exception: the error of the first failed item, as for ``submit``. The tasks after it are
                dropped.
        """
        ahead = checked_ahead(ahead)
        return map_async(self, items, ahead)

    @property
    def sync(self) -> Sync[_P, _R_co]:
        """Blocking forms of the awaitable methods, for plain threads."""
        # Not cached: a reference cycle would delay the release of the pool.
        return Sync(self)

    def _submit(self, task: Task) -> None:
        if self._supervisor is None:
            self.start()
        self._core.submit(task)

    async def until(
        self, condition: Callable[[dict[str, Any]], object], timeout: float | None = None
    ) -> dict[str, Any]:
        """Wait until the statistics match a condition, and return them.

        The pool checks the condition after each of its actions: a worker was started, ended or was
        replaced, a task was assigned or ended, or the number of workers was set. A change inside a
        worker process is visible in the statistics, but does not trigger a check.

        Args:
            condition: Predicate of ``statistics()``, called often.
            timeout: Timeout in seconds; None for no limit.

        Raises:
            TimeoutError: if they do not match in time.
            PoolStopped: if the pool has ended without a match. PoolFailed if it has failed.
            InvalidArgument: if an argument is not allowed.
        """
        return await steps.awaited(self._fits(condition, timeout))

    def _fits(self, condition: Condition, timeout: float | None = None) -> Steps[dict[str, Any]]:
        waiter: Waiter | None = None

        def watch() -> Callable[[float | None], Waiter]:
            nonlocal waiter
            waiter = changed = Waiter()
            return changed.within

        def notify() -> None:
            nonlocal waiter
            # At most one call is queued on the loop at a time.
            notified, waiter = waiter, None
            if notified is not None:
                notified.wake()

        self._core.watch(notify)
        try:
            return (yield from fits(self, f"pool {self.name!r}", self._core.refusal, watch, condition, timeout))
        finally:
            self._core.unwatch(notify)

    # Lifecycle

    def start(self) -> None:
        """Start the workers. The context manager and the first submit call it; a second call does
        nothing.

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
            self._detach = detach = weakref.finalize(self, supervisor.on_pool_collected)
            # ``live_pools.py`` stops all supervisors at the end of the program.
            detach.atexit = False
        _live.add(self)

    def scale(self, workers: int | None) -> None:
        """Set the number of workers, and return at once. A surplus worker ends after its task.

        Args:
            workers: Number within ``min`` and ``max`` of the ``Scale``, fixed until the next call.
                None restores scaling by the queueing time.

        Raises:
            InvalidArgument: if the number is outside the limits, which are equal for a pool without
                a ``Scale``.
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
        """Accept no more tasks, and stop after the accepted ones, without a timeout. Returns at
        once; ``stop`` waits, optionally with a timeout.
        """
        self._core.ask_to_stop(True, None)
        self._close_unstarted()

    async def stop(self, drain: bool = True, timeout: float | None = STOP_TIMEOUT_S) -> Ledger:
        """Stop the pool. Every call returns the same stop report.

        Args:
            drain: True to handle all accepted tasks. False to return tasks that no worker has begun
                in the stop report; their submits raise PoolStopped.
            timeout: Seconds after which running tasks are abandoned: processes are killed, threads
                are left behind.

        Returns:
            Stop report with the outcome of all tasks.
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

        # The bridge lets Ctrl-C wake the loop.
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
        if self._supervisor is not None and self._detach is not None:
            self._supervisor.join(_JOIN_S)
            self._detach()

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
        """Stop report with the outcome of all tasks, once the pool has stopped or failed."""
        return self._core.ledger

    def statistics(self) -> dict[str, Any]:
        """Return counts, times and the present task of each worker.

        The pool has the number of tasks by outcome, the depth of the queue (``waiting``), the age
        of its oldest task (``oldest_wait_ms``), the limits of the number of workers and the number
        set by ``scale`` (``workers_set``), ``utilisation`` (the mean busy share), batches, and the
        quantiles of ``queueing`` (sampled, one per batch) and ``handling``. Each of ``workers`` has
        counts, ``busy_share``, ``restarts`` of its number, its present ``task`` with the time in it
        (``task_ms``), and the age of its last heartbeat (``last_heartbeat_ms_ago``): a process
        sends heartbeats only while it has tasks.
        """
        now_ns, scale = time.monotonic_ns(), self._options.scale
        bounds = {"workers_min": scale.min, "workers_max": scale.max, "workers_set": self._core.workers_set}
        unstarted = {"workers_wanted": self._replacement.target, "workers": [], "utilisation": 0.0, "decisions": []}
        figures = unstarted if self._supervisor is None else self._supervisor.statistics(now_ns)
        return {"name": self.name, "function": self._function, **self._core.statistics(now_ns), **bounds, **figures}

    def __repr__(self) -> str:
        return f"<Pool {self.name!r} of {self._options.kind} workers for {self._function}, {self.state}>"

    def __reduce__(self) -> Any:
        raise InvalidArgument(f"{self!r} can't be pickled: a worker can't use the pool of its parent")


class Sync(Blocking[Pool[_P, _R_co]], Generic[_P, _R_co]):
    """Blocking methods of a pool, at ``pool.sync``."""

    until = blocking(Pool.until, "_fits")
    stop = blocking(Pool.stop, "_ending")

    def submit(self, /, *args: _P.args, **kwargs: _P.kwargs) -> _R_co:
        """Submit one task, and block until its result. Raises the errors of ``pool.submit``."""
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
        """Submit one task, as ``Pool.submit`` does."""
        task, future = self._pool._prepare(args, kwargs)
        task.on_cancel = self._on_cancel
        if self._on_progress is not None:
            task.listener = future.listener(self._on_progress)
        self._pool._submit(task)
        return future


def _submitted(pool: Pool, task: Task, loop: Any) -> Submitted:
    # Imported late, as programs without asyncio need not load it.
    from tidewire.pools.results.futures import submitted

    global _submitted
    _submitted = submitted
    return submitted(pool, task, loop)


def _workers(core: Core, function: Callable[..., Any] | str, replacement: WorkerReplacement) -> WorkerSet:
    """Return the workers of a pool, which start with its supervisor.

    Raises:
        InvalidArgument: if the function is not callable or can't be sent to a process, or this
            process must not start processes.
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
