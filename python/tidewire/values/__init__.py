"""Values between processes: Python objects as bytes and back. ``spec/values.md`` has the format.

>>> from tidewire.values import decode, encode
>>> decode(encode({"price": (1, 2.5), "tags": {"new"}}))
{'price': (1, 2.5), 'tags': {'new'}}
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from tidewire._binding import decode_value as decode
from tidewire._binding import encode_value as encode

# The compiled part uses these modules at the first value of a kind. Load them now: a child that is
# forked during a later import would find a partly loaded module.
from tidewire.values import arrays, failures, plans, record_check, records, scalars  # noqa: F401

# It also looks up the attributes of dates and times at the first use.
_MOMENT = datetime(2000, 1, 2, 3, 4, 5, 6)
_ZONED = [_MOMENT.replace(tzinfo=zone) for zone in (None, UTC, timezone(timedelta(minutes=1)))]
decode(encode([*_ZONED, *(moment.timetz() for moment in _ZONED), _MOMENT.date(), timedelta(1)]))

__all__ = ["decode", "encode"]
