"""``tidewire agent``, as processes, on a folder whose agents do not run."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import tidewire as tw
from home_support import PATIENCE, story
from test_durable_agents import Deposit, Ledger, over, with_agent


async def tidewire(*args: object, json_wanted: bool = True) -> tuple[int, Any]:
    """Run ``tidewire agent``: its exit code, and what it printed."""
    options = ["--json"] if json_wanted else []
    ran = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tidewire", "agent", *map(str, args), *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(ran.communicate(), PATIENCE)
    assert ran.returncode is not None
    text = (out or err).decode()
    return ran.returncode, json.loads(text) if json_wanted and text.startswith(("{", "[")) else text


@story
async def test_durable_agents_are_listed_shown_and_their_dead_letters_requeued_and_dropped(tmp_path: Path) -> None:
    at = ("--at", tmp_path)
    assert await tidewire("ls", *at, json_wanted=False) == (0, "no durable agents\n")
    async with tw.Node(data=tmp_path, name="shop") as node:
        desk = node.agent(lambda payload: None, id="desk")
        with_agent(node, Ledger(), "ledger", durable="state")
        for cents in (5, -1, -2):
            await desk.send(Deposit("anna", cents), to="ledger", durable=True)
        await over(node, "ledger", 3)
    code, [listed] = await tidewire("ls", *at)
    assert (code, listed["id"], listed["handled"], listed["dead"], listed["lag"]) == (0, "ledger", 1, 2, 0)
    code, shown = await tidewire("show", "ledger", *at)
    assert (code, shown["holder"], shown["state"]) == (0, "shop", {"cents": {"anna": 5}, "seen": 1})
    assert [(one["stage"], one["sender"]) for one in shown["messages"]] == [
        ("over", "desk"),
        ("dead", "desk"),
        ("dead", "desk"),
    ]
    assert [letter["error"] for letter in shown["dead_letters"]] == ["ValueError: -1 cents", "ValueError: -2 cents"]
    code, text = await tidewire("show", "ledger", *at, json_wanted=False)
    assert code == 0 and "dead letter 2, failed after 1 attempts: ValueError: -1 cents" in text, text
    assert await tidewire("requeue", "ledger", 2, *at) == (0, {"requeued": 1})
    assert await tidewire("drop", "ledger", 3, *at) == (0, {"dropped": 1})
    assert await tidewire("requeue", "ledger", *at) == (1, {"requeued": 0})
    code, shown = await tidewire("show", "ledger", *at)
    assert (shown["lag"], shown["dead"], shown["messages"][-1]["stage"]) == (1, 0, "waiting")
    code, text = await tidewire("show", "nobody", *at)
    assert code == 1 and "no durable agent with this id" in str(text), (code, text)
