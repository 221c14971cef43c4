"""Functions of campaigns, which worker processes import."""

from __future__ import annotations

import ctypes
import datetime
import os
import signal
import sys
import time
from dataclasses import dataclass
from typing import Any, ClassVar, TypedDict

import msgspec
import tidewire as tw

GATED = 900
"""The first run that waits for the gate of its story."""


@dataclass
class Outcome:
    unit: ClassVar[str] = "hits"
    hits: int
    area: float


class Typed(TypedDict):
    hits: int
    name: str | None


class Packed(msgspec.Struct):
    hits: int
    at: datetime.datetime
    path: list[int]


@dataclass
class Steps:
    steps: int
    label: str = "plain"


def pi(run: tw.Run) -> Outcome:
    draw = run.random.random
    hits = sum(draw() ** 2 + draw() ** 2 <= 1 for _ in range(10))
    return Outcome(hits, hits / 2.5)


def slow_pi(run: tw.Run) -> Outcome:
    """About a millisecond, so that a campaign can be met while it runs. Late runs wait for the gate
    of their story, if it has one.
    """
    if run.index >= GATED and "CAMPAIGN_GATE" in os.environ:
        with open(os.environ["CAMPAIGN_GATE"]):
            pass
    end = time.perf_counter() + 0.001
    while time.perf_counter() < end:
        pass
    return pi(run)


