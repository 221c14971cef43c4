"""The clock of a hub's machine is set back by an hour and forward again, while nodes are joined and
some guess tokens.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path

import tidewire as tw
from clock_support import ProcessClock
from link_processes import Program

from attacks.target import Target

ITEM = 14
MEMORY_MIB = 32
_JUMPS = 6
_SLOWEST_S = 2.0


def attack(target: Target) -> None:
    """Only stay: the clock is that of a hub of ``look``, as nobody can set that of another
    program.
    """
    link = target.joined()
    while link.receive() is not None:
        pass


class Echo(tw.Service):
    @tw.method
    async def say(self, number: int) -> int:
        return number


def look(_: Target) -> list[str]:
    if not ProcessClock.possible():
        return []
    with tempfile.TemporaryDirectory(prefix="tw-", dir="/tmp") as place:
        clock = ProcessClock(Path(place))
        listen = "tide://127.0.0.1:0"
        hub = Program("-m", "tidewire", "up", "--json", "--listen", listen, env=clock.environment)
        try:
            return asyncio.run(_look(json.loads(hub.line())["urls"][0], clock))
        finally:
            hub.kill()


async def _look(url: str, clock: ProcessClock) -> list[str]:
    problems = []
    async with tw.Node(url, name="server") as server, tw.Node(url, name="caller") as caller:
        await server.serve(Echo(), name="echo", instance="real")
        echo, links = caller.client("echo"), server.statistics()["links"]
        for jump in range(_JUMPS):
            (clock.set_right if jump % 2 else clock.set_back)()
            began = time.monotonic()
            if [await echo.say(number) for number in range(20)] != list(range(20)):
                problems.append("a call was answered otherwise")
            async with tw.Node(url, name=f"late-{jump}") as late:
                await late.client("echo").say(jump)
            if time.monotonic() - began > _SLOWEST_S:
                problems.append(f"jump {jump}: calls took {time.monotonic() - began:.1f} s")
        after = server.statistics()["links"]
        if (links.get("lost"), links.get("joins")) != (after.get("lost"), after.get("joins")):
            problems.append(f"links were lost: {links} before, {after} after")
    return problems
