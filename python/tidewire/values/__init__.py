"""Values between processes: Python objects as bytes and back. The form is in ``spec/values.md``.

>>> from tidewire.values import decode, encode
>>> decode(encode({"price": (1, 2.5), "tags": {"new"}}))
{'price': (1, 2.5), 'tags': {'new'}}
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from tidewire._binding import decode_value as decode
from tidewire._binding import encode_value as encode

# The compiled half looks into these when it meets the first value of a kind. To load one only then
# would be to load it in the midst of a call, and a child that is forked meanwhile would find a
# module that nobody ends to load.
from tidewire.values import arrays, failures, plans, record_check, records, scalars  # noqa: F401

# And it looks up the parts of dates and times when it first meets one.
_MOMENT = datetime(2000, 1, 2, 3, 4, 5, 6)
_ZONED = [_MOMENT.replace(tzinfo=zone) for zone in (None, UTC, timezone(timedelta(minutes=1)))]
decode(encode([*_ZONED, *(moment.timetz() for moment in _ZONED), _MOMENT.date(), timedelta(1)]))

__all__ = ["decode", "encode"]
