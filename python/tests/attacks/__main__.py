"""Runs attacks on a hub, and prints a line for each."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "support")]

from attacks import LONGEST_MS, P99_MS, SHORT, cases, good, memory
from attacks.cases.floods import FLOODS
from attacks.field import Figures, Ground, Outcome
from attacks.target import Target

_SHORT = (0.1, 0.4)
_FULL = (1.0, 3.0)


def main() -> None:
    """Run what the command line says; the exit code is 1 if the hub did not hold."""
    parser = argparse.ArgumentParser(prog="attacks", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a dozen attacks of less than half a second, on one hub")
    parser.add_argument("--memory", action="store_true", help="the memory of a hub beside the formula of its bound")
    parser.add_argument("--list", action="store_true", help="only name the attacks")
    parser.add_argument("--good", metavar="TARGET", help=argparse.SUPPRESS)
    parser.add_argument("--attack", nargs=2, metavar=("NAME", "TARGET"), help=argparse.SUPPRESS)
    parser.add_argument(
        "names", nargs="*", help="attacks, or numbers of their classes (default: all; SHORT with --short)"
    )
    wanted = parser.parse_args()
    if wanted.memory:
        sys.exit(memory.report())
    if wanted.good:
        good.main(Target.of_text(wanted.good))
    elif wanted.attack:
        _case(wanted.attack[0]).attack(Target.of_text(wanted.attack[1]))
    else:
        names = wanted.names or (SHORT if wanted.short else ())
        chosen = [case for case in _cases() if not names or _is_meant(case, names)]
        sys.exit(_list(chosen) if wanted.list else _run(chosen, wanted.short))


def _run(chosen: list[ModuleType], is_short: bool) -> int:
    print(f"while one client attacks: good calls p99 <= {P99_MS:g} ms, none above {LONGEST_MS:g} ms, no good link lost")
    print(f"{'':<28}{'calm':>16}{'attacked':>16}{'links':>7}{'memory':>16}{'tries':>7}")
    print(f"{'attack':<28}{'p99/longest ms':>16}{'p99/longest ms':>16}{'lost':>7}{'grew/bound MiB':>16}", flush=True)
    with Ground(*(_SHORT if is_short else _FULL), is_short=is_short) as ground:
        held = [_show(ground.tried(case)) for case in chosen]
    print(f"{sum(held)} of {len(held)} attacks: the hub holds")
    return 0 if all(held) else 1


def _show(outcome: Outcome) -> bool:
    case, worst = outcome.case, outcome.worst
    memory = f"{worst.peak_mib:.1f}/{case.MEMORY_MIB:g}"
    name = f"{case.ITEM:>2} {case.__name__.rpartition('.')[2]}"
    line = f"{name:<28}{_times(outcome.calm):>16}{_times(worst):>16}{worst.lost:>7}{memory:>16}{outcome.tries:>7}"
    print(line + ("" if outcome.holds else "  DOES NOT HOLD: " + ", ".join(outcome.broken)), flush=True)
    return outcome.holds


def _times(figures: Figures) -> str:
    return f"{figures.p99:.2f}/{figures.longest:.1f}"


def _list(chosen: list[ModuleType]) -> int:
    for case in chosen:
        assert case.__doc__
        print(f"{case.ITEM:>2} {case.__name__.rpartition('.')[2]:<25}{' '.join(case.__doc__.split())}")
    return 0


def _cases() -> list[Any]:
    found = [importlib.import_module(name) for name in _modules().values()]
    return sorted([*found, *FLOODS.values()], key=lambda case: case.ITEM)


def _case(name: str) -> Any:
    return FLOODS.get(name) or importlib.import_module(_modules()[name])


def _modules() -> dict[str, str]:
    """Full names of the modules by the names of the attacks."""
    found = pkgutil.walk_packages(cases.__path__, "attacks.cases.")
    return {module.name.rpartition(".")[2]: module.name for module in found if not module.ispkg}


def _is_meant(case: ModuleType, names: Sequence[str]) -> bool:
    return str(case.ITEM) in names or case.__name__.rpartition(".")[2] in names


if __name__ == "__main__":
    main()
