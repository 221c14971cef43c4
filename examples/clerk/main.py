"""A team of durable agents that is killed in the middle of its conversation, again and again, and
ends with the same answers.

Run it with `make demo`, or `python examples/clerk/main.py --help`. A counter hands claims of
customers to a clerk, who asks an archivist and an assessor, and answers; each knows what it knows
from its state. After some answers every process of the team is killed with SIGKILL, and all are
started anew. At the end the answers must be those that a plain loop computes: each claim has one
file, is counted once and paid once. In a data folder the team is one process, which has the folder;
on NATS it is one for each agent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from team import plainly

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("worker.py")
TEAM = ("counter", "clerk", "archivist", "assessor")
HOMES = {
    "folder": ("a data folder, with the team in one process", [TEAM]),
    "nats": ("NATS JetStream, with a process for each agent", [(name,) for name in TEAM]),
}
KILLS = 3


def main() -> int:
    """Play it at each home; 1 if an answer is missing or another one."""
    options = arguments().parse_args()
    for name in HOMES if options.home == "both" else [options.home]:
        title, processes = HOMES[name]
        print(f"{options.claims} claims, on {title}:", flush=True)
        begun = time.monotonic()
        with home(name) as place:
            answers = asyncio.run(played(place, processes, options.claims))
        wanted = {str(number): text for number, text in plainly(options.claims).items()}
        wrong = {number: (answers.get(number), text) for number, text in wanted.items() if answers.get(number) != text}
        if wrong or len(answers) != len(wanted):
            print(f"WRONG: answers, and what they should be: {wrong}", file=sys.stderr)
            return 1
        print(f"  the last answer: {answers[str(options.claims - 1)]}")
        print(f"  all {len(answers)} answers are those of a plain loop; {time.monotonic() - begun:.1f} s\n", flush=True)
    return 0


@contextmanager
def home(name: str) -> Iterator[str]:
    """Give where the agents live: a folder, or the URL of a server that is started."""
    if name == "folder":
        with tempfile.TemporaryDirectory(prefix="clerk-") as folder:
            yield folder
        return
    sys.path.insert(0, str(ROOT / "tools"))
    import servers

    try:
        with servers.started("nats") as server:
            yield server["TIDEWIRE_TEST_NATS"]
    except servers.Missing as missing:
        raise SystemExit(f"nats-server: {missing}") from None


async def played(place: str, processes: list[tuple[str, ...]], claims: int) -> dict[str, str]:
    """Have the team work, kill all of it some times, and return the answers."""
    for kill in range(1, KILLS + 1):
        pause_at = claims * kill // (KILLS + 1)
        team = [await started(place, claims, pause_at, names) for names in processes]
        while await said(team[0]) != "middle":
            pass
        for process in team:
            os.kill(process.pid, signal.SIGKILL)
        await asyncio.gather(*(process.wait() for process in team))
        many = "its process is" if len(team) == 1 else f"its {len(team)} processes are"
        print(f"  the counter is at answer {pause_at} of {claims}: {many} killed with SIGKILL", flush=True)
    team = [await started(place, claims, 0, names) for names in processes]
    try:
        while not (line := await said(team[0])).startswith("{"):
            pass
        answers: dict[str, str] = json.loads(line)
        return answers
    finally:
        for process in team:
            process.terminate()
        await asyncio.gather(*(process.wait() for process in team))


async def started(place: str, claims: int, pause_at: int, names: tuple[str, ...]) -> asyncio.subprocess.Process:
    """Start a process of the team."""
    return await asyncio.create_subprocess_exec(
        sys.executable, WORKER, place, str(claims), str(pause_at), *names, stdout=asyncio.subprocess.PIPE
    )


async def said(process: asyncio.subprocess.Process) -> str:
    """Return the next line of a process."""
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise SystemExit(f"a process of the team ended with {await process.wait()}")
    return line.decode().strip()


def arguments() -> argparse.ArgumentParser:
    """Return what can be said on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--claims", type=int, default=120, help="how many claims, 16 or more")
    parser.add_argument("--home", choices=[*HOMES, "both"], default="both", help="where the agents live")
    return parser


if __name__ == "__main__":
    sys.exit(main())
