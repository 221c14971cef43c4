"""The plan of a benchmark: every workload at its scale, or the chosen ones."""

from __future__ import annotations

from collections.abc import Sequence

from .model import Plan, Scale, Sizes
from .native_cases import native_cases, native_curves
from .python_cases import python_cases


def make(scale: Scale, repeat: int | None, only: Sequence[str]) -> Plan:
    """The plan for a scale, limited to the ids in ``only`` if there are any.

    Raises:
        ValueError: if ``only`` names no workload.
    """
    sizes = SIZES[scale]
    cases = [*native_cases(sizes, scale), *python_cases(sizes)]
    curves = list(native_curves(sizes))
    known = [case.id for case in cases] + [curve.id for curve in curves]
    wanted = {name.upper() for name in only}
    unknown = wanted - {name.upper() for name in known} - {name.split("-")[0].upper() for name in known}
    if unknown:
        raise ValueError(f"--only {','.join(sorted(unknown))}: not one of {', '.join(known)}")

    def chosen(name: str) -> bool:
        return not wanted or name.upper() in wanted or name.split("-")[0].upper() in wanted

    return Plan(
        scale=scale,
        repeat=repeat or sizes.repeat,
        cases=tuple(case for case in cases if chosen(case.id)),
        curves=tuple(curve for curve in curves if chosen(curve.id)),
    )


SIZES: dict[Scale, Sizes] = {
    "smoke": Sizes(
        repeat=1,
        storm=50_000,
        exchange=200,
        ping=2_000,
        idle_pings=20,
        asks=5_000,
        asks_across=500,
        actors=2_000,
        timers=5_000,
        fan_out=200,
        bursts=5,
        python_storm=20_000,
        python_exchange=200,
        python_asks=1_000,
        python_actors=2_000,
        with_pekko=False,
        curve_actors=(2, 50),
        curve_idle=(10, 1_000),
        curve_words=20_000,
    ),
    "short": Sizes(
        repeat=3,
        storm=1_000_000,
        exchange=10_000,
        ping=100_000,
        idle_pings=600,
        asks=200_000,
        asks_across=20_000,
        actors=50_000,
        timers=200_000,
        fan_out=10_000,
        bursts=100,
        python_storm=300_000,
        python_exchange=2_000,
        python_asks=30_000,
        python_actors=100_000,
    ),
    "full": Sizes(
        repeat=7,
        storm=10_000_000,
        exchange=10_000,
        ping=500_000,
        idle_pings=5_000,
        asks=2_000_000,
        asks_across=100_000,
        actors=1_000_000,
        timers=1_000_000,
        fan_out=10_000,
        bursts=1_000,
        python_storm=2_000_000,
        python_exchange=10_000,
        python_asks=200_000,
        python_actors=1_000_000,
        all_forms=True,
        curve_actors=(2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000),
        curve_idle=(10, 100, 1_000, 10_000, 100_000, 1_000_000),
        curve_words=2_000_000,
    ),
}
