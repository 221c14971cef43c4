"""Values between processes: Python objects as bytes and back. The form is in ``spec/values.md``.

>>> from tidewire.values import decode, encode
>>> decode(encode({"price": (1, 2.5), "tags": {"new"}}))
{'price': (1, 2.5), 'tags': {'new'}}
"""

from __future__ import annotations

from tidewire._binding import decode_value as decode
from tidewire._binding import encode_value as encode

# The compiled half looks into these when it meets the first value of a kind. To load one only then would be to load it in
# the midst of a call, and a child that is forked meanwhile would find a module that nobody ends to load.
from tidewire.values import arrays, failures, fitting, plans, records, scalars  # noqa: F401

__all__ = ["decode", "encode"]
