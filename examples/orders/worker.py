"""A process of the orders: ``worker.py URL billing|matching|books`` serves one of them until it is
told to end.
"""

from __future__ import annotations

import os
import sys

import tidewire as tw
from services import Billing, Books, Matching, streams


async def main(url: str, role: str) -> None:
    """Serve, and say so."""
    async with tw.Node(url, name=f"{role}-{os.getpid()}") as node:
        made = await streams(node)
        if role == "matching":
            served = await node.serve(Matching(made["matches"]), active="single")
            print("standing by", flush=True)
            fence = await served.active()
            print(f"fence {fence}", flush=True)
        elif role == "billing":
            await node.serve(Billing(await node.kv("prices"), made["bills"]))
            print("serving", flush=True)
        else:
            await node.serve(Books(made["bills"], await node.kv("owed")))
            print("serving", flush=True)
        await node.run_forever()


tw.run(main(*sys.argv[1:]))
