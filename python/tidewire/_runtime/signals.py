"""SIGINT and SIGTERM: the first one lets the work of a program end, the second one does not wait
for it.
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
"""The exit code of a program that was asked to end, and had to leave handlers behind that did
not.
"""


class ShutdownRequest:
    """Request to end the program: its signal, and the code to notify.

    Attributes:
        number: The signal that it was, or None.
    """

    def __init__(self, callback: Callable[[], object] | None = None) -> None:
        self.number: int | None = None
        self._callback = callback
        self._waiting: set[asyncio.Future[None]] = set()

    async def wait(self) -> None:
        """Wait until the program is asked to end. The waiter handles the request, so that no other
        code is notified.
        """
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)

    def ask(self, number: int) -> None:
        """Note the first signal."""
        self.number = number
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        if not self._waiting and self._callback is not None:
            self._callback()


_ending: ShutdownRequest | None = None
"""That of the program that runs at present."""


def is_shutdown_cancellation(kind: type[BaseException]) -> bool:
    """Return whether what leaves a block is the cancellation by a signal, which is no error."""
    return issubclass(kind, asyncio.CancelledError) and _ending is not None and _ending.number is not None


@contextlib.contextmanager
def heard(ending: ShutdownRequest) -> Iterator[ShutdownRequest]:
    """Have the signals of this program heard by the loop that runs, which must be that of the main
    thread; others hear none.
    """
    global _ending
    if threading.current_thread() is not threading.main_thread():
        yield ending
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    # A program that was started to ignore one, as in the background of a shell, goes on to.
    numbers = [number for number, handler in before.items() if handler is not signal.SIG_IGN]

    def hear(number: int) -> None:
        for one in numbers:
            loop.remove_signal_handler(one)
            signal.signal(one, _now)
        # The loop no longer has handlers, and asyncio has signals no longer wake it.
        wake_by_signals(loop)
        ending.ask(number)

    for number in numbers:
        loop.add_signal_handler(number, hear, number)
    _ending = ending
    try:
        yield ending
    finally:
        # After the first signal it is the second one that counts, until the program has ended.
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
    """Wait until the program is asked to end, or the node has stopped."""
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
    """Run a program: as ``asyncio.run``, and SIGINT (Ctrl-C) and SIGTERM let its nodes finish their
    work.

    The first signal ends ``node.run_forever()``, or cancels ``main`` where nobody waits in that;
    nodes whose blocks are left by it work off what they have, as at the end of any block, for at
    most ``stop_timeout_ms``. A second signal ends the program at once.

    Args:
        main: The program, such as ``main()``.
        debug: True if the loop is in debug mode; None leaves it to the environment.
        loop_factory: Makes the event loop, such as ``uvloop.new_event_loop``.

    Returns:
        Result of ``main``.

    Raises:
        SystemExit: if a signal ended ``main``: with 0 if all work was done; 1 if handlers did not
            end in time; 128 and the number of the first signal if there was a second one.
        InvalidArgument: if ``main`` is no coroutine.
        BaseException: whatever ``main`` raises.
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
