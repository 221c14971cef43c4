"""``tidewire command``, as processes, at a hub whose service does the commands."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import tidewire as tw
from command_support import run_all, said
from home_support import PATIENCE


class Books(tw.Service):
    def __init__(self) -> None:
        self.broken = True
        self.inside, self.going_on = asyncio.Event(), asyncio.Event()

    @tw.command(retries=0)
    async def close_year(self, year: int, progress: tw.Progress) -> int:
        await progress(0.5, "half")
        self.inside.set()
        await self.going_on.wait()
        if self.broken:
            raise LookupError(f"no balance of {year}")
        return year + 1

    @tw.method
    def years(self) -> int:
        return 1


async def tidewire(*args: object, json_wanted: bool = True) -> tuple[int, Any]:
    """Run ``tidewire command``: its exit code, and what it printed."""
    [ended] = await asyncio.to_thread(run_all, ["command", *map(str, args), *(["--json"] if json_wanted else [])])
    return said(ended) if json_wanted else (ended.returncode, ended.stdout or ended.stderr)


async def test_commands_are_listed_shown_watched_tried_again_and_cancelled(tidewire_streams: tw.Node) -> None:
    at = ("--at", tidewire_streams.listen("tide://127.0.0.1:0").url)
    books = Books()
    await tidewire_streams.serve(books)
    by_name = tidewire_streams.client("books").close_year
    await by_name.start(2026, id="one", key="y")
    assert await tidewire("start", "books.close_year", "year=2027", "--id", "two", *at) == (0, {"id": "two"})
    code, told = await tidewire("start", "books.close_yaer", 1, *at)
    assert (code, told["error"]["code"]) == (1, "no_such_target") and "'close_year'" in told["error"]["message"]
    assert "give --key" in str(await tidewire("start", "books.close_year", "key=5", *at))
    [command] = (await tidewire_streams.services())[0].commands
    assert command.parameters["properties"] == {"year": {"type": "integer"}} and command.progress
    with pytest.raises(tw.InvalidArgument, match="it is a command: start it"):
        by_name(2026)
    with pytest.raises(tw.InvalidArgument, match="it is a method: call it"):
        await tidewire_streams.client("books").years.start()
    await asyncio.wait_for(books.inside.wait(), PATIENCE)
    code, listed = await tidewire("ls", *at)
    assert (code, [(one["id"], one["stage"], one["key"]) for one in listed]) == (
        0,
        [("one", "running", "y"), ("two", "queued", None)],
    )
    running = (0, "one  books.close_year [y]  running 50%  half\n")
    assert await tidewire("ls", "--stage", "running", *at, json_wanted=False) == running
    assert await tidewire("cancel", "two", *at) == (0, {"cancelled": True, "stage": "cancelled"})
    assert (await tidewire("cancel", "two", *at))[0] == 1
    watching = asyncio.ensure_future(tidewire("watch", "one", *at))
    assert await tidewire("retry", "one", *at) == (1, {"queued": False, "stage": "running"})
    books.going_on.set()
    code, lines = await watching
    last = lines[-1] if isinstance(lines, list) else lines
    assert (code, last["stage"], last["error"]) == (1, "failed", "LookupError: no balance of 2026")
    code, text = await tidewire("show", "one", *at, json_wanted=False)
    assert code == 0 and "attempt 1 by" in text and "in close_year" in text and "LookupError" in text
    books.broken = False
    assert (await tidewire("retry", "one", *at))[1]["queued"]
    assert (await tidewire("watch", "one", *at))[0] == 0
    _, lines = await tidewire("start", "books.close_year", 2027, "--id", "three", "--wait", *at)
    assert lines[-1] == {"result": 2028}
    code, shown = await tidewire("show", "one", *at)
    assert (code, shown["stage"], shown["result"]) == (0, "succeeded", 2027)
    code, told = await tidewire("show", "nobody", *at)
    assert (code, told["error"]["code"]) == (1, "not_found")
    code, told = await tidewire("ls", "--stage", "done", *at)
    assert (code, told["error"]["code"]) == (2, "invalid_argument")
