"""The runs alone, in a plain loop in each of several processes: nothing is leased, collected or
stored. The rate is the upper bound of all contenders.
"""

from __future__ import annotations

import multiprocessing
import time

from farm import bare_us, options_of, peak_mb, processor_s, say, with_cost
from workload import STEPS, hits


def loop(gate: multiprocessing.Barrier, first: int, count: int, steps: int) -> None:  # type: ignore[valid-type]
    gate.wait()  # type: ignore[attr-defined]
    for run in range(first, first + count):
        hits(run, steps)
    gate.wait()  # type: ignore[attr-defined]
    gate.wait()  # type: ignore[attr-defined]


def main() -> None:
    options = options_of().parse_args()
    steps, workers = options.steps or STEPS[options.workload], options.workers
    share = options.count // workers
    gate = multiprocessing.Barrier(workers + 1)
    processes = [
        multiprocessing.Process(target=loop, args=(gate, worker * share, share, steps)) for worker in range(workers)
    ]
    for process in processes:
        process.start()
    before = bare_us(steps)
    used = sum(processor_s(process.pid) for process in processes)
    gate.wait()
    began = time.perf_counter()
    gate.wait()
    seconds = time.perf_counter() - began
    used = sum(processor_s(process.pid) for process in processes) - used
    memory = sum(peak_mb(process.pid) for process in processes)
    gate.wait()
    for process in processes:
        process.join()
    figures = {
        "rate": share * workers / seconds,
        "seconds": seconds,
        "peak_mb": memory,
        "cpu_us": used * 1e6 / share / workers,
    }
    say(with_cost(figures, before, bare_us(steps)))


if __name__ == "__main__":
    main()
