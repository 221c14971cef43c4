"""Values between processes: Python objects as bytes and back. The form is in ``spec/values.md``.

>>> from tidewire.values import decode, encode
>>> decode(encode({"price": (1, 2.5), "tags": {"new"}}))
{'price': (1, 2.5), 'tags': {'new'}}
"""

from __future__ import annotations

from tidewire._binding import decode_value as decode
from tidewire._binding import encode_value as encode

__all__ = ["decode", "encode"]
