"""Runs a benchmark of the repository. The package does not carry them: they need their peers, and compilers."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

NOT_HERE = (
    "tidewire bench: benchmarks are a part of the repository, not of the installed package: run this in a checkout of it, "
    "or name its folder bench in TIDEWIRE_BENCH"
)


def bench(name: str, arguments: Sequence[str]) -> int:
    """Run ``bench/tidewire_bench/NAME.py`` of the checkout around the working directory, or around this package."""
    folder = _folder()
    if folder is None:
        typer.echo(NOT_HERE, err=True)
        return 2
    sys.path.append(str(folder))
    status: int = importlib.import_module(f"tidewire_bench.{name}").main(list(arguments))
    return status


def _folder() -> Path | None:
    chosen = os.environ.get("TIDEWIRE_BENCH")
    around = (Path.cwd(), *Path.cwd().parents, *Path(__file__).resolve().parents)
    places = [Path(chosen)] if chosen else [parent / "bench" for parent in around]
    return next((place for place in places if (place / "tidewire_bench" / "__init__.py").is_file()), None)
