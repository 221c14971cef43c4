"""Single values of the standard library, decoded from their bytes."""

from __future__ import annotations

from decimal import Context, Decimal, InvalidOperation
from uuid import UUID

from tidewire.errors import WireError

# The context of the thread may accept any text as NaN.
_STRICT = Context(traps=[InvalidOperation])


def decimal(text: bytes) -> Decimal:
    """Return the decimal of a text."""
    try:
        return Decimal(text.decode("ascii"), _STRICT)
    except (UnicodeDecodeError, InvalidOperation) as error:
        raise WireError(f"data: {text[:100]!r} is not a decimal") from error


def uuid(content: bytes) -> UUID:
    """Return the UUID of 16 bytes."""
    if len(content) != 16:
        raise WireError(f"data: a UUID has 16 bytes, not {len(content)}")
    return UUID(bytes=content)
