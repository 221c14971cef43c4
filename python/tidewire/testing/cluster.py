"""Processes of a test: a hub, and the programs that join it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic

from tidewire.testing.link import Link

_SERVER = """
import os, pkgutil, sys, tidewire as tw
async def main():
    async with tw.Node(os.environ["TIDEWIRE_URL"], join_timeout=30) as node:
        await node.serve(pkgutil.resolve_name(sys.argv[1])())
        print("serves", sys.argv[1], flush=True)
        await node.run_forever()
tw.run(main())
"""


class Process:
    """A Python process of a cluster. The end of the test kills it.

    Attributes:
        pid: Process id; a restart changes it.
        printed: Output on stdout and stderr that ``expect`` has not consumed.
        link: Link of the process to the hub, which a test can disturb; the hub has none.
    """

    link: Link

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self._command, self._environment = [sys.executable, *arguments], {**os.environ, **environment}
        self._start()

    def _start(self) -> None:
        self.printed = ""
        self._process = subprocess.Popen(
            self._command, env=self._environment, stdin=subprocess.DEVNULL, stdout=-1, stderr=subprocess.STDOUT
        )
        self.pid = self._process.pid

    def expect(self, text: str, timeout: float = 30.0) -> str:
        """Wait until the process prints or logs a line with this text, and return the line.

        Args:
            text: Part of the line. Earlier lines are consumed.
            timeout: Timeout in seconds.

        Raises:
            AssertionError: if the process ends first, or the timeout passes; the message has the
                output.
        """
        assert self._process.stdout is not None
        end = monotonic() + timeout
        while text not in self.printed.rpartition("\n")[0]:
            ready = select.select([self._process.stdout], [], [], max(0.0, end - monotonic()))[0]
            output = os.read(self._process.stdout.fileno(), 65_536) if ready else b""
            assert output, f"{text!r} {'never came' if ready else f'did not come in {timeout} s'}, but {self.printed!r}"
            self.printed += output.decode(errors="replace")
        before, _, after = self.printed.partition(text)
        rest, _, self.printed = after.partition("\n")
        return before.rpartition("\n")[2] + text + rest

    def kill(self) -> None:
        """Kill the process (SIGKILL), and wait for its end."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Suspend the process (SIGSTOP), and wait until it has stopped. Its sockets stay open."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def cont(self) -> None:
        """Resume a suspended process (SIGCONT)."""
        self._process.send_signal(signal.SIGCONT)

    def end(self, timeout: float = 30.0) -> int:
        """Terminate the process (SIGTERM), and return its exit code.

        Raises:
            subprocess.TimeoutExpired: if it has not ended within ``timeout`` seconds.
        """
        self._process.terminate()
        return self._process.wait(timeout)

    def restart(self) -> None:
        """Kill the process if it still runs, and start its command again."""
        self.close()
        self._start()

    def close(self) -> None:
        """Kill the process, and close its output."""
        self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Cluster:
    """A hub in its own process, and the processes that a test starts beside it.

    Attributes:
        hub: Process of the hub. After a restart it has the same URL and the same streams.
        url: URL of the hub. Each process of the cluster connects through its own link, whose URL
            is in ``TIDEWIRE_URL``.

    Raises:
        AssertionError: if the hub does not start; the message has its output.
    """

    def __init__(self, folder: Path) -> None:
        self._environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONUNBUFFERED": "1"}
        self._members: list[Process | Link] = []
        options = ("--json", "--log-level", "warning", "--name", "hub", "--data", str(folder), "--listen")
        self.hub = Process(["-m", "tidewire", "up", *options, "tide://127.0.0.1:0"], self._environment)
        try:
            [self.url] = json.loads(self.hub.expect('"urls"'))["urls"]
        except BaseException:
            self.close()
            raise
        self.hub._command[-1] = self.url

    def run(self, *arguments: str, **environment: str) -> Process:
        """Start Python with these arguments: ``cluster.run("worker.py", LEVEL="debug")``."""
        link = self.link()
        process = Process(list(arguments), {**self._environment, "TIDEWIRE_URL": link.url, **environment})
        process.link = link
        self._members.append(process)
        return process

    def link(self) -> Link:
        """Add a link to the hub for a node of the test: ``tw.Node(link.url)``."""
        link = Link(self.url)
        self._members.append(link)
        return link

    def serve(self, service: str, **environment: str) -> Process:
        """Start a process that serves a class, ``"module:Class"``, and wait until it is served.

        Raises:
            AssertionError: if the process ends first; the message has its output.
        """
        process = self.run("-c", _SERVER, service, **environment)
        process.expect(f"serves {service}")
        return process

    def close(self) -> None:
        """Kill all processes, and close all links."""
        for member in [*self._members, self.hub]:
            member.close()
