"""``python -m tidewire`` is the command ``tidewire``."""

from __future__ import annotations

import sys

_OF_COMMAND_LINE = {"typer": "typer>=0.12", "rich": "rich>=13"}
"""Modules that the command line needs, and the package does not, with what pip is to install."""


def main() -> None:
    """Run the command. Exit codes: 0 all is well, 1 something was found, 2 wrong usage, or the
    libraries of the command line are missing.
    """
    try:
        from tidewire.cli import main as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _OF_COMMAND_LINE:
            raise
        _run_without(error.name)
    else:
        run()


def _run_without(library: str | None) -> None:
    """Print the version if that is wanted, else say which libraries to install."""
    if sys.argv[1:] == ["--version"]:
        from tidewire import __version__

        print(f"tidewire {__version__}")
        return
    wanted = " ".join(f"'{one}'" for one in _OF_COMMAND_LINE.values())
    print(
        f"tidewire: the command line needs {library}, which {sys.executable} cannot import; "
        f"install its libraries: {sys.executable} -m pip install {wanted}",
        file=sys.stderr,
    )
    sys.exit(2)


if __name__ == "__main__":
    main()
