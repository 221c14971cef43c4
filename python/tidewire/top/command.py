"""The command ``tidewire top``: finds the node, looks at it, and shows what it saw."""

from __future__ import annotations

import json as jsonlib
import os
import sys
import time
from typing import Any

from rich.console import Console
from rich.live import Live

from tidewire.errors import AskTimeout, InvalidArgument, TidewireError
from tidewire.top.finding import Found, choose
from tidewire.top.keys import Keys
from tidewire.top.rates import with_rates
from tidewire.top.screen import picture

INTERVAL_S_MIN, INTERVAL_S_MAX = 0.1, 3_600.0
_ENDS = "q ends"

_Look = dict[str, Any]


def top(node: str | None, interval: float, once: bool, json: bool) -> int:
    """Run the command, and return its exit code: 1 if there is nothing to look at or the node has gone, 2 for wrong usage."""
    try:
        _check(interval)
        found = choose(node)
        console = Console(highlight=False)
        if json:
            sys.stdout.write(jsonlib.dumps(_twice(found, interval), indent=2) + "\n")
        elif once or not console.is_terminal or console.is_dumb_terminal:
            console.print(picture(_twice(found, interval), console.width, None))
        else:
            _live(found, interval, console)
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:
        # Whoever read the output has seen enough. The interpreter must not try to write the rest at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except TidewireError as error:
        sys.stderr.write(f"{error}\n")
        return 2 if isinstance(error, InvalidArgument) else 1
    return 0


def _check(interval: float) -> None:
    if not INTERVAL_S_MIN <= interval <= INTERVAL_S_MAX:
        raise InvalidArgument(
            f"interval: {interval:g} is not allowed: give a number of seconds from {INTERVAL_S_MIN:g} to {INTERVAL_S_MAX:,.0f}"
        )


def _twice(found: Found, interval: float) -> _Look:
    """Two looks, since a rate is a difference. A node that gives its last answer again is looked at until it gives another."""
    first = with_rates(found.look(), None)
    second = first
    while second is first:
        time.sleep(interval)
        second = with_rates(found.look(), first)
    return second


def _live(found: Found, interval: float, console: Console) -> None:
    look = with_rates(found.look(), None)
    with Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        live.update(picture(look, console.width, console.height, _ENDS), refresh=True)
        while keys.wait(interval) not in ("q", "Q"):
            look, note = _again(found, look)
            live.update(picture(look, console.width, console.height, note), refresh=True)


def _again(found: Found, before: _Look) -> tuple[_Look, str]:
    """A node that is busy is the one that people want to see: what was seen last stays."""
    try:
        return with_rates(found.look(), before), _ENDS
    except AskTimeout as error:
        return before, f"{error}; {_ENDS}"
