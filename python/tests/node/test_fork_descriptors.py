"""Children that are forked keep no socket, port or lock of a folder of their parent."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import tidewire as tw
from link_processes import PATIENCE_S

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def _sleep(reader: Connection) -> None:
    """A child that uses nothing of its parent, and ends with it or when told."""
    reader.poll(PATIENCE_S)


@pytest.mark.promise("P17.110")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("scheme", ["tide", "tide+unix", "http"])
def test_a_parent_opens_its_folder_and_its_port_again_while_a_child_lives(tmp_path: Path, scheme: str) -> None:
    forks = multiprocessing.get_context("fork")
    reader, writer = forks.Pipe(duplex=False)
    url = f"tide+unix://{tmp_path}/hub.sock" if scheme == "tide+unix" else f"{scheme}://127.0.0.1:0"
    with tw.Node(name="first", data=tmp_path / "data") as node:
        url = node.listen(url).url
        child = forks.Process(target=_sleep, args=(reader,))
        child.start()
    try:
        with tw.Node(name="second", data=tmp_path / "data") as node:
            assert node.listen(url).url == url
        assert child.is_alive()
    finally:
        writer.send(None)
        child.join(PATIENCE_S)
    assert child.exitcode == 0


_PROVIDER = """
import asyncio, multiprocessing, sys
import tidewire as tw

def sleep(reader):
    reader.poll(60)

class Desk:
    async def hold(self):
        print("held", flush=True)
        await asyncio.Event().wait()

async def main():
    forks = multiprocessing.get_context("fork")
    reader, writer = forks.Pipe(duplex=False)
    async with tw.Node(sys.argv[1], name="server") as node:
        await node.serve(Desk(), name="desk")
        child = forks.Process(target=sleep, args=(reader,))
        child.start()
        print(child.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.promise("P17.110")
@pytest.mark.parametrize("scheme", ["tide", "tide+unix"])
def test_calls_of_a_killed_provider_fail_at_once_while_its_child_lives(tmp_path: Path, scheme: str) -> None:
    async def story() -> float:
        # A heartbeat that finds the loss only much later.
        settings = {"links": {"link_heartbeat_ms": 20_000}}
        async with tw.Node(name="hub", config=settings) as hub:
            url = hub.listen(f"tide+unix://{tmp_path}/hub.sock" if scheme == "tide+unix" else "tide://127.0.0.1:0").url
            provider = await asyncio.to_thread(
                subprocess.Popen,
                [sys.executable, "-c", textwrap.dedent(_PROVIDER), url],
                stdout=subprocess.PIPE,
                text=True,
            )
            assert provider.stdout is not None
            child = int(await asyncio.to_thread(provider.stdout.readline))
            try:
                call = asyncio.ensure_future(hub.client("desk").with_(timeout=15.0).hold())
                assert await asyncio.to_thread(provider.stdout.readline) == "held\n"
                provider.kill()
                began = time.monotonic()
                with pytest.raises(tw.LinkLost):
                    await call
                took_s = time.monotonic() - began
                # The child lives: a signal of nothing finds it.
                os.kill(child, 0)
                return took_s
            finally:
                os.kill(child, signal.SIGKILL)
                provider.kill()
                provider.wait()
                provider.stdout.close()

    assert asyncio.run(story()) < 5.0
