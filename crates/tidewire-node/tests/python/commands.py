"""A hub with the data folder of the first argument, or a node at the hub of that URL. The node does
commands; each line of the input lets one go on that waits.
"""

import asyncio
import sys

import tidewire as tw


class Books(tw.Service):
    broken = True

    @tw.command(retries=0)
    async def reindex(self, shard: int, progress: tw.Progress, name: str = "all") -> dict:
        for part in (1, 2):
            await progress(part / 2, f"part {part}")
            await asyncio.to_thread(sys.stdin.readline)
        return {"shard": shard, "name": name}

    @tw.command(retries=1)
    async def close_year(self, year: int) -> str:
        if self.broken:
            Books.broken = False
            raise LookupError(f"no balance of {year - 1}")
        return f"{year} is closed"

    @tw.command(retries=0)
    async def audit(self, year: int) -> None:
        raise LookupError(f"no balance of {year - 1}")

    @tw.command
    async def waits(self) -> None:
        await asyncio.Event().wait()


async def main(place: str) -> None:
    async with tw.Node(place, name="books") if "://" in place else tw.Node(name="books", data=place) as node:
        print(place if "://" in place else node.listen("tide://127.0.0.1:0").url, flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await node.serve(Books())
        await asyncio.Event().wait()


asyncio.run(main(sys.argv[1]))
