"""Races over a bingo board by two workers, one of which is killed in the middle, beside the same
races by one worker undisturbed.

Run it with `make demo`, or `python examples/bingo/main.py --help`. Both campaigns must come to the
same digest: a sum of hashes of all stored rows. A page shows which strategy wins, and how long each
takes.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import tidewire as tw
from pictures import render
from race import race

LOOK_S = 0.01


def main() -> int:
    """Run both campaigns; 1 if their results differ."""
    options = arguments().parse_args()
    with tempfile.TemporaryDirectory(prefix="bingo-") as folder:
        store = options.store or f"sqlite:///{folder}/bingo.db"
        alone = tw.campaign(race, runs=options.races, seed=options.seed, name="alone", store=store)
        disturbed = tw.campaign(race, runs=options.races, seed=options.seed, name="disturbed", store=store)
        first = alone.run(workers=1, progress=False)
        print(f"one worker, undisturbed:     {told(first)}")
        killing = threading.Thread(target=kill_one, args=(store, options.races // 2))
        killing.start()
        second = disturbed.run(workers=2, progress=False)
        killing.join()
        print(f"two workers, one is killed:  {told(second)}, {second.losses} worker lost")
        print(second.limiting)
        print()
        print(disturbed.summary(by="strategy"))
        print()
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(render(disturbed, first, second), encoding="utf-8")
        second.page(options.out.with_name(f"{options.out.stem}-report.html"))
        print(f"pictures are in {options.out}, the report of the campaign beside it")
        if not same(first, second, disturbed):
            print("DIFFERENT: the two campaigns have come to other rows", file=sys.stderr)
            return 1
        print(f"the same digest: {second.digest}, and the stored rows have it")
    return 0


def kill_one(store: str, at: int) -> None:
    """Kill a worker once so many races are stored."""
    campaign = tw.open_campaign(store, "disturbed")
    while (status := campaign.status()).done < at and not status.ended:
        time.sleep(LOOK_S)
    working = [worker.process for worker in status.workers if worker.state == "working"]
    if working:
        os.kill(working[0], signal.SIGKILL)
        print(f"killed worker process {working[0]} after {status.done:,} races")


def same(first: tw.Report, second: tw.Report, campaign: tw.Campaign) -> bool:
    """True if both campaigns have all races and the same digest, which the rows confirm."""
    whole = all(report.state == "done" and report.done == report.runs for report in (first, second))
    return whole and first.digest == second.digest == campaign.verify()


def told(report: tw.Report) -> str:
    """A line of figures."""
    return f"{report.done:,} races in {report.seconds:.2f} s, {report.rate:,.0f} races/s"


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--races", type=whole_number, default=2_000, metavar="N", help="how many; 2,000 by default")
    parser.add_argument("--seed", type=int, default=7, help="of both campaigns")
    parser.add_argument("--store", help="URL of a store that is kept; by default a temporary SQLite file")
    parser.add_argument("--out", type=Path, default=Path("out/bingo.html"), metavar="FILE", help="the page")
    return parser


def whole_number(text: str) -> int:
    """1 or more."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of races: give a whole number, 1 or more")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
