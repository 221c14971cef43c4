"""``python -m tidewire`` is the command ``tidewire``."""

from __future__ import annotations

import sys

_OF_COMMAND_LINE = ("typer", "rich")
"""What the command line needs, and the package does not."""


def main() -> None:
    """Run the command. Exit codes: 0 all is well, 1 something was found, 2 wrong usage, or the
    command line is not installed.
    """
    try:
        from tidewire.cli import main as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _OF_COMMAND_LINE:
            raise
        print(f"tidewire: the command line needs {error.name}: pip install 'tidewire[cli]'", file=sys.stderr)
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
