"""Program of a worker process: it reads tasks, calls the function, and writes results.

It ends when the connection to its parent closes, also when the parent dies. It ignores SIGINT and
SIGTERM: a terminal or a service manager also sends these to the parent, which then stops its pool.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
from typing import Any

from tidewire._processes.child_setup import flush_prints, ignore, set_up
from tidewire._processes.status_page import StatusPage
from tidewire._runtime.task import RunningTask, running_task
from tidewire.errors import PayloadTooLarge, RemoteError
from tidewire.pools import failure
from tidewire.pools.function import Caller, FunctionRef, checked_results, load
from tidewire.pools.processes import main_module, wire
from tidewire.pools.processes.heartbeat import Heartbeat
from tidewire.pools.processes.pickler import Dumps, dumps_of, plain
from tidewire.pools.processes.status_page import BEGUN, SKIP_AFTER, SKIP_TO, STARTED_NS
from tidewire.pools.processes.wire import BROKEN, PICKLED, PLAIN, READY, RESULTS, SKIPPED, Frames, frame, is_plain

# Larger buffers are allocated from the system and released on each read.
_READ_BYTES = 65_536
_FLUSH_NS = 4_000_000
_FLUSH_DELAY_S = 0.005


def main(socket_fd: int, page_fd: int, wake_fd: int) -> None:
    """Run tasks until the parent closes the connection. ``wake_fd`` has positions to cancel."""
    set_up(socket_fd, page_fd, wake_fd)
    with contextlib.suppress(ConnectionError):
        Worker(socket.socket(fileno=socket_fd), StatusPage(page_fd), wake_fd).run()


class Worker:
    """One worker process."""

    def __init__(self, connection: socket.socket, page: StatusPage, wake_fd: int) -> None:
        self._connection = connection
        self._wake_fd = wake_fd
        self._cancelled = 0
        self._words = page.words
        self._frames = Frames()
        self._position = 0
        self._outcomes: list[Any] = []
        self._spent_from_ns = self._flush_ns = 0
        self._write_lock = _thread.allocate_lock()
        self._flush_wakeup = _thread.allocate_lock()
        self._is_forked = False
        self._batch = False
        self._result_bytes_max = 0
        self._dumps: Dumps = plain

    def run(self) -> None:
        """Set up the worker, and handle tasks until the connection closes."""
        mask = _TermMask()
        os.register_at_fork(before=mask.block, after_in_parent=mask.restore, after_in_child=self._detach)
        os.register_at_fork(after_in_child=mask.reset)
        received = self._receive()
        caller = self._set_up(next(received))
        if caller is None:
            return
        running_task.set(self.running_task)
        self._heartbeat.start()
        self._send((READY,))
        self._flush_wakeup.acquire()
        _thread.start_new_thread(self._flush_slow, ())
        _thread.start_new_thread(self._watch_parent, (caller,))
        for items in received:
            self._heartbeat.begin()
            self._handle(caller, items)
            self._heartbeat.end()
        # The end of the function of this worker belongs to no task.
        self._cancelled = 0
        caller.close()

    def _receive(self) -> Any:
        while True:
            piece = self._connection.recv(_READ_BYTES)
            if not piece:
                return
            yield from self._frames.feed(piece)

    def _set_up(self, setup: tuple[Any, ...]) -> Caller | None:
        spec, sys.path[:], sys.argv[:], main_source, self._batch, self._result_bytes_max, beat_s, pickler, traced = (
            setup
        )
        self._heartbeat = Heartbeat(self._words, beat_s)
        main_module.set_parent_source(main_source)
        try:
            self._dumps = dumps_of(pickler)
            return Caller(load(FunctionRef(*spec)), lambda: self.running_task().is_cancelled(), traced)
        except BaseException as error:  # noqa: BLE001
            self._send((BROKEN, failure.pack(error)))
            return None

    # Tasks

    def _handle(self, caller: Caller, items: list[Any] | tuple[Any, ...]) -> None:
        """Handle the items of one frame. Write their outcomes at the end, and about every 4 ms."""
        words, call, clock = self._words, caller.call, time.monotonic_ns
        outcomes = self._outcomes
        self._spent_from_ns = clock()
        self._flush_ns = self._spent_from_ns + _FLUSH_NS
        if len(items) > 1 and self._flush_wakeup.locked():
            self._flush_wakeup.release()
        are_values = type(items) is tuple
        for position, item in enumerate(items, self._position + 1):
            now = words[STARTED_NS] = clock()
            words[BEGUN] = position
            if now > self._flush_ns and outcomes:
                self._write()
            # The first comparison usually suffices, and has no large number.
            if position <= words[SKIP_TO] and words[SKIP_AFTER] < position:
                outcomes.append((SKIPPED,))
                continue
            try:
                if are_values:
                    result = call(item)
                elif type(item) is tuple:
                    result = call(*item)
                elif type(item) is bytes:
                    args, kwargs = main_module.loads(item)
                    result = call(*args, **kwargs)
                else:
                    values = [one[0] if type(one) is tuple else main_module.loads(one)[0][0] for one in item]
                    result = checked_results(call(values), len(item))
            except BaseException as error:  # noqa: BLE001
                outcomes.append(self._pack_error(error))
            else:
                outcomes.append(result if type(result) in PLAIN else self._pack(result))
            if self._is_forked:
                # A process forked by the function has returned from it: it is no worker.
                flush_prints()
                os._exit(0)
        self._position += len(items)
        self._write()

    def _pack_error(self, error: BaseException) -> failure.Packed:
        # Omit the frame of the worker itself.
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            error.__traceback__ = error.__traceback__.tb_next
        return failure.pack(error, self._dumps)

    def _pack(self, result: Any) -> Any:
        if self._batch:
            return [value if type(value) in PLAIN else self._pack_one(value) for value in result]
        return self._pack_one(result)

    def _pack_one(self, result: Any) -> Any:
        if is_plain(result):
            return result
        try:
            pickled = self._dumps(result)
        except BaseException as error:  # noqa: BLE001
            problem = f"the result, of type {type(result).__name__}, can't be pickled ({error}): return plain data"
            return failure.pack(RemoteError(type(error).__name__, problem))
        if len(pickled) > self._result_bytes_max:
            limit = f"result_bytes_max={self._result_bytes_max:,}: return less, or raise result_bytes_max"
            return failure.pack(PayloadTooLarge(f"result: {len(pickled):,} bytes are more than {limit}"))
        return (PICKLED, pickled)

    # Results

    def _write(self) -> None:
        with self._write_lock:
            count = len(self._outcomes)
            if not count:
                return
            # The running task may append: copy and delete the same outcomes.
            outcomes = self._outcomes[:count]
            del self._outcomes[:count]
            now = time.monotonic_ns()
            spent_ns, self._spent_from_ns = now - self._spent_from_ns, now
            self._flush_ns = now + _FLUSH_NS
            flush_prints()
            self._send((RESULTS, spent_ns, outcomes))

    def _flush_slow(self) -> None:
        """Write results behind a slow task. Runs on its own thread."""
        while True:
            self._flush_wakeup.acquire()
            time.sleep(_FLUSH_DELAY_S)
            try:
                self._write()
            except OSError:
                return

    def _watch_parent(self, caller: Caller) -> None:
        """End the process when the parent has died, even during a task. Cancel coroutines on
        request. Runs on its own thread.

        If the parent has closed the connection only for writing, the worker finishes first.
        """
        parent = select.poll()
        parent.register(self._connection, 0)
        parent.register(self._wake_fd, select.POLLIN)
        while parent.poll() == [(self._wake_fd, select.POLLIN)]:
            self._cancelled = int.from_bytes(os.read(self._wake_fd, 8), "little")
            # Report earlier tasks first: the parent may kill this process, and redeliver the rest.
            with contextlib.suppress(OSError):
                self._write()
            caller.cancel_current()
        os._exit(1)

    def running_task(self) -> RunningTask:
        """Return the running task for ``tw.context()``."""
        position = self._words[BEGUN]
        return RunningTask(lambda: 0 < position == self._cancelled, lambda *report: self._report(position, *report))

    def _report(self, position: int, fraction: float, note: str) -> None:
        if not self._is_forked:
            with self._write_lock:
                self._send((wire.PROGRESS, position, fraction, note))

    def _send(self, value: Any) -> None:
        self._connection.sendall(frame(value))

    def _detach(self) -> None:
        """In a process forked by the function: close its copy of the connection."""
        self._is_forked = True
        with contextlib.suppress(OSError):
            self._connection.close()


class _TermMask(threading.local):
    """Signal mask around a fork of the function, so that SIGTERM always ends a forked process."""

    _before: set[int] | None = None

    def block(self) -> None:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def restore(self) -> None:
        if self._before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def reset(self) -> None:
        # Keeps a handler of the function. Only the main thread may set one.
        with contextlib.suppress(ValueError):
            if signal.getsignal(signal.SIGTERM) is ignore:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.restore()
