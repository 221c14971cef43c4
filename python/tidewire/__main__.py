"""``python -m tidewire`` is the command ``tidewire``."""

from __future__ import annotations

from tidewire.cli import main

if __name__ == "__main__":
    main()
