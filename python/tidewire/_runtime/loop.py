"""Bridges between asyncio event loops and the engine: one per loop, created on demand."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import signal
import threading
import weakref
from typing import NoReturn, Protocol

from tidewire._binding import Bridge

# The compiled part starts tasks with `drive`. Loaded early: a fork must not meet a partly loaded
# module.
from tidewire._runtime import current, drive  # noqa: F401
from tidewire._runtime.process_state import in_child

_bridges: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Bridge] = weakref.WeakKeyDictionary()
# Their pipes are shared with the parent.
in_child(_bridges.clear)


class User(Protocol):
    """An object whose coroutines run on a loop."""

    def _follow(self, bridge: Bridge, loop: asyncio.AbstractEventLoop) -> None: ...


_users: weakref.WeakSet[User] = weakref.WeakSet()


def bridge_of(loop: asyncio.AbstractEventLoop) -> Bridge:
    """Return the bridge of the running loop of this thread."""
    bridge = _bridges.get(loop)
    if bridge is None:
        bridge = Bridge()
        # A reader inherits the context variables of its creator, maybe a running actor; inbound
        # data must not see them.
        contextvars.Context().run(loop.add_reader, bridge.fileno(), bridge.drain)
        bridge.open(loop, loop.call_soon, bridge.run, loop.add_reader, loop.remove_reader)
        _bridges[loop] = bridge
        # The bridge refers to the loop's call_soon, and so to the loop, only while the loop is
        # open.
        _close_with(loop, bridge)
        wake_by_signals(loop)
        bridge.enter(loop)
        # For programs that call asyncio.run() more than once: nodes whose loop is closed move to
        # this one.
        for user in list(_users):
            user._follow(bridge, loop)
    bridge.enter(loop)
    return bridge


def uses(user: User) -> None:
    """Notify an object with coroutines of each new loop."""
    _users.add(user)


def wake_by_signals(loop: asyncio.AbstractEventLoop) -> None:
    """Let signals wake the loop of the main thread, like asyncio for loops with signal handlers.

    A signal that another thread receives, or that arrives just before the loop sleeps, does not
    wake the loop: Ctrl-C would wait for the next event. A loop without such a pipe, such as that of
    uvloop, and a foreign pipe stay unchanged.
    """
    if threading.current_thread() is threading.main_thread():
        end = getattr(loop, "_csock", None)
        if end is not None:
            _set_wakeup(end.fileno(), instead_of=-1)


def _set_wakeup(fd: int, instead_of: int) -> None:
    """Replace the wakeup descriptor of signals, if it is the expected one. On the main thread."""
    # It may be closed, or no socket.
    with contextlib.suppress(OSError, ValueError):
        before = signal.set_wakeup_fd(fd, warn_on_full_buffer=False)
        if before != instead_of:
            signal.set_wakeup_fd(before)


def raised(error: BaseException) -> None:
    """Handle an error like the loop of this thread does for its callbacks.

    SystemExit and KeyboardInterrupt leave the loop. Other callbacks run before, or when the loop
    runs again.
    """
    loop = asyncio.get_running_loop()
    if isinstance(error, (SystemExit, KeyboardInterrupt)):
        loop.call_soon(_raise, error)
    else:
        loop.call_exception_handler({"message": "a callback of tidewire failed", "exception": error})


def interrupted(error: KeyboardInterrupt) -> None:
    """Raise a Ctrl-C that interrupted a handler out of the loop, if it is the loop of the main
    thread.
    """
    loop = current.running_loop()
    if loop is not None and threading.current_thread() is threading.main_thread():
        loop.call_soon(_raise, error)


def _raise(error: BaseException) -> NoReturn:
    raise error


def _close_with(loop: asyncio.AbstractEventLoop, bridge: Bridge) -> None:
    close = loop.close

    def close_both() -> None:
        end = getattr(loop, "_csock", None)
        if end is not None and threading.current_thread() is threading.main_thread():
            _set_wakeup(-1, instead_of=end.fileno())
        if not loop.is_closed():
            with contextlib.suppress(OSError, ValueError):
                loop.remove_reader(bridge.fileno())
        bridge.close()
        # Break the cycle of the loop and this function, which would keep the pipe until a
        # collection.
        _bridges.pop(loop, None)
        with contextlib.suppress(AttributeError):
            del loop.close
        close()

    # An event loop has no hook for its close. A loop that forbids the attribute keeps its bridge
    # until it is collected.
    with contextlib.suppress(AttributeError):
        loop.close = close_both  # type: ignore[method-assign]
