"""How a story about links holds the processes that it starts, and hears what they say."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

PATIENCE_S = 30.0
QUIET = ("--log-level", "warning", "--log-format", "text")
LINES = 100_000
"""Lines of a program that wait to be heard. One that says more is held."""

PROGRAMS = str(Path(__file__).with_name("link_programs.py"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def ends(pid: int) -> bool:
    """Wait for the end of a process that need not be a child. False if it goes on."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], PATIENCE_S)[0])
    finally:
        os.close(pidfd)


class Program:
    """A process that says what happens in it."""

    def __init__(self, *arguments: str, env: dict[str, str] | None = None, before: Sequence[str] = ()) -> None:
        self.process = subprocess.Popen(
            [*before, sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self._lines: queue.Queue[str | None] = queue.Queue(LINES)
        self.log: queue.Queue[str | None] = queue.Queue(LINES)
        self._readers = [
            threading.Thread(target=_pass_on, args=(stream, lines), daemon=True)
            for stream, lines in ((self.process.stdout, self._lines), (self.process.stderr, self.log))
        ]
        for reader in self._readers:
            reader.start()

    def expect(self, word: str, patience_s: float = PATIENCE_S) -> str:
        """Wait for a line that begins with a word, and return the rest of it. Lines before it are
        passed over.
        """
        passed: list[str] = []
        while True:
            line = self._line(word, passed, patience_s)
            if line.split(" ", 1)[0] == word:
                return line.partition(" ")[2]
            passed.append(line)

    def line(self) -> str:
        """Wait for the next line, and return it."""
        return self._line("line", [], PATIENCE_S)

    def _line(self, word: str, passed: list[str], patience_s: float) -> str:
        try:
            line = self._lines.get(timeout=patience_s)
        except queue.Empty:
            raise AssertionError(f"no {word!r} came, but {passed}") from None
        assert line is not None, f"it ended before it said {word!r}; it said {passed} and logged {self.logged()}"
        return line

    def logged(self) -> list[str]:
        """Return the lines that it has logged since this was asked before."""
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                line = self.log.get_nowait()
                if line is not None:
                    found.append(line)
        return found

    def expect_log(self, *words: str) -> str:
        """Wait for a line of the log with all these words in it, and return it."""
        passed: list[str] = []
        while True:
            try:
                line = self.log.get(timeout=PATIENCE_S)
            except queue.Empty:
                raise AssertionError(f"no line with {words} was logged, but {passed}") from None
            assert line is not None, f"it ended before it logged {words}; it logged {passed}"
            if all(word in line for word in words):
                return line
            passed.append(line)

    def tell(self, *arguments: str) -> None:
        """Tell one that was started without arguments what it is to do."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(arguments) + "\n")
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        """Send it a signal; after SIGSTOP it stands still."""
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def halt(self) -> None:
        """Stop it in the middle, and wait until it stands still."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def kill(self) -> None:
        """Kill it, and wait until it is gone."""
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """Close its input, and wait until it has ended by itself."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.ended()

    def ended(self) -> int:
        """Wait until it has ended, and return its exit code."""
        assert ends(self.process.pid), "it goes on"
        return self.process.wait()

    @property
    def rss_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    @property
    def peak_bytes(self) -> int:
        """How much memory it has held at most, since its start or :meth:`forget_peak`."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])

    def forget_peak(self) -> int:
        """Let the peak begin at what it holds now, and return that."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        return self.rss_bytes


class Programs:
    """The processes of one story. All end with it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._all: list[Program] = []
        self._count = 0

    def url(self, kind: str) -> str:
        self._count += 1
        return "tide://127.0.0.1:0" if kind == "tcp" else f"tide+unix://{self.place}/hub-{self._count}.sock"

    def hub(self, url: str = "tide://127.0.0.1:0", *options: str) -> tuple[Program, str]:
        """Run a hub, and return it and its real URL."""
        program = self.run("-m", "tidewire", "up", "--json", *QUIET, "--listen", url, *options)
        (found,) = json.loads(program.line())["urls"]
        return program, found

    def listening(self, url: str, name: str = "server", service: str = "workshop") -> tuple[Program, str]:
        """Run a node that is a hub and serves, too."""
        program = self.run(PROGRAMS, "listen", url, name, service, name)
        return program, program.expect("ready")

    def hub_and_server(self, url: str = "tide://127.0.0.1:0", *options: str) -> tuple[Program, str, Program]:
        """Run a hub with its real URL, and a server. They are started at the same time."""
        server = self.run(PROGRAMS)
        hub, found = self.hub(url, *options)
        server.tell("serve", found, "server", "workshop", "server")
        server.expect("ready")
        return hub, found, server

    def server(self, url: str, name: str = "server", service: str = "workshop", **env: str) -> Program:
        """Run a node that joins and serves; its name is that of its instance."""
        program = self.run(PROGRAMS, "serve", url, name, service, name, env=env)
        program.expect("ready")
        return program

    def caller(self, url: str, method: str, name: str = "caller", service: str = "workshop") -> Program:
        """Run a node that makes one call."""
        program = self.run(PROGRAMS, "call", url, name, service, method)
        program.expect("ready")
        return program

    def hearer(self, url: str, name: str = "hearer") -> Program:
        """Run a node that counts what it hears on "burst", says so at each thousand and at "end",
        and answers it on "total".
        """
        program = self.run(PROGRAMS, "hear", url, name)
        program.expect("ready")
        return program

    def run(self, *arguments: str, env: dict[str, str] | None = None) -> Program:
        program = Program(*arguments, env=env)
        self._all.append(program)
        return program

    def end(self) -> None:
        for program in self._all:
            program.process.kill()
        for program in self._all:
            program.process.wait()
            for stream in (program.process.stdin, program.process.stdout, program.process.stderr):
                assert stream is not None
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


@contextlib.contextmanager
def programs() -> Iterator[Programs]:
    """Give a story its processes, and a short path for its sockets."""
    with tempfile.TemporaryDirectory(prefix="tw-", dir="/tmp") as place:
        found = Programs(Path(place))
        try:
            yield found
        finally:
            found.end()


def _pass_on(stream: Any, lines: queue.Queue[str | None]) -> None:
    with contextlib.suppress(ValueError):
        for line in stream:
            lines.put(line.rstrip("\n"))
    lines.put(None)
