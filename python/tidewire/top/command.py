"""The command ``tidewire top``: finds the node, looks at it, and shows its statistics."""

from __future__ import annotations

import asyncio
import contextlib
import json as jsonlib
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from rich.console import Console
from rich.live import Live

from tidewire.commands.talk import Hub
from tidewire.errors import AskTimeout, InvalidArgument
from tidewire.top.discovery import choose
from tidewire.top.rates import with_rates
from tidewire.top.screen import picture

INTERVAL_S_MIN, INTERVAL_S_MAX = 0.1, 3_600.0
_ENDS = "q ends"
_INTERRUPTED = 130

_Look = Callable[[], Awaitable[dict[str, Any]]]


def top(hub: Hub, node: str | None, interval: float, once: bool, json: bool) -> int:
    """Run the command, and return its exit code: 1 if there is nothing to look at or the node has
    gone, 2 for wrong usage.
    """

    async def work() -> int:
        if not INTERVAL_S_MIN <= interval <= INTERVAL_S_MAX:
            bounds = f"{INTERVAL_S_MIN:g} to {INTERVAL_S_MAX:,.0f}"
            raise InvalidArgument(f"interval: {interval:g} is not allowed: give a number of seconds from {bounds}")
        console = Console(highlight=False)
        async with (await choose(hub, node)).watched() as look:
            if json:
                print(jsonlib.dumps(await _twice(look, interval), indent=2))
            elif once or not console.is_terminal or console.is_dumb_terminal:
                console.print(picture(await _twice(look, interval), console.width, None))
            else:
                await _live(look, interval, console)
        return 0

    code = hub.finish(work)
    return 0 if code == _INTERRUPTED else code


async def _twice(look: _Look, interval: float) -> dict[str, Any]:
    """Look until the node gives another answer than the first, since a rate is a difference."""
    first = second = with_rates(await look(), None)
    while second is first:
        await asyncio.sleep(interval)
        second = with_rates(await look(), first)
    return second


async def _live(look: _Look, interval: float, console: Console) -> None:
    seen, note = with_rates(await look(), None), _ENDS
    with _end_key() as ended, Live(console=console, screen=True, auto_refresh=False) as live:
        while not ended.done():
            live.update(picture(seen, console.width, console.height, note), refresh=True)
            await asyncio.wait({ended}, timeout=interval)
            try:
                seen, note = with_rates(await look(), seen), _ENDS
            except AskTimeout as error:
                # A busy node is the one that people want to see: the last look stays.
                note = f"{error}; {_ENDS}"


@contextlib.contextmanager
def _end_key() -> Iterator[asyncio.Future[None]]:
    """A future that is done after the key q. Without a terminal at the input there is no such
    key.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    if sys.stdin is None or not sys.stdin.isatty():
        yield ended
        return
    import termios
    import tty

    file = sys.stdin.fileno()

    def read() -> None:
        key = b""
        with contextlib.suppress(OSError):
            key = os.read(file, 1)
        # A terminal that is gone is ready for ever, with nothing to read.
        if key in (b"q", b"Q", b"") and not ended.done():
            ended.set_result(None)

    before = termios.tcgetattr(file)
    tty.setcbreak(file)
    loop.add_reader(file, read)
    try:
        yield ended
    finally:
        loop.remove_reader(file)
        termios.tcsetattr(file, termios.TCSADRAIN, before)
