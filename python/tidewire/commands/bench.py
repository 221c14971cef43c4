"""Benchmarks of the repository. They need peers and compilers, so the package does not contain
them.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from tidewire._binding import BUILD

NOT_HERE = (
    "tidewire bench: benchmarks are a part of the repository, not of the installed package: run this in a checkout of it, "
    "or name its folder bench in TIDEWIRE_BENCH"
)
WRONG_BUILD = (
    "tidewire bench {name}: the extension is the build for tests (profile `fast`, with assertions), and its figures would be "
    "wrong. Build it for measurements with `make release`, or pass --smoke."
)


def bench(name: str, arguments: Sequence[str]) -> int:
    """Run ``bench/tidewire_bench/NAME.py`` of the checkout around the working directory, or around
    this package.
    """
    if BUILD != "release" and not {"--smoke", "--help", "-h"} & set(arguments):
        typer.echo(WRONG_BUILD.format(name=name), err=True)
        return 2
    folder = _folder()
    if folder is None:
        typer.echo(NOT_HERE, err=True)
        return 2
    sys.path.append(str(folder))
    status: int = importlib.import_module(f"tidewire_bench.{name}").main(list(arguments))
    return status


def _folder() -> Path | None:
    chosen = os.environ.get("TIDEWIRE_BENCH")
    parents = (Path.cwd(), *Path.cwd().parents, *Path(__file__).resolve().parents)
    places = [Path(chosen)] if chosen else [parent / "bench" for parent in parents]
    return next((place for place in places if (place / "tidewire_bench" / "__init__.py").is_file()), None)
