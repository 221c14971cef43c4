"""The watch that all who wait for commands in one process share: in a folder, at a hub and on
NATS.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
import tidewire as tw
from home_support import PATIENCE, every_home, nodes, story
from tidewire.streams.command_watch import CommandWatch
from tidewire.streams.home import Home

WAIT_US = round(PATIENCE * 1_000_000)


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


@every_home
@story
async def test_all_who_wait_share_a_watch_and_each_is_told_of_its_own(kind: str, tmp_path: Path) -> None:
    async with nodes(kind, tmp_path, 1) as (node,):
        bucket = await node.kv("records")
        home = Counted(node._home())
        watch = CommandWatch(home, "records")  # type: ignore[arg-type]
        revisions = [await bucket.put(f"run-{number}.state", "queued") for number in range(50)]
        waiting = [
            asyncio.ensure_future(watch.next(f"run-{number}", revision, WAIT_US))
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


@every_home
@story
async def test_what_has_changed_before_it_was_waited_for_is_told_at_once_and_nothing_ends_a_wait(
    kind: str, tmp_path: Path
) -> None:
    async with nodes(kind, tmp_path, 1) as (node,):
        bucket = await node.kv("records")
        watch = CommandWatch(node._home(), "records")
        first = await bucket.put("run.state", "queued")
        [change], after = await asyncio.wait_for(watch.next("run", 0, WAIT_US), PATIENCE)
        assert (change[0], change[2], after) == ("run.state", first, first)
        assert await watch.next("run", first, 1_000) == ([], first), "its time was over"
        [gone], _ = await asyncio.wait_for(watch.next("none", 7, WAIT_US), PATIENCE)
        assert gone == ("none.state", None, 7, 0), "there is no such record"


@story
async def test_an_error_of_the_watch_ends_every_wait(tmp_path: Path) -> None:
    async with nodes("folder", tmp_path, 1) as (node,):
        bucket = await node.kv("records")
        home = Counted(node._home())
        watch = CommandWatch(home, "records")  # type: ignore[arg-type]
        revisions = [await bucket.put(f"run-{number}.state", "queued") for number in range(5)]
        waiting = [
            asyncio.ensure_future(watch.next(f"run-{number}", revision, WAIT_US))
            for number, revision in enumerate(revisions)
        ]
        await asyncio.wait_for(home.waits.wait(), PATIENCE)
        await bucket.purge()
        for one in waiting:
            with pytest.raises(tw.NotFound):
                await asyncio.wait_for(one, PATIENCE)
