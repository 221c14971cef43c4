"""A node of Python on links with certificates and tokens: ``secured.py join URL FOLDER`` calls a
service of Rust, ``secured.py listen URL FOLDER`` is the hub.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import tidewire as tw

TOKEN = "a long secret of python"


def say(line: str) -> None:
    print(line, flush=True)


async def join(url: str, folder: Path) -> None:
    trusted = tw.Tls(ca=folder / "ca.pem")
    async with tw.Node(url, name="python", token=TOKEN, tls=trusted) as node:
        assert await node.client("who").who() == "python as ada"
        try:
            await node.client("secret").who()
        except tw.Unauthorized:
            say("refused")
    say("done")


async def listen(url: str, folder: Path) -> None:
    own = tw.Tls(cert=folder / "127.0.0.1.pem", key=folder / "127.0.0.1.key")
    async with tw.Node(name="python") as node:

        async def greet(name: str) -> str:
            return f"hello {name}"

        listener = node.listen(url, tokens=[tw.Token(TOKEN, user="ada")], tls=own)
        await node.serve({"greet": greet}, name="greeter")
        say(listener.url)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run({"join": join, "listen": listen}[sys.argv[1]](sys.argv[2], Path(sys.argv[3])))
