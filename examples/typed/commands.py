"""Types of commands: what mypy and pyright know of what starts them, and of their results. CI runs
both on this program.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from typing import assert_type

import tidewire as tw


@dataclass
class Report:
    shard: int


class Books(tw.Service):
    @tw.command(timeout=60, exclusive="key")
    async def reindex(self, shard: int, progress: tw.Progress) -> Report:
        await progress(0.5, "half")
        return Report(shard)

    @tw.command
    def count(self, rows: list[int]) -> int:
        return sum(rows)


async def start(node: tw.Node, books: tw.Client[Books]) -> None:
    run = await books.reindex.start(7, key="shard-7", priority="high")
    assert_type(run, tw.CommandRun[Report])
    async for report in run.progress():
        assert_type(report, tw.CommandProgress)
    assert_type(await run.result(timeout=30), Report)
    assert_type(await (await books.count.start([1, 2])).result(), int)
    assert_type(await node.command(run.id).info(), tw.CommandInfo)
    assert_type(Books().count([1, 2]), int)


async def refused(books: tw.Client[Books]) -> None:
    """Errors that type checkers find. The function is not run."""
    await books.count.start([1], priority="soon")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    books.count([1])  # type: ignore[operator]  # pyright: ignore[reportCallIssue]
    number: str = await (await books.count.start([1])).result()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    assert number


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with tw.Node(data=folder) as node:
            await node.serve(Books())
            await start(node, node.client(Books))


if __name__ == "__main__":
    asyncio.run(main())
    print("commands: types as they should be")
