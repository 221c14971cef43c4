"""A node of Python that shares the events of a consumer with others, and tells which of them it has
handled.
"""

import asyncio
import json
import sys

import tidewire as tw


class Billing(tw.Service):
    def __init__(self) -> None:
        self.handled: list[int] = []

    @tw.on("orders.*", durable="billing")
    async def on_order(self, number: int) -> None:
        self.handled.append(number)


async def main(url: str) -> None:
    async with tw.Node(url, name="python") as node:
        billing = Billing()
        await node.serve(billing)
        print("serves", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        print(json.dumps(billing.handled), flush=True)


asyncio.run(main(sys.argv[1]))
