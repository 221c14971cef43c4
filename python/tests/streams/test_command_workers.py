"""Loss of the process that is at work on a command: another one takes it over."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tidewire as tw
from home_support import PATIENCE, nats_server, story

WORKER = """
import asyncio, sys
import tidewire as tw

class Mill(tw.Service):
    @tw.command(retries=int(sys.argv[2]))
    async def grind(self, number: int, progress: tw.Progress) -> list[int]:
        await progress(0.5, f"attempt {progress.attempt}")
        print(progress.attempt, flush=True)
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


def _worker(where: str, retries: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WORKER, where, str(retries)], stdout=subprocess.PIPE, text=True)


class Mill(tw.Service):
    @tw.command
    async def grind(self, number: int, progress: tw.Progress) -> list[int]:
        return [number, progress.attempt]


async def _said(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    return await asyncio.wait_for(asyncio.to_thread(worker.stdout.readline), PATIENCE)


async def _killed(node: tw.Node, where: str) -> None:
    """A worker is killed in the middle of its command, and another takes it over; one that kills
    each worker has failed.
    """
    workers = [_worker(where, 3)]
    try:
        run = await node.client(Mill).grind.start(5)
        assert await _said(workers[0]) == "1\n"
        workers[0].send_signal(signal.SIGKILL)
        workers.append(_worker(where, 3))
        assert await run.result(PATIENCE) == [5, 2]
        assert await _said(workers[1]) == "2\n"
        workers[1].send_signal(signal.SIGKILL)
        workers.append(_worker(where, 0))
        lost = await node.client(Mill).grind.start(6)
        assert await _said(workers[2]) == "1\n"
        workers[2].send_signal(signal.SIGKILL)
        workers.append(_worker(where, 0))
        with pytest.raises(tw.WorkerLost, match="in attempt 1, the last one"):
            await lost.result(PATIENCE)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


@pytest.mark.promise("P17.64", "P17.66")
@story
async def test_a_command_whose_worker_is_killed_is_taken_over_at_a_hub(tidewire_streams: tw.Node) -> None:
    await _killed(tidewire_streams, tidewire_streams.listen("tide://127.0.0.1:0").url)


@story
async def test_a_command_whose_worker_is_killed_is_taken_over_on_nats() -> None:
    with nats_server() as url:
        async with tw.Node(url) as node:
            await _killed(node, url)


@pytest.mark.promise("P17.63", "P17.64")
@story
async def test_a_worker_that_stood_still_learns_that_another_has_its_command(tidewire_streams: tw.Node) -> None:
    url = tidewire_streams.listen("tide://127.0.0.1:0").url
    workers = [_worker(url, 3)]
    try:
        run = await tidewire_streams.client(Mill).grind.start(5)
        assert await _said(workers[0]) == "1\n"
        workers[0].send_signal(signal.SIGSTOP)
        workers.append(_worker(url, 3))
        assert await run.result(PATIENCE) == [5, 2]
        workers[0].send_signal(signal.SIGCONT)
        assert await _said(workers[0]) == "interrupted\n"
        assert await run.result(PATIENCE) == [5, 2]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


@story
async def test_a_command_survives_the_process_that_has_the_folder(tmp_path: Path) -> None:
    async with tw.Node(data=tmp_path) as node:
        await node.client(Mill).grind.start(5, id="five")
    worker = _worker(str(tmp_path), 3)
    try:
        assert await _said(worker) == "1\n"
    finally:
        worker.kill()
        worker.wait()
    async with tw.Node(data=tmp_path) as node:
        run = node.command("five")
        assert (await run.info()).stage == "running", "as its worker has left it"
        await node.serve(Mill())
        assert await run.result(PATIENCE) == [5, 2] and (await run.info()).attempt == 2
