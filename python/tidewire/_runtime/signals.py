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
_STUCK = 1
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

    def notify(self, number: int) -> None:
        """Record the first signal, and notify the waiters or the callback."""
        self.number = number
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        if not self._waiting and self._callback is not None:
            self._callback()


_request: ShutdownRequest | None = None
"""Request of the running program."""


def is_shutdown_cancellation(kind: type[BaseException]) -> bool:
    """Return True if a block is left by the cancellation of a signal, which is no error."""
    return issubclass(kind, asyncio.CancelledError) and _request is not None and _request.number is not None


@contextlib.contextmanager
def handle_signals(request: ShutdownRequest) -> Iterator[ShutdownRequest]:
    """Handle the signals of this program in the running loop of the main thread; other threads
    handle none.
    """
    global _request
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    loop = asyncio.get_running_loop()
    old_handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    # A signal that is ignored at the start, as in the background of a shell, stays ignored.
    numbers = [number for number, handler in old_handlers.items() if handler is not signal.SIG_IGN]

    def on_signal(number: int) -> None:
        for one in numbers:
            loop.remove_signal_handler(one)
            signal.signal(one, _end_now)
        # Without handlers asyncio no longer lets signals wake the loop.
        wake_by_signals(loop)
        request.notify(number)

    for number in numbers:
        loop.add_signal_handler(number, on_signal, number)
    _request = request
    try:
        yield request
    finally:
        # After the first signal the handler of the second one stays until the program ends.
        if request.number is None:
            _request = None
            for number in numbers:
                loop.remove_signal_handler(number)
                handler = old_handlers[number]
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _end_now(number: int, frame: FrameType | None) -> NoReturn:
    end_now()
    raise KeyboardInterrupt


async def run_forever(node: Node) -> None:
    """Wait for a signal, or until the node has stopped."""
    stop_task = asyncio.ensure_future(_wait_stopped(node))
    try:
        if _request is not None:
            await _wait_first(stop_task, _request)
        else:
            with handle_signals(ShutdownRequest()) as request:
                await _wait_first(stop_task, request)
    finally:
        stop_task.cancel()


async def _wait_first(stop_task: asyncio.Future[None], request: ShutdownRequest) -> None:
    requested = asyncio.ensure_future(request.wait())
    try:
        await asyncio.wait([stop_task, requested], return_when=asyncio.FIRST_COMPLETED)
    finally:
        requested.cancel()


async def _wait_stopped(node: Node) -> None:
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
    global _request
    if not asyncio.iscoroutine(main):
        raise InvalidArgument(f"main: {main!r} is not allowed: call the coroutine function, as in tw.run(main())")
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("tw.run() cannot be called from a running event loop")
    request = ShutdownRequest()
    has_ended_stuck()
    try:
        with asyncio.Runner(debug=debug, loop_factory=loop_factory) as runner:
            result = runner.run(_run_main(request, main))
    except (asyncio.CancelledError, KeyboardInterrupt) as error:
        if request.number is None:
            raise
        code = 128 + request.number if isinstance(error, KeyboardInterrupt) else _STUCK if has_ended_stuck() else 0
        raise SystemExit(code) from None
    finally:
        if _request is request:
            _request = None
    if request.number is not None and has_ended_stuck():
        raise SystemExit(_STUCK)
    return result


async def _run_main(request: ShutdownRequest, main: Coroutine[Any, Any, _T]) -> _T:
    task = asyncio.current_task()
    assert task is not None
    request._callback = task.cancel
    with handle_signals(request):
        return await main
