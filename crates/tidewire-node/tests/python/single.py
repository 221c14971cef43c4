"""A node of Python with an instance of a service of which one is active at a time."""

import asyncio
import sys

import tidewire as tw


class Matching(tw.Service):
    @tw.method
    async def who(self, greeting: str | None = None) -> tuple[str, int, str, str]:
        return "python", tw.context().fence, greeting or "", ""


async def main(url: str) -> None:
    async with tw.Node(url, name=f"python-{id(url)}") as node:
        single = await node.serve(Matching(), name="matching", active="single", lease=600.0)
        (who, *_) = await node.client("matching").who()
        if who != "python":
            print(f"stands by, and the call goes to {who}", flush=True)
        await single.active()
        print("active", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        print("done", flush=True)


asyncio.run(main(sys.argv[1]))
