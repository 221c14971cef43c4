"""A node that echoes: `python http_service.py HUB`."""

import asyncio
import sys
from typing import Any

import tidewire as tw


async def echo(value: Any) -> Any:
    """Gives back what was given."""
    return value


async def main() -> None:
    """Serves until it is ended."""
    async with tw.Node(sys.argv[1], name="service") as node:
        await node.serve({"echo": echo}, name="bench", visibility="public")
        print("ready", flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