def clocked_pi(run: tw.Run) -> dict[str, float]:
    """Result of ``slow_pi``, and the hour of the clock on the wall."""
    return {"area": slow_pi(run).area, "hour": int(time.time() // 3_600) % 24}


def lines(run: tw.Run) -> str:
    return f"{run.index:>1000}"


def typed(run: tw.Run) -> Typed:
    return {"hits": run.index, "name": None if run.index % 2 else f"run {run.index}"}


def packed(run: tw.Run) -> Packed:
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    return Packed(run.index, at + datetime.timedelta(seconds=run.index), [run.index, 7])


def curve(run: tw.Run) -> dict[str, Any]:
    """Give an array, which is longer in every other run."""
    is_long = run.index % 2 == 0
    values = run.numpy.random(3 if is_long else 2)
    return {"kind": "long" if is_long else "short", "area": values[1], "curve": values}


def number(run: tw.Run) -> float:
    return run.random.random()


def noisy(run: tw.Run) -> float:
    return float(run.params["level"] + run.params["noise"] * (run.random.random() - 0.5))


def plain(run):  # type: ignore[no-untyped-def]
    return {"index": run.index, "flag": run.index > 1, "seed": run.seed % 1000}


def teams(run: tw.Run) -> list[Outcome]:
    return [Outcome(team, run.index + team / 10) for team in range(run.index % 3)]


def stepped(run: tw.Run[Steps]) -> int:
    run.params.steps += 1
    return run.params.steps


KEPT: list[Any] = []


def compared(run: tw.Run) -> dict[str, float]:
    """Draws from common numbers, some of which stay in use after the run."""
    if run.index % 7 == 3:
        raise ValueError("a run without a result")
    draws = run.common.random
    KEPT.append(draws if run.index % 5 else run.common if run.index % 2 else None)
    shared = draws.random() + float(run.common.numpy.random())
    assert shared != run.random.random() + float(run.numpy.random())
    return {"shared": shared, "late": 10.0 * shared + run.params["delay"], "alone": run.random.random()}


def swept(run: tw.Run) -> dict[str, Any]:
    run.params["teams"].append(1)
    return {"set": f"{run.params['strategy']}-{len(run.params['teams'])}"}


def oddly_named(run: tw.Run) -> dict[str, Any]:
    return {"hits": 7, "two words": "x", "index": 9}


def pictured(run: tw.Run) -> dict[str, float | int]:
    return {
        "same": 1.0,
        "endless": float("inf"),
        "wide": 1e150 if run.index == 1 else -5.0,
        "tenths": 0.1 * run.index,
        "whole": run.index,
        "huge": 1e150,
        "huger": 1e300 * (run.index + 1.5),
        "ends": 1.75e308 * (-1) ** run.index,
        "tiny": 5e-324 * run.index,
    }


# Runs that do what they should not


def changing(run: tw.Run) -> dict[str, Any]:
    return {"hits": run.index} if run.index != 400 else {"hits": run.index, "more": 1}


def special(run: tw.Run) -> dict[str, Any]:
    values: list[dict[str, Any]] = [
        {"real": 1.5, "whole": 1, "text": "a", "nested": [1]},
        {"real": float("nan"), "whole": -(2**63), "text": "", "nested": {}},
        {"real": float("inf"), "whole": 2**63 - 1, "text": "é\u2028🙂", "nested": None},
        {"real": -0.0, "whole": None, "text": None, "nested": {"b": {2, 1}, "a": "é"}},
        {"real": 1, "whole": True, "text": "x" * 100_000, "nested": "plain"},
        {"real": 0.0, "whole": 2**63, "text": "", "nested": []},
        {"real": 0.0, "whole": 1.5, "text": "", "nested": []},
        {"real": 0.0, "whole": 0, "text": "a\0b", "nested": []},
        {"real": 0.0, "whole": 0, "text": "\ud800", "nested": []},
        {"real": "0", "whole": 0, "text": "", "nested": []},
        {"real": 0.0, "whole": 0, "text": b"", "nested": []},
        {"real": 0.0, "whole": 0, "text": "", "nested": [float("nan")]},
        {"real": 0.0, "whole": 0, "text": "", "nested": object()},
        {"real": 0.0, "whole": 0, "text": ""},
    ]
    return values[run.index]


def failing(run: tw.Run) -> int:
    if run.index % 10 == 3:
        raise ValueError(f"run {run.index} has no luck")
    if run.index == 5 and run.attempt < 3:
        raise RuntimeError("not yet")
    return run.attempt


def printing(run: tw.Run) -> int:
    print(f"printed by run {run.index}", flush=True)
    return run.index


def forking(run: tw.Run) -> int:
    """Half of the children end by themselves, the others return from the function as the worker
    does.
    """
    child = os.fork()
    if child == 0 and run.index % 2:
        os._exit(0)
    if child:
        assert os.waitpid(child, 0)[1] == 0
    return run.index


def leaving(run: tw.Run) -> int:
    if run.index == 3:
        sys.exit("enough")
    if run.index == 4:
        raise KeyboardInterrupt
    return run.index


def killing(run: tw.Run) -> int:
    """Two runs that end their process: by force, and without a word."""
    if run.index == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    if run.index == 13:
        os._exit(9)
    return run.index


def closing_files(run: tw.Run) -> int:
    """Closes the files of its whole process, as a function does that becomes a daemon."""
    if run.index == 7:
        os.closerange(3, 1_024)
    return run.index


def always_killing(run: tw.Run) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return run.index


def greedy(run: tw.Run) -> int:
    """Takes memory until the system ends it, as far as a test may."""
    if run.index == 2:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        return len(bytearray(1 << 31))
    return run.index


def endless(run: tw.Run) -> int:
    while run.index == 4:
        pass
    return run.index


def drawn(run: tw.Run) -> dict[str, Any]:
    """Every kind of number that a run can draw, twice: what one run left behind shows in the
    next.
    """
    kept.append(run)
    draw = run.random
    return {
        "gauss": draw.gauss(0, 1),
        "choice": draw.choice("abc"),
        "big": str(draw.getrandbits(200)),
        "sample": draw.sample(range(100), 3),
        "bytes": draw.randbytes(3).hex(),
        "array": run.numpy.random(),
        "whole": draw.randrange(10),
    }


kept: list[tw.Run] = []


@dataclass
class Measured:
    kind: str
    value: float
    even: bool
    label: str


def measured(run: tw.Run) -> Measured:
    even = run.index % 2 == 0
    return Measured(run.params["kind"], run.params["scale"] * run.random.random(), even, "even" if even else "odd")


def untyped(run):  # type: ignore[no-untyped-def]
    return {"x": run.index}


def raises(run: tw.Run) -> float:
    raise ValueError(f"run {run.index} never works")


def stubborn(run: tw.Run) -> int:
    """Holds the interpreter lock for longer than its lease."""
    if run.index == 3:
        ctypes.PyDLL(None).sleep(3)
    return run.attempt


def keeping(run: tw.Run[dict[str, str]]) -> dict[str, float]:
    """Keeps a part of its generators, as programs do that lay them into objects of their own."""
    part = run.params["part"]
    kept_parts.append(
        {
            "random": run.random,
            "method": run.random.random,
            "bits": run.random.getrandbits,
            "numpy": run.numpy,
            "method of numpy": run.numpy.random,
            "bits of numpy": run.numpy.bit_generator,
        }[part]
    )
    return {"random": run.random.random(), "gauss": run.random.gauss(0, 1), "numpy": float(run.numpy.random())}


kept_parts: list[Any] = []


def forgetting(run: tw.Run[dict[str, str]]) -> dict[str, float]:
    drawn = keeping(run)
    kept_parts.clear()
    return drawn


def looking_back(run: tw.Run) -> dict[str, float]:
    """Draws from this run and from the one before, which it has kept."""
    kept.append(run)
    before = kept[-2] if len(kept) > 1 else tw.Run(run.index)
    return {"own": run.random.random(), "before": before.random.random()}
