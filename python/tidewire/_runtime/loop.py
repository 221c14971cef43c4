"""Bridges between asyncio event loops and the engine: one for each loop, made when it is first
needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import signal
import threading
import weakref
from typing import NoReturn, Protocol

from tidewire._binding import Bridge

# The compiled half begins tasks with `_drive`; it is loaded before there are any, as a fork must
# not meet a module half loaded.
from tidewire._runtime import current, drive  # noqa: F401
from tidewire._runtime.process_state import in_child

_bridges: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Bridge] = weakref.WeakKeyDictionary()
# The pipes of these are those of the parent too.
in_child(_bridges.clear)


class User(Protocol):
    """Something whose coroutines run on a loop."""

    def _follow(self, bridge: Bridge, loop: asyncio.AbstractEventLoop) -> None: ...


_users: weakref.WeakSet[User] = weakref.WeakSet()


def bridge_of(loop: asyncio.AbstractEventLoop) -> Bridge:
    """Return the bridge of the loop that runs on this thread."""
    bridge = _bridges.get(loop)
    if bridge is None:
        bridge = Bridge()
        # A loop copies the context variables of the caller that adds a reader, maybe an actor at
        # work; inbound data must not see them.
        contextvars.Context().run(loop.add_reader, bridge.fileno(), bridge.drain)
        bridge.open(loop, loop.call_soon, bridge.run, loop.add_reader, loop.remove_reader)
        _bridges[loop] = bridge
        # The bridge keeps the loop's call_soon, and with it the loop, only while the loop is open.
        _close_with(loop, bridge)
        wake_by_signals(loop)
        bridge.enter(loop)
        # Programs that call asyncio.run() more than once: the coroutines of a node go on here when
        # their loop was closed.
        for user in list(_users):
            user._follow(bridge, loop)
    bridge.enter(loop)
    return bridge


def uses(user: User) -> None:
    """Tell something that runs coroutines of each new loop from now on."""
    _users.add(user)


def wake_by_signals(loop: asyncio.AbstractEventLoop) -> None:
    """Have signals wake a loop of the main thread, as asyncio does for those that have handlers at
    the loop.

    A signal that another thread was handed, or that comes just before the loop falls asleep, does
    not end its sleep: Ctrl-C would wait until something else happens. A loop without such a pipe
    (uvloop has its own way) and a pipe of somebody else are left alone.
    """
    if threading.current_thread() is threading.main_thread():
        end = getattr(loop, "_csock", None)
        if end is not None:
            _set_wakeup(end.fileno(), instead_of=-1)


def _set_wakeup(fd: int, instead_of: int) -> None:
    """Have signals write to a descriptor, if they write to this one at present. On the main
    thread.
    """
    # It may be closed since, or no socket.
    with contextlib.suppress(OSError, ValueError):
        before = signal.set_wakeup_fd(fd, warn_on_full_buffer=False)
        if before != instead_of:
            signal.set_wakeup_fd(before)


def raised(error: BaseException) -> None:
    """Do what the loop of this thread does with an error of something that it calls.

    SystemExit and KeyboardInterrupt leave the loop; what else has come is done first, or when the
    loop runs again.
    """
    loop = asyncio.get_running_loop()
    if isinstance(error, (SystemExit, KeyboardInterrupt)):
        loop.call_soon(_raise, error)
    else:
        loop.call_exception_handler({"message": "a callback of tidewire failed", "exception": error})


def interrupted(error: KeyboardInterrupt) -> None:
    """Have Ctrl-C, which came while a handler ran, leave the loop of the main thread: only there it
    is a person's.
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
        # Else it would keep its pipe until the collector comes: the loop holds this function, and
        # this function the loop.
        _bridges.pop(loop, None)
        with contextlib.suppress(AttributeError):
            del loop.close
        close()

    # An event loop has no hook for its end. A loop whose class forbids the attribute keeps its
    # bridge until it is collected.
    with contextlib.suppress(AttributeError):
        loop.close = close_both  # type: ignore[method-assign]
