"""Waits for changes of the records of commands, which share a watch."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import tidewire as tw
from home_support import PATIENCE, story
from tidewire.streams.command_watch import CommandWatch
from tidewire.streams.home import Home


class Counted:
    """A home, and how often each of its calls was made."""

    def __init__(self, home: Home) -> None:
        self.home, self.counts = home, Counter[str]()
        self.waits = asyncio.Event()

    def call(self, name: str, *args: Any) -> Awaitable[Any]:
        self.counts[name] += 1
        if name == "watch":
            self.waits.set()
        return self.home.call(name, *args)


@story
async def test_all_waits_share_a_watch(tmp_path: Path) -> None:
    async with tw.Node(data=tmp_path) as node:
        bucket = await node.kv("records")
        home = Counted(node._home())
        watch = CommandWatch(home, "records")  # type: ignore[arg-type]
        revisions = [await bucket.put(f"run-{number}.state", "queued") for number in range(50)]
        waiting = [
            asyncio.ensure_future(watch.next(f"run-{number}", revision, round(PATIENCE * 1_000_000)))
            for number, revision in enumerate(revisions)
            for _ in range(2)
        ]
        await asyncio.wait_for(home.waits.wait(), PATIENCE)
        for number in reversed(range(50)):
            await bucket.put(f"run-{number}.progress", "is no change of the record")
            revisions[number] = await bucket.put(f"run-{number}.state", "over")
        told = await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE)
        for at, (changes, after) in enumerate(told):
            assert [(key, revision) for key, _, revision, _ in changes] == [
                (f"run-{at // 2}.state", revisions[at // 2])
            ]
            assert after == revisions[at // 2]
        # One watch is asked again after each answer, of which there is one for each change at most.
        assert home.counts["watch"] <= 2 + 50, home.counts
