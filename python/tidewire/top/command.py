"""The command ``tidewire top``: finds the node, looks at it, and shows its statistics."""

from __future__ import annotations

import json as jsonlib
import os
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from tidewire._urls import is_secured
from tidewire.errors import AskTimeout, InvalidArgument, TidewireError
from tidewire.links.tls import Tls
from tidewire.top.discovery import Endpoint, WatchedNode, choose
from tidewire.top.keys import Keys
from tidewire.top.rates import with_rates
from tidewire.top.screen import picture

INTERVAL_S_MIN, INTERVAL_S_MAX = 0.1, 3_600.0
_ENDS = "q ends"

_Look = dict[str, Any]


def top(where: Endpoint | None, node: str | None, interval: float, once: bool, json: bool) -> int:
    """Run the command, and return its exit code: 1 if there is nothing to look at or the node has
    gone, 2 for wrong usage.
    """
    try:
        _check(interval)
        console = Console(highlight=False)
        with choose(where, node).watched() as watched:
            if json:
                sys.stdout.write(jsonlib.dumps(_twice(watched, interval), indent=2) + "\n")
            elif once or not console.is_terminal or console.is_dumb_terminal:
                console.print(picture(_twice(watched, interval), console.width, None))
            else:
                _live(watched, interval, console)
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:
        # The reader of the output has closed it. The interpreter must not try to write the rest at
        # its end.
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


def _twice(watched: WatchedNode, interval: float) -> _Look:
    """Two looks, since a rate is a difference. A node that gives its last answer again is looked at
    until it gives another.
    """
    first = with_rates(watched.look(), None)
    second = first
    while second is first:
        time.sleep(interval)
        second = with_rates(watched.look(), first)
    return second


def _live(watched: WatchedNode, interval: float, console: Console) -> None:
    look = with_rates(watched.look(), None)
    with Keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        live.update(picture(look, console.width, console.height, _ENDS), refresh=True)
        while keys.wait(interval) not in ("q", "Q"):
            look, note = _again(watched, look)
            live.update(picture(look, console.width, console.height, note), refresh=True)


def _again(watched: WatchedNode, before: _Look) -> tuple[_Look, str]:
    """A node that is busy is the one that people want to see: what was seen last stays."""
    try:
        return with_rates(watched.look(), before), _ENDS
    except AskTimeout as error:
        return before, f"{error}; {_ENDS}"


def endpoint(
    url: str | None, token: str | None, files: tuple[Path | None, Path | None, Path | None]
) -> Endpoint | None:
    """Return the hub that the options name; None for the sockets of this user."""
    if url is None:
        return None
    given, cert, key = files
    ca = given or (os.environ.get("TIDEWIRE_CA") if is_secured(url) else None)
    return Endpoint(url, token, Tls(ca, cert, key) if ca or cert or key else None)
