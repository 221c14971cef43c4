"""Timeouts of calls, in seconds."""

from __future__ import annotations

from typing import Final

from tidewire._limits import ASK_TIMEOUT_MS

CALL_TIMEOUT_S: Final = ASK_TIMEOUT_MS.default / 1000
"""How long a call may take where neither the caller nor the method says otherwise."""

CALL_TIMEOUT_MAX_S: Final = ASK_TIMEOUT_MS.max / 1000
"""The longest time that a call may be given."""
