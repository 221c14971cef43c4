"""``python -m tidewire`` is the command ``tidewire``."""

from __future__ import annotations

import sys

_REQUIREMENTS = {"typer": "typer>=0.12", "rich": "rich>=13"}
"""Modules of the command line that the package does not depend on, with their requirements."""


def main() -> None:
    """Run the command. Exit codes: 0 success, 1 failure or a finding, 2 wrong usage, or the
    libraries of the command line are missing.
    """
    try:
        from tidewire.cli import main as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _REQUIREMENTS:
            raise
        _report_missing(error.name)
    else:
        run()


def _report_missing(library: str | None) -> None:
    """Print the version for ``--version``, else the libraries to install."""
    if sys.argv[1:] == ["--version"]:
        from tidewire import __version__

        print(f"tidewire {__version__}")
        return
    packages = " ".join(f"'{one}'" for one in _REQUIREMENTS.values())
    print(
        f"tidewire: the command line needs {library}, which {sys.executable} cannot import; "
        f"install its libraries: {sys.executable} -m pip install {packages}",
        file=sys.stderr,
    )
    sys.exit(2)


if __name__ == "__main__":
    main()
