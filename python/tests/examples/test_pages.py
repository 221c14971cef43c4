"""Pages from an empty folder: each file as it is printed, each command, and its output.

A block ``console`` waits until its commands have ended. One with a name is a terminal of its own:
its command goes on until a block of that name presses Ctrl-C, or the end of the page. A block
``text`` with a URL is shown by a browser. ``...`` stands for any text.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from link_processes import free_port

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.glob("tutorials/*.md")), *sorted(DOCS.glob("coming-from/*.md")), DOCS / "guides/testing.md"]
PORT = re.compile(r"(?<=127\.0\.0\.1:)\d+")
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
PATIENCE_S = 50
BROWSER = """
const { chromium } = await import("playwright-core");
const browser = await chromium.launch({ executablePath: "%s", args: ["--no-sandbox"], handleSIGINT: false });
const page = await browser.newPage();
await page.goto("%s");
for (let seen = ""; ; console.log(seen)) {
    await page.waitForFunction((seen) => document.body.innerText !== seen, seen, { timeout: 0 });
    seen = await page.innerText("body");
}
"""


class Terminal:
    """A command that goes on while others run."""

    def __init__(self, command: str | list[str], folder: Path) -> None:
        self.process = subprocess.Popen(
            command, shell=isinstance(command, str), cwd=folder, stdout=subprocess.PIPE, start_new_session=True
        )
        self.printed = ""

    def expect(self, expected: str) -> None:
        """Wait until the text has been printed."""
        assert self.process.stdout is not None
        while not re.search(pattern(expected), self.printed):
            assert select.select([self.process.stdout], [], [], PATIENCE_S)[0], f"{expected!r}: {self.printed!r}"
            more = os.read(self.process.stdout.fileno(), 65_536).decode()
            assert more, f"{expected!r}: it ended after {self.printed!r}"
            self.printed += more
        self.printed = ""

    def interrupt(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
        try:
            assert self.process.wait(PATIENCE_S) in (0, 130, -signal.SIGINT)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()


def pattern(expected: str) -> str:
    """The expected text as a regular expression. Columns of a table may have any width."""
    escaped = [".*".join(map(re.escape, line.split("..."))) for line in expected.splitlines()]
    return "".join(r"(.*\n)*" if line == ".*" else re.sub(r"(?:\\ ){2,}", " +", line) + r"\n" for line in escaped)


def browser(url: str) -> list[str]:
    chromium = shutil.which("chromium") or pytest.skip("there is no Chromium: make .make/chromium")
    return ["node", "--input-type=module", "--eval", BROWSER % (chromium, url)]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_works_from_an_empty_folder(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page.read_text(encoding="utf-8")
    if "$TIDEWIRE/js" in text and not (ROOT / "js/packages/client/dist/tidewire.min.js").exists():
        pytest.skip("the client is not built: make test-js")
    ports = {port: str(free_port()) for port in PORT.findall(text)}
    text = PORT.sub(lambda port: ports[port.group()], text)
    for name, value in {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONUNBUFFERED": "1",
        "TIDEWIRE": str(ROOT),
    }.items():
        monkeypatch.setenv(name, value)
    if "7420" in ports:  # the default of commands
        monkeypatch.setenv("TIDEWIRE_URL", f"tide://127.0.0.1:{ports['7420']}")
    with ExitStack() as stack:
        terminals: dict[str, Terminal] = {}

        def start(name: str, command: str | list[str], folder: Path) -> None:
            terminals[name] = Terminal(command, folder)
            stack.callback(terminals[name].interrupt)

        for language, name, block in BLOCK.findall(text):
            if language == "text":
                if name not in terminals:
                    start(name, browser(name), ROOT / "js")
                terminals[name].expect(block)
            elif language == "py":
                continue  # a program of another library
            elif language != "console":
                (tmp_path / name).write_text(block, encoding="utf-8")
            elif block == "^C\n":
                terminals[name].interrupt()
            else:
                for command, expected in COMMAND.findall(block):
                    if name:
                        start(name, command, tmp_path)
                        terminals[name].expect(expected)
                        continue
                    ran = subprocess.run(
                        command, shell=True, cwd=tmp_path, stdout=-1, text=True, timeout=PATIENCE_S, check=False
                    )
                    assert ran.returncode == 0 and re.fullmatch(pattern(expected), ran.stdout), f"{command}: {ran}"
