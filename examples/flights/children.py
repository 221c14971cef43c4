"""The processes that the coordinator starts, and how none of them is left behind.

Each of them ends when its input closes, which it does however the coordinator ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import tidewire as tw

PROGRAM = Path(__file__).with_name("child.py")
END_S = 20.0
LOST_S = 2.0
_T = TypeVar("_T")


class ChildLost(Exception):
    """A process has ended although nobody asked it to; the message says which, and how."""


class Child:
    """One process: it says what happens in lines, and ends when its input closes."""

    def __init__(self, title: str, process: Process) -> None:
        self.title = title
        self.process = process

    @classmethod
    async def start(cls, title: str, *arguments: str) -> Child:
        """Start it, in a session of its own: Ctrl-C reaches the coordinator alone, which ends the
        others in order.
        """
        command = [sys.executable, str(PROGRAM), *arguments]
        return cls(
            title, await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, start_new_session=True)
        )

    async def line(self) -> str:
        """Return the next line that it says.

        Raises:
            ChildLost: if it ended instead.
        """
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if not line:
            raise await self.lost()
        return line.decode().strip()

    async def lost(self) -> ChildLost:
        """Wait until it ends, and return the error that says how."""
        code = await self.process.wait()
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return ChildLost(f"the process of the {self.title} ({self.process.pid}) {how}")

    async def end(self) -> str:
        """Close its input, and return the last line that it says.

        Raises:
            ChildLost: if it did not end well, or not in time.
        """
        try:
            said, _ = await asyncio.wait_for(self.process.communicate(b""), END_S)
        except TimeoutError:
            raise ChildLost(
                f"the process of the {self.title} ({self.process.pid}) did not end within {END_S:g} s"
            ) from None
        if self.process.returncode:
            raise await self.lost()
        return said.decode().strip().rpartition("\n")[2]

    async def kill(self) -> None:
        """End it at once, if it has not ended yet, and wait until it is gone."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


class Children:
    """The hub and the specialists. As a context manager: when the block is over, both are gone."""

    hub: Child
    specialists: Child
    url: str

    def __init__(self) -> None:
        self.started: list[Child] = []

    async def __aenter__(self) -> Children:
        try:
            self.hub = await self._start("hub", "hub")
            self.url = (await self.hub.line()).rpartition(" ")[2]
            self.specialists = await self._start("specialists", "specialists", self.url)
            await self.specialists.line()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for child in reversed(self.started):
            # The failure of a child has been reported by now.
            with contextlib.suppress(ChildLost):
                if child.process.returncode is None:
                    await child.end()
            await child.kill()

    async def _start(self, title: str, *arguments: str) -> Child:
        child = await Child.start(title, *arguments)
        self.started.append(child)
        print(f"{title}: process {child.process.pid}", flush=True)
        return child

    async def during(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return what some work returns.

        Raises:
            ChildLost: if one of the processes ends meanwhile, which is why the work fails too.
        """
        task = asyncio.ensure_future(work)
        ends = [asyncio.ensure_future(child.lost()) for child in self.started]
        try:
            await asyncio.wait([task, *ends], return_when=asyncio.FIRST_COMPLETED)
            if task.done() and isinstance(task.exception(), tw.TidewireError):
                # A link notices that its other side is gone before the end of the process is known.
                await asyncio.wait(ends, timeout=LOST_S, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                if end.done():
                    raise end.result()
            return await task
        finally:
            await _cancelled(task, *ends)


async def _cancelled(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
