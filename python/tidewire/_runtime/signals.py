"""SIGINT and SIGTERM: the first signal drains the work of a program, the second one ends it at
once.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from tidewire._runtime.live_nodes import end_now, has_ended_stuck
from tidewire._runtime.loop import wake_by_signals
from tidewire.errors import InvalidArgument

if TYPE_CHECKING:
    from tidewire.node import Node

_T = TypeVar("_T")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_GIVEN_UP = 1
"""Exit code of a program that ended by a signal with stuck handlers."""


class ShutdownRequest:
    """Request to end the program: its signal, and the callback to notify.

    Attributes:
        number: Number of the first signal, or None.
    """

    def __init__(self, callback: Callable[[], object] | None = None) -> None:
        self.number: int | None = None
        self._callback = callback
        self._waiting: set[asyncio.Future[None]] = set()

    async def wait(self) -> None:
        """Wait for the first signal. While there is a waiter, the callback is not called."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)

    def ask(self, number: int) -> None:
        """Record the first signal, and notify the waiters or the callback."""
        self.number = number
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        if not self._waiting and self._callback is not None:
            self._callback()


_ending: ShutdownRequest | None = None
"""Request of the running program."""


def is_shutdown_cancellation(kind: type[BaseException]) -> bool:
    """Return True if a block is left by the cancellation of a signal, which is no error."""
    return issubclass(kind, asyncio.CancelledError) and _ending is not None and _ending.number is not None


@contextlib.contextmanager
def heard(ending: ShutdownRequest) -> Iterator[ShutdownRequest]:
    """Handle the signals of this program in the running loop of the main thread; other threads
    handle none.
    """
    global _ending
    if threading.current_thread() is not threading.main_thread():
        yield ending
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    # A signal that is ignored at the start, as in the background of a shell, stays ignored.
    numbers = [number for number, handler in before.items() if handler is not signal.SIG_IGN]

    def hear(number: int) -> None:
        for one in numbers:
            loop.remove_signal_handler(one)
            signal.signal(one, _now)
        # Without handlers asyncio no longer lets signals wake the loop.
        wake_by_signals(loop)
        ending.ask(number)

    for number in numbers:
        loop.add_signal_handler(number, hear, number)
    _ending = ending
    try:
        yield ending
    finally:
        # After the first signal the handler of the second one stays until the program ends.
        if ending.number is None:
            _ending = None
            for number in numbers:
                loop.remove_signal_handler(number)
                handler = before[number]
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _now(number: int, frame: FrameType | None) -> NoReturn:
    end_now()
    raise KeyboardInterrupt


async def run_forever(node: Node) -> None:
    """Wait for a signal, or until the node has stopped."""
    stopped = asyncio.ensure_future(_stopped(node))
    try:
        if _ending is not None:
            await _first(stopped, _ending)
        else:
            with heard(ShutdownRequest()) as ending:
                await _first(stopped, ending)
    finally:
        stopped.cancel()


async def _first(stopped: asyncio.Future[None], ending: ShutdownRequest) -> None:
    requested = asyncio.ensure_future(ending.wait())
    try:
        await asyncio.wait([stopped, requested], return_when=asyncio.FIRST_COMPLETED)
    finally:
        requested.cancel()


async def _stopped(node: Node) -> None:
    engine = node._engine
    while True:
        change_counter = engine.change_counter
        seen = change_counter.count
        if node.ledger is not None:
            return
        await engine.changed(change_counter, seen, None)


def run(
    main: Coroutine[Any, Any, _T],
    *,
    debug: bool | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> _T:
    """Run a program like ``asyncio.run``. SIGINT (Ctrl-C) and SIGTERM drain the work of its nodes.

    The first signal ends ``node.run_forever()``, or cancels ``main`` if no code waits there. Nodes
    whose blocks end then drain their work for at most ``stop_timeout_ms``, as at the end of any
    block. A second signal ends the program at once.

    Args:
        main: The program, such as ``main()``.
        debug: True for the debug mode of the loop; None leaves it to the environment.
        loop_factory: Factory of the event loop, such as ``uvloop.new_event_loop``.

    Returns:
        Result of ``main``.

    Raises:
        SystemExit: if a signal ended ``main``: code 0 if all work was done, 1 if handlers did not
            end in time, 128 plus the number of the first signal after a second one.
        InvalidArgument: if ``main`` is not a coroutine.
        BaseException: the error of ``main``.
    """
    global _ending
    if not asyncio.iscoroutine(main):
        raise InvalidArgument(f"main: {main!r} is not allowed: call the coroutine function, as in tw.run(main())")
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("tw.run() cannot be called from a running event loop")
    ending = ShutdownRequest()
    has_ended_stuck()
    try:
        with asyncio.Runner(debug=debug, loop_factory=loop_factory) as runner:
            result = runner.run(_heard(ending, main))
    except (asyncio.CancelledError, KeyboardInterrupt) as error:
        if ending.number is None:
            raise
        code = 128 + ending.number if isinstance(error, KeyboardInterrupt) else _GIVEN_UP if has_ended_stuck() else 0
        raise SystemExit(code) from None
    finally:
        if _ending is ending:
            _ending = None
    if ending.number is not None and has_ended_stuck():
        raise SystemExit(_GIVEN_UP)
    return result


async def _heard(ending: ShutdownRequest, main: Coroutine[Any, Any, _T]) -> _T:
    task = asyncio.current_task()
    assert task is not None
    ending._callback = task.cancel
    with heard(ending):
        return await main
