#!/usr/bin/env python3
"""The conformance suite of the Model Context Protocol, on hubs of ``tidewire up --http``.

python tools/conformance/run.py FOLDER    FOLDER has the node_modules of package.json

The hub of the scenarios has a token, because resources need one. A proxy adds the token to each
request, and translates the fixed names of the suite. A second hub without tokens has the scenario
about names of hosts. The exit code is 1 if a scenario fails that is not in expected-failures.yml,
or if a scenario of that file passes.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import tidewire as tw
from proxy import proxied
from service import serve

HERE = Path(__file__).resolve().parent
TOKEN = "conformance"
HOSTS = "dns-rebinding-protection"


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    tools = Path(sys.argv[1]).resolve() / "node_modules/.bin"
    with tempfile.TemporaryDirectory() as data, hub("--token", TOKEN, "--data", data) as (join, url):
        return asyncio.run(_scenarios(tools, join, url))


async def _scenarios(tools: Path, join: str, url: str) -> int:
    parts = urlsplit(url)
    async with tw.Node(join, name="conformance", token=TOKEN) as node:
        await serve(node)
        with proxied(str(parts.hostname), int(parts.port or 0), TOKEN) as proxy:
            expected = str(HERE / "expected-failures.yml")
            code = await asyncio.to_thread(_suite, tools, proxy, "--suite", "all", "--expected-failures", expected)
    with hub() as (_, open_url):
        return _suite(tools, f"{open_url}/mcp", "--scenario", HOSTS) or code


def _suite(tools: Path, url: str, *options: str) -> int:
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    command = [str(tools / "conformance"), "server", "--url", url, *options]
    return subprocess.run(command, env=environment, check=False).returncode


@contextmanager
def hub(*options: str) -> Iterator[tuple[str, str]]:
    """Run a hub, and yield the URLs where nodes join and where HTTP clients call."""
    command = [sys.executable, "-m", "tidewire", "up", "--json", "--log-level", "error"]
    places = ["--listen", "tide://127.0.0.1:0", "--http", "127.0.0.1:0"]
    with subprocess.Popen([*command, *places, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            join, url = json.loads(process.stdout.readline())["urls"]
            yield join, url
        finally:
            process.terminate()


if __name__ == "__main__":
    sys.exit(main())
