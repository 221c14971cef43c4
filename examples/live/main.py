"""A page in a browser that shows flights through a system of actors as they happen, and is asked
what to do.

Run it with `make live`, and open what it prints. The page is a node like any other: it calls the
service `live` of this process, gives it a function for progress, reads a stream of alerts, and
serves `person`, which this process calls.
"""

from __future__ import annotations

import argparse
import json
import logging
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "flights"))

import data
import tidewire as tw
from service import Live
from year import Year

CLIENT = HERE.parents[1] / "js/packages/client/dist/tidewire.min.js"


def main() -> int:
    """Serve the page until SIGTERM or Ctrl-C."""
    options = parse()
    # Each record without an arrival is counted on the page.
    logging.getLogger("tidewire").setLevel(logging.CRITICAL)
    if not options.client.is_file():
        print(f"live: {options.client} is missing: `make live` builds it (it needs Node.js)", file=sys.stderr)
        return 2
    try:
        year = Year.read()
    except data.DataMissing as missing:
        print(f"live: {missing}", file=sys.stderr)
        return 2
    try:
        tw.run(serve(options.port, options.client, year))
    except tw.TidewireError as error:
        print(f"live: {error}", file=sys.stderr)
        return 1
    return 0


async def serve(port: int, client: Path, year: Year) -> None:
    """Be the hub of the pages, and give them out."""
    # Any page of a browser on this machine reaches a hub on loopback: only ours knows the token.
    token = secrets.token_urlsafe(16)
    tokens = (tw.Token(token, user="page"),)
    async with tw.Node(name="hub") as node:
        hub = node.listen("ws://127.0.0.1:0", tokens=tokens)
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(HERE / "site", folder, dirs_exist_ok=True)
            shutil.copy(client, Path(folder) / "tidewire.js")
            (Path(folder) / "hub.json").write_text(json.dumps({"url": hub.url}))
            web = node.listen(f"http://127.0.0.1:{port}", tokens=tokens, http=tw.Http(files=folder))
        await node.serve(Live(node, year), name="live")
        print(f"open {web.url}/files/#{token}  (Ctrl-C ends it)", flush=True)
        await node.run_forever()


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8421, help="where the page is (default: %(default)s; 0: any)")
    parser.add_argument("--client", type=Path, default=CLIENT, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
