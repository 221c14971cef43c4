"""A process of the clerk's team: ``worker.py FOLDER-OR-URL CLAIMS PAUSE-AT NAME...`` has these
agents until it is told to end.
"""

from __future__ import annotations

import asyncio
import json
import sys

import tidewire as tw
from team import Archivist, Assessor, Clerk, Counter, Open


def say(line: str) -> None:
    """Tell the program that has started this process."""
    print(line, flush=True)


async def main(place: str, claims: str, pause_at: str, *names: str) -> None:
    """Have the agents, and tell the answers once all are there."""
    done = asyncio.Event()

    def heard(line: str) -> None:
        if line == "done":
            done.set()
        else:
            say(line)

    made = {
        "counter": lambda: Counter(int(pause_at), heard),
        "clerk": Clerk,
        "archivist": Archivist,
        "assessor": Assessor,
    }
    node = tw.Node(place) if "://" in place else tw.Node(data=place)
    async with node:
        agents = [node.agent(made[name](), id=name, durable="state") for name in names]
        fences = [await agent.active() for agent in agents]
        say(f"{', '.join(names)}: fence {max(fences)}")
        if "counter" in names:
            customers = node.agent(lambda payload: None, id="customers")
            await customers.send(Open(int(claims)), to="counter", durable=True)
            await done.wait()
            answers = await customers.request("the answers", to="counter")
            say(json.dumps({str(number): text for number, text in answers.items()}))
        await node.run_forever()


tw.run(main(*sys.argv[1:]))
