"""Hubs with data folders: each line of the input, a folder and a URL, makes one, which says where
it listens. They end with the input.
"""

import asyncio
import contextlib
import sys

import tidewire as tw


async def main() -> None:
    async with contextlib.AsyncExitStack() as hubs:
        number = 0
        while line := await asyncio.to_thread(sys.stdin.readline):
            folder, url = line.split()
            number += 1
            hub = await hubs.enter_async_context(tw.Node(name=f"hub-{number}", data=folder))
            print((await hub.listen(url)).url, flush=True)


asyncio.run(main())
