"""Runs until a mean is known well enough: how much a claim costs an insurer on average, to half a
unit with 99% confidence.

Run it with `python examples/precision/main.py`. The plan allows for many more runs than are needed,
as nobody knows the spread beforehand. The decision falls at fixed numbers of runs, so that it does
not depend on workers or timing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass

import tidewire as tw

PLANNED = 200_000


@dataclass
class Claim:
    """Cost of one policy in a year."""

    accidents: int
    cost: float


def year(run: tw.Run) -> Claim:
    """One policy: few accidents, and a few of them are expensive."""
    accidents = sum(run.random.random() < 0.02 for _ in range(12))
    return Claim(accidents, sum(run.random.lognormvariate(3.0, 0.8) for _ in range(accidents)))


def main() -> int:
    """Run it with one worker and with two; 1 if they come to different ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half-width", type=float, default=0.5, help="how well the mean must be known")
    options = parser.parse_args()
    until = tw.Precision("cost", half_width=options.half_width, confidence=0.99)
    ends = set()
    with tempfile.TemporaryDirectory(prefix="precision-") as folder:
        for workers in (1, 2):
            campaign = tw.campaign(
                year,
                runs=PLANNED,
                seed=11,
                until=until,
                name=f"{workers} workers",
                store=f"sqlite:///{folder}/claims.db",
            )
            report = campaign.run(workers=workers, progress=False)
            look = report.look
            assert look is not None
            ends.add((report.done, report.digest, look.mean, look.reached))
            print(
                f"{workers} worker{'s' * (workers > 1)}: a policy costs {look.mean:.2f} ± {look.half_width:.2f}, "
                f"known after {report.done:,} of {PLANNED:,} runs: {PLANNED - report.done:,} runs "
                f"({1 - report.done / PLANNED:.0%}) were saved; {report.seconds:.2f} s"
            )
    if len(ends) != 1:
        print("DIFFERENT: the end depends on the number of workers", file=sys.stderr)
        return 1
    print("both ended at the same run, with the same digest")
    return 0


if __name__ == "__main__":
    sys.exit(main())
