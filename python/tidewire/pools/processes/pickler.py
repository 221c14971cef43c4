"""Pickler of functions, arguments and results for worker processes: ``pickle``, or ``cloudpickle``
where the caller chose it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Literal

from tidewire.errors import InvalidArgument

Pickler = Literal["pickle", "cloudpickle"]
Dumps = Callable[[Any], bytes]

_PROTOCOL = 5


def dumps_of(pickler: str) -> Dumps:
    """Return what makes bytes that ``pickle.loads`` reads.

    Raises:
        InvalidArgument: if it is not installed.
    """
    if pickler == "pickle":
        return plain
    try:
        import cloudpickle
    except ImportError as error:
        raise InvalidArgument(f"pickler: 'cloudpickle' can't be imported ({error}): pip install cloudpickle") from error

    def by_value(value: Any) -> bytes:
        pickled: bytes = cloudpickle.dumps(value, _PROTOCOL)
        return pickled

    return by_value


def plain(value: Any) -> bytes:
    """Pickle with ``pickle``: functions and classes by their names."""
    return pickle.dumps(value, _PROTOCOL)
