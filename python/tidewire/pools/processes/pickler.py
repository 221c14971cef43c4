"""Pickler of functions, arguments and results for worker processes: ``pickle``, or ``cloudpickle``
by choice or in a program without a file.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from typing import Any, Literal

from tidewire.errors import InvalidArgument
from tidewire.pools.processes import main_module

Pickler = Literal["auto", "pickle", "cloudpickle"]
Dumps = Callable[[Any], bytes]

_PROTOCOL = 5


def of_program(pickler: Pickler) -> Pickler:
    """Return the pickler of a pool of this program: "auto" is "pickle" if workers can import the
    program, or cloudpickle is not installed.
    """
    if pickler != "auto":
        return pickler
    from importlib.util import find_spec

    is_importable = main_module.can_be_imported(sys.modules["__main__"])
    return "pickle" if is_importable or find_spec("cloudpickle") is None else "auto"


def dumps_of(pickler: str) -> Dumps:
    """Return the ``dumps`` function of a pickler.

    Raises:
        InvalidArgument: if it is not installed.
    """
    if pickler == "pickle":
        return plain
    if pickler == "auto":
        return _by_need
    try:
        import cloudpickle
    except ImportError as error:
        raise InvalidArgument(f"pickler: 'cloudpickle' can't be imported ({error}): pip install cloudpickle") from error

    def by_value(value: Any) -> bytes:
        pickled: bytes = cloudpickle.dumps(value, _PROTOCOL)
        return pickled

    return by_value


def plain(value: Any) -> bytes:
    """Pickle with ``pickle``: functions and classes by name."""
    return pickle.dumps(value, _PROTOCOL)


def _by_need(value: Any) -> bytes:
    """Pickle by name, or by value if that fails or refers to the main program."""
    try:
        pickled = plain(value)
    except Exception:  # noqa: BLE001
        return dumps_of("cloudpickle")(value)
    return dumps_of("cloudpickle")(value) if main_module.references_main(pickled) else pickled
