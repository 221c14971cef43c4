"""Loss of the process that is at work on a command: another one takes it over."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import tidewire as tw
from home_support import PATIENCE
from link_processes import Programs
from link_stories import said

WORKER = """
import asyncio, sys
import tidewire as tw

class Mill(tw.Service):
    @tw.command(retries=int(sys.argv[2]))
    async def grind(self, number: int, progress: tw.Progress) -> list[int]:
        await progress(0.5, f"attempt {progress.attempt}")
        print("attempt", progress.attempt, flush=True)
        if progress.attempt < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                print("interrupted", flush=True)
                raise
        return [number, progress.attempt]

async def main():
    where = {"url": sys.argv[1]} if "://" in sys.argv[1] else {"data": sys.argv[1]}
    async with tw.Node(**where) as node:
        await node.serve(Mill())
        await asyncio.Event().wait()

asyncio.run(main())
"""


class Mill(tw.Service):
    @tw.command
    async def grind(self, number: int, progress: tw.Progress) -> list[int]:
        return [number, progress.attempt]


async def _killed(started: Programs, node: tw.Node, where: str) -> None:
    """A worker is killed in the middle of its command, and another takes it over; one that kills
    each worker has failed.
    """
    first = started.run("-c", WORKER, where, "3")
    run = await node.client(Mill).grind.start(5)
    assert await said(first, "attempt") == "1"
    first.kill()
    second = started.run("-c", WORKER, where, "3")
    assert await run.result(PATIENCE) == [5, 2]
    assert await said(second, "attempt") == "2"
    second.kill()
    third = started.run("-c", WORKER, where, "0")
    lost = await node.client(Mill).grind.start(6)
    assert await said(third, "attempt") == "1"
    third.kill()
    started.run("-c", WORKER, where, "0")
    with pytest.raises(tw.WorkerLost, match="in attempt 1, the last one"):
        await lost.result(PATIENCE)


@pytest.mark.promise("P17.64", "P17.66")
async def test_a_command_whose_worker_is_killed_is_taken_over_at_a_hub(
    started: Programs, tidewire_streams: tw.Node
) -> None:
    await _killed(started, tidewire_streams, tidewire_streams.listen("tide://127.0.0.1:0").url)


async def test_a_command_whose_worker_is_killed_is_taken_over_on_nats(nats_url: str, started: Programs) -> None:
    async with tw.Node(nats_url) as node:
        await _killed(started, node, nats_url)


@pytest.mark.promise("P17.63", "P17.64")
async def test_a_worker_that_stood_still_learns_that_another_has_its_command(
    started: Programs, tidewire_streams: tw.Node
) -> None:
    url = tidewire_streams.listen("tide://127.0.0.1:0").url
    frozen = started.run("-c", WORKER, url, "3")
    run = await tidewire_streams.client(Mill).grind.start(5)
    assert await said(frozen, "attempt") == "1"
    frozen.halt()
    started.run("-c", WORKER, url, "3")
    assert await run.result(PATIENCE) == [5, 2]
    frozen.signal(signal.SIGCONT)
    await said(frozen, "interrupted")
    assert await run.result(PATIENCE) == [5, 2]


async def test_a_command_survives_the_process_that_has_the_folder(started: Programs, tmp_path: Path) -> None:
    async with tw.Node(data=tmp_path) as node:
        await node.client(Mill).grind.start(5, id="five")
    worker = started.run("-c", WORKER, str(tmp_path), "3")
    assert await said(worker, "attempt") == "1"
    worker.kill()
    async with tw.Node(data=tmp_path) as node:
        run = node.command("five")
        assert (await run.info()).stage == "running", "as its worker has left it"
        await node.serve(Mill())
        assert await run.result(PATIENCE) == [5, 2] and (await run.info()).attempt == 2
