"""A node of Python with an instance of a service of which one is active at a time."""

import asyncio
import os
import signal
import sys

import tidewire as tw


class Matching(tw.Service):
    @tw.method
    async def who(self, greeting: str | None = None) -> tuple[str, int, str, str]:
        return "python", tw.context().fence, greeting or "", ""


async def main(url: str, lease: float = 600.0) -> None:
    async with tw.Node(url, name=f"python-{id(url)}") as node:
        single = await node.serve(Matching(), name="matching", active="single", lease=lease)
        (who, *_) = await node.client("matching").who()
        if who != "python":
            print(f"stands by, and the call goes to {who}", flush=True)
        await single.active()
        print("active", flush=True)
        if await asyncio.to_thread(sys.stdin.readline) == "stand still\n":
            os.kill(os.getpid(), signal.SIGSTOP)
        print("done", flush=True)


asyncio.run(main(sys.argv[1], *map(float, sys.argv[2:])))
