"""Supervisor thread of a pool: it assigns tasks, receives outcomes, replaces and scales workers,
and ends the pool.

It sleeps until a worker writes or ends, a task arrives while a worker has capacity, or the next
deadline. An idle pool has no deadline.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
import time
from collections import deque
from typing import Any, Protocol

from tidewire._log import log
from tidewire._node.ledger import Stuck
from tidewire._runtime.waiter import Waiter
from tidewire.pools.core import Core
from tidewire.pools.policies.restarts import WorkerReplacement
from tidewire.pools.policies.scaling_policy import Decision, Load, Scaling
from tidewire.pools.task import Unit

_SCALE_NS = 50_000_000
_DECISIONS_MAX = 32
# ``select`` refuses the timeout of many years of a stop without a limit.
_SLEEP_MAX_S = 86_400.0


class WorkerSet(Protocol):
    """Workers of a pool, for its supervisor."""

    def open(self, selector: selectors.BaseSelector) -> None: ...
    def on_added(self, count: int) -> bool: ...
    def work(self, now_ns: int) -> int | None: ...
    def interrupt(self) -> None: ...
    def on_cancelled(self) -> None: ...
    def recall_all(self, now_ns: int) -> None: ...
    def size(self) -> tuple[int, int]: ...
    def release_all(self, now_ns: int, kill: bool) -> None: ...
    def has_ended(self) -> bool: ...
    def unfinished(self) -> list[Unit]: ...
    def stuck(self) -> tuple[Stuck, ...]: ...
    def threads(self) -> tuple[str, ...]: ...
    def snapshot(self, now_ns: int) -> list[dict[str, Any]]: ...


class PoolSupervisor:
    """Supervisor of one pool, on its own thread."""

    def __init__(self, core: Core, worker_set: WorkerSet, replacement: WorkerReplacement) -> None:
        self.core = core
        self._worker_set = worker_set
        self._replacement = replacement
        scale = core.options.scale
        self._scaling = Scaling(scale) if scale.min < scale.max else None
        self._scale_ns = 0
        self.decisions: deque[Decision] = deque(maxlen=_DECISIONS_MAX)
        self._has_recalled = False
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        for fd in (self._wake_read, self._wake_write):
            os.set_blocking(fd, False)
        self._is_collected = False
        # A separate descriptor, as the supervisor may close the pipe before the pool is collected.
        self._pool_wake_write = os.dup(self._wake_write)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._on_wake)
        self._thread = threading.Thread(target=self._run, name=f"tidewire-{core.options.name}-supervisor", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._worker_set.open(self._selector)
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Join the thread."""
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def on_added(self, count: int) -> bool:
        """See ``PoolListener``."""
        return self._worker_set.on_added(count)

    def ring(self) -> None:
        """Wake the thread. See ``PoolListener``."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"!")

    def interrupt(self) -> None:
        """See ``PoolListener``."""
        self._worker_set.interrupt()

    def on_cancelled(self) -> None:
        """See ``PoolListener``."""
        self._worker_set.on_cancelled()
        self.ring()

    def on_pool_collected(self) -> None:
        """Drain the pool when its object is collected. Called once, by the garbage collector or
        after the end.

        It takes no lock: its thread may hold any, even the lock of the pool.
        """
        self._is_collected = True
        with contextlib.suppress(OSError):
            os.write(self._pool_wake_write, b"!")
        os.close(self._pool_wake_write)

    def stop(self, timeout: float) -> None:
        """Stop the pool without draining, and wait for the end."""
        if self.core.ledger is None:
            waiter = Waiter()
            self.core.ask_to_stop(False, timeout, waiter)
            waiter.wait()

    def _on_wake(self, mask: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4_096)

    # The thread

    def _run(self) -> None:
        stuck: tuple[Stuck, ...] = ()
        try:
            stuck = self._work()
        except BaseException as error:  # noqa: BLE001
            text = "pool %(pool)r: its supervisor failed"
            log.critical("pool.supervisor_failed", text, exc_info=error, pool=self.core.options.name, error=error)
            self._fail(f"its supervisor failed: {type(error).__name__}: {error}", error)
        finally:
            self._close(stuck)

    def _work(self) -> tuple[Stuck, ...]:
        """Supervise until the pool has ended, and return its stuck workers."""
        while True:
            now_ns = time.monotonic_ns()
            deadline_ns = self._worker_set.work(now_ns)
            if self.core.watchers:
                self.core.notify_watchers()
            if self._replacement.given_up is not None:
                self._fail(*self._replacement.given_up)
                return ()
            if self._is_collected and self.core.stop is None:
                self.core.ask_to_stop(True, None)
            if self.core.stop is not None:
                is_over, deadline_ns = self._stop(now_ns, deadline_ns)
                if is_over:
                    return self._end(now_ns)
            self._sleep(_earlier(deadline_ns, self._scale(now_ns)))

    def _sleep(self, deadline_ns: int | None) -> None:
        wait_s = None if deadline_ns is None else min(max(deadline_ns - time.monotonic_ns(), 0) / 1e9, _SLEEP_MAX_S)
        for key, mask in self._selector.select(wait_s):
            # An earlier event may have ended the worker of a later one.
            if key.fd in self._selector.get_map():
                key.data(mask)

    # Scaling

    def _scale(self, now_ns: int) -> int | None:
        """Scale the workers with the load. Return the time of the next check, or None while an idle
        pool has the minimum.
        """
        if self._scaling is None or self.core.stop is not None:
            return None
        workers = self.core.workers_set
        if workers is not None:
            if workers != self._replacement.target:
                self._scaling = Scaling(self.core.options.scale)
                self._change(Decision(now_ns / 1e6, self._replacement.target, workers, "set by scale"), now_ns)
                return now_ns
            # A surplus worker ends after its task.
            return now_ns + _SCALE_NS if self._worker_set.size()[0] > workers else None
        if now_ns >= self._scale_ns:
            self._scale_ns = now_ns + _SCALE_NS
            self._observe(now_ns)
        worker_count, busy = self._worker_set.size()
        idle = busy == 0 and not self.core.backlog.waiting
        return (
            None if idle and worker_count == self._replacement.target == self.core.options.scale.min else self._scale_ns
        )

    def _observe(self, now_ns: int) -> None:
        assert self._scaling is not None
        with self.core.lock:
            first = self.core.backlog.first()
            oldest_ms = (now_ns - first.queued_ns) / 1e6 if first is not None else 0.0
            waiting = self.core.backlog.waiting
        load = Load(self._replacement.target, self._worker_set.size()[1], waiting, oldest_ms)
        decision = self._scaling.observe(now_ns / 1e6, load)
        if decision is not None:
            self._change(decision, now_ns)

    def _change(self, decision: Decision, now_ns: int) -> None:
        self.decisions.append(decision)
        self._replacement.target = decision.workers
        self._scale_ns = now_ns
        text = "pool %(pool)r: from %(before)d to %(workers)d workers: %(reason)s"
        fields = {"before": decision.before, "workers": decision.workers, "reason": decision.reason}
        log.info("pool.scaled", text, pool=self.core.options.name, **fields)

    # The end

    def _stop(self, now_ns: int, deadline_ns: int | None) -> tuple[bool, int | None]:
        stop = self.core.stop
        assert stop is not None
        self.core.refuse_parked()
        if not stop.drain:
            if not self._has_recalled:
                self._has_recalled = True
                self._worker_set.recall_all(now_ns)
                deadline_ns = now_ns + 2_000_000
            self.core.return_waiting()
        with self.core.lock:
            open_tasks = self.core.backlog.waiting + self.core.in_workers()
        return open_tasks == 0 or now_ns >= stop.deadline_ns, _earlier(deadline_ns, stop.deadline_ns)

    def _end(self, now_ns: int) -> tuple[Stuck, ...]:
        stuck = self._worker_set.stuck()
        tasks = self._worker_set.unfinished()
        self._worker_set.release_all(now_ns, kill=bool(tasks))
        self.core.abandon(tasks, "abandoned")
        self._wait_for_workers()
        return stuck

    def _fail(self, reason: str, cause: BaseException | None) -> None:
        self.core.fail(reason, cause)
        tasks = self._worker_set.unfinished()
        self._worker_set.release_all(time.monotonic_ns(), kill=True)
        self.core.abandon(tasks, "pool_failed")
        self._wait_for_workers()

    def _wait_for_workers(self) -> None:
        self._replacement.target = 0
        while not self._worker_set.has_ended():
            deadline_ns = self._worker_set.work(time.monotonic_ns())
            # The call may have killed the last worker, and then no event follows.
            if not self._worker_set.has_ended():
                self._sleep(deadline_ns)

    def _close(self, stuck: tuple[Stuck, ...]) -> None:
        core = self.core
        reason = "stopped" if core.state != "failed" else "failed"
        core.close(core.counters.ledger(core.backlog.accepted, stuck, self._worker_set.threads(), reason))
        self._release()

    def _release(self) -> None:
        with self.core.lock:
            # No wakeups after this: the descriptor may be reused.
            self.core.listener = None
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def statistics(self, now_ns: int) -> dict[str, Any]:
        """Return the statistics of workers and scaling."""
        workers = self._worker_set.snapshot(now_ns)
        return {
            "workers_wanted": self._replacement.target,
            "workers": workers,
            "utilisation": sum(worker["busy_share"] for worker in workers) / max(len(workers), 1),
            "decisions": [
                {"ago_ms": now_ns / 1e6 - one.at_ms, "before": one.before, "workers": one.workers, "reason": one.reason}
                for one in list(self.decisions)
            ],
        }


def _earlier(one: int | None, other: int | None) -> int | None:
    return min((deadline for deadline in (one, other) if deadline is not None), default=None)
