"""The program of a worker process: reads tasks, calls the function, writes results.

It ends when its parent closes the connection, whether the parent meant to or died. It does not end
at SIGINT and SIGTERM: a terminal or a service manager sends these to the parent too, which then
stops its pool.
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

# Larger pieces would come from the system each time, and go back to it.
_READ_BYTES = 65_536
_HOLD_NS = 4_000_000
_HOLD_STUCK_S = 0.005


def main(socket_fd: int, page_fd: int, bell_fd: int) -> None:
    """Work until the parent closes the connection. The bell tells the positions to end."""
    set_up(socket_fd, page_fd, bell_fd)
    with contextlib.suppress(ConnectionError):
        Worker(socket.socket(fileno=socket_fd), StatusPage(page_fd), bell_fd).run()


class Worker:
    """One worker process."""

    def __init__(self, connection: socket.socket, page: StatusPage, bell: int) -> None:
        self._connection = connection
        self._bell = bell
        self._cancelled = 0
        self._words = page.words
        self._frames = Frames()
        self._position = 0
        self._outcomes: list[Any] = []
        self._spent_from_ns = self._hold_until_ns = 0
        self._writing = _thread.allocate_lock()
        self._held = _thread.allocate_lock()
        self._forked = False
        self._batch = False
        self._result_bytes_max = 0
        self._dumps: Dumps = plain

    def run(self) -> None:
        """Set up, then handle what comes."""
        mask = _TermMask()
        os.register_at_fork(before=mask.block, after_in_parent=mask.restore, after_in_child=self._leave_parent)
        os.register_at_fork(after_in_child=mask.reset)
        received = self._receive()
        caller = self._set_up(next(received))
        if caller is None:
            return
        running_task.set(self.running_task)
        self._heart.start()
        self._send((READY,))
        self._held.acquire()
        _thread.start_new_thread(self._write_what_is_held, ())
        _thread.start_new_thread(self._hear_parent, (caller,))
        for items in received:
            self._heart.begin()
            self._handle(caller, items)
            self._heart.end()
        # The end of what was made for this worker belongs to no task.
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
        self._heart = Heartbeat(self._words, beat_s)
        main_module.expect(main_source)
        try:
            self._dumps = dumps_of(pickler)
            return Caller(load(FunctionRef(*spec)), lambda: self.running_task().is_cancelled(), traced)
        except BaseException as error:  # noqa: BLE001
            self._send((BROKEN, failure.pack(error)))
            return None

    # Tasks

    def _handle(self, caller: Caller, items: list[Any] | tuple[Any, ...]) -> None:
        """Handle the items of one frame, and write their outcomes: at the end, and whenever some
        have been held too long.
        """
        words, call, clock = self._words, caller.call, time.monotonic_ns
        outcomes = self._outcomes
        self._spent_from_ns = clock()
        self._hold_until_ns = self._spent_from_ns + _HOLD_NS
        if len(items) > 1 and self._held.locked():
            self._held.release()
        are_values = type(items) is tuple
        for position, item in enumerate(items, self._position + 1):
            now = words[STARTED_NS] = clock()
            words[BEGUN] = position
            if now > self._hold_until_ns and outcomes:
                self._write()
            # Mostly the first comparison tells, and without a large number.
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
                outcomes.append(self._failed(error))
            else:
                outcomes.append(result if type(result) in PLAIN else self._packed(result))
            if self._forked:
                # A process that the function forked has returned from it: it is no worker.
                flush_prints()
                os._exit(0)
        self._position += len(items)
        self._write()

    def _failed(self, error: BaseException) -> failure.Packed:
        # The frame of the worker itself says nothing about the task.
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            error.__traceback__ = error.__traceback__.tb_next
        return failure.pack(error, self._dumps)

    def _packed(self, result: Any) -> Any:
        if self._batch:
            return [value if type(value) in PLAIN else self._packed_one(value) for value in result]
        return self._packed_one(result)

    def _packed_one(self, result: Any) -> Any:
        if is_plain(result):
            return result
        try:
            pickled = self._dumps(result)
        except BaseException as error:  # noqa: BLE001
            problem = f"the result, of type {type(result).__name__}, can't be pickled ({error}): return plain data"
            return failure.pack(RemoteError(type(error).__name__, problem))
        if len(pickled) > self._result_bytes_max:
            most = f"result_bytes_max={self._result_bytes_max:,}: return less, or raise result_bytes_max"
            return failure.pack(PayloadTooLarge(f"result: {len(pickled):,} bytes are more than {most}"))
        return (PICKLED, pickled)

    # Results

    def _write(self) -> None:
        with self._writing:
            count = len(self._outcomes)
            if not count:
                return
            # The task at hand may append meanwhile: only what was there is taken, and taken out at
            # once.
            outcomes = self._outcomes[:count]
            del self._outcomes[:count]
            now = time.monotonic_ns()
            spent_ns, self._spent_from_ns = now - self._spent_from_ns, now
            self._hold_until_ns = now + _HOLD_NS
            flush_prints()
            self._send((RESULTS, spent_ns, outcomes))

    def _write_what_is_held(self) -> None:
        """Write results that wait behind a task which takes long. A thread of its own."""
        while True:
            self._held.acquire()
            time.sleep(_HOLD_STUCK_S)
            try:
                self._write()
            except OSError:
                return

    def _hear_parent(self, caller: Caller) -> None:
        """End in the middle of a task when the parent is gone, and cancel a coroutine at the bell.
        A thread of its own.

        A connection that the parent has only closed for writing is no such case: then the worker
        finishes first.
        """
        parent = select.poll()
        parent.register(self._connection, 0)
        parent.register(self._bell, select.POLLIN)
        while parent.poll() == [(self._bell, select.POLLIN)]:
            self._cancelled = int.from_bytes(os.read(self._bell, 8), "little")
            # The parent may end this process, and what was done before is not to be done again.
            with contextlib.suppress(OSError):
                self._write()
            caller.look()
        os._exit(1)

    def running_task(self) -> RunningTask:
        """Return what ``tw.context()`` tells."""
        at = self._words[BEGUN]
        return RunningTask(lambda: 0 < at == self._cancelled, lambda *report: self._report(at, *report))

    def _report(self, at: int, fraction: float, note: str) -> None:
        if not self._forked:
            with self._writing:
                self._send((wire.PROGRESS, at, fraction, note))

    def _send(self, value: Any) -> None:
        self._connection.sendall(frame(value))

    def _leave_parent(self) -> None:
        """In a process that the function forked: release the connection, so that it ends with the
        worker.
        """
        self._forked = True
        with contextlib.suppress(OSError):
            self._connection.close()


class _TermMask(threading.local):
    """SIGTERM around a fork of the function: a forked process ends at it, however early it
    comes.
    """

    _before: set[int] | None = None

    def block(self) -> None:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def restore(self) -> None:
        if self._before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def reset(self) -> None:
        # The function may have a handler of its own. Only the main thread of Python may set one.
        with contextlib.suppress(ValueError):
            if signal.getsignal(signal.SIGTERM) is ignore:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.restore()
