"""The command ``tidewire top``: finds a node, polls it, and shows its statistics."""

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
_END_HINT = "q ends"
_INTERRUPTED = 130

_ReadSample = Callable[[], Awaitable[dict[str, Any]]]


def top(hub: Hub, node: str | None, interval: float, once: bool, json: bool) -> int:
    """Run the command, and return its exit code: 1 if no node can be inspected or it has stopped, 2
    for wrong usage.
    """

    async def work() -> int:
        if not INTERVAL_S_MIN <= interval <= INTERVAL_S_MAX:
            bounds = f"{INTERVAL_S_MIN:g} to {INTERVAL_S_MAX:,.0f}"
            raise InvalidArgument(f"interval: {interval:g} is not allowed: give a number of seconds from {bounds}")
        console = Console(highlight=False)
        async with (await choose(hub, node)).watched() as read_sample:
            if json:
                print(jsonlib.dumps(await _rated_sample(read_sample, interval), indent=2))
            elif once or not console.is_terminal or console.is_dumb_terminal:
                console.print(picture(await _rated_sample(read_sample, interval), console.width, None))
            else:
                await _live(read_sample, interval, console)
        return 0

    code = hub.finish(work)
    return 0 if code == _INTERRUPTED else code


async def _rated_sample(read_sample: _ReadSample, interval: float) -> dict[str, Any]:
    """Poll the node until its reply differs from the first, since rates need two samples."""
    first = second = with_rates(await read_sample(), None)
    while second is first:
        await asyncio.sleep(interval)
        second = with_rates(await read_sample(), first)
    return second


async def _live(read_sample: _ReadSample, interval: float, console: Console) -> None:
    current, note = with_rates(await read_sample(), None), _END_HINT
    with _end_key() as ended, Live(console=console, screen=True, auto_refresh=False) as live:
        while not ended.done():
            live.update(picture(current, console.width, console.height, note), refresh=True)
            await asyncio.wait({ended}, timeout=interval)
            try:
                current, note = with_rates(await read_sample(), current), _END_HINT
            except AskTimeout as error:
                # Keep the last sample: a busy node is of most interest.
                note = f"{error}; {_END_HINT}"


@contextlib.contextmanager
def _end_key() -> Iterator[asyncio.Future[None]]:
    """Yield a future that is done after the key q; it is never done without a terminal as
    input.
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
        # A closed terminal is always readable, without data.
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
