"""A hub with a gateway. After a line of input it prints what `tidewire top` and the metrics of the
hub show of the nodes that have joined.
"""

import asyncio
import os
import sys
import urllib.request

import tidewire as tw


def metrics(gateway: str) -> str:
    with urllib.request.urlopen(f"{gateway}/metrics") as response:
        return response.read().decode()


async def main() -> None:
    async with tw.Node(name="hub") as hub:
        url = hub.listen("tide://127.0.0.1:0").url
        gateway = hub.listen("http://127.0.0.1:0").url
        print(url, flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        command = [sys.executable, "-m", "tidewire", "top", "--once", "--node", "seller", "--url", url]
        top = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, env={**os.environ, "COLUMNS": "140"}
        )
        out, _ = await top.communicate()
        print(out.decode(), flush=True)
        print(await asyncio.to_thread(metrics, gateway), flush=True)
        print("end", flush=True)


asyncio.run(main())
