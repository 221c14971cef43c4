"""FastAPI on uvicorn, whose handler calls the service of a node: `python http_fastapi.py HUB
PORT`.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import tidewire as tw
import uvicorn
from fastapi import FastAPI, Request

node: tw.Node


@asynccontextmanager
async def joined(_: FastAPI) -> AsyncIterator[None]:
    """A node for as long as the program runs."""
    global node
    async with tw.Node(sys.argv[1], name="fastapi") as node:
        yield


app = FastAPI(lifespan=joined)


@app.post("/echo")
async def echo(request: Request) -> Any:
    """Passes a value on to the service."""
    (value,) = await request.json()
    return await node.client("bench").echo(value)


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning", access_log=False)
