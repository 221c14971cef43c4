"""Wire form of NumPy arrays and scalars."""

from __future__ import annotations

import math
import re
import sys
from importlib import import_module
from typing import Any

from tidewire.errors import WireError

# Byte order, kind, size in bytes or letters, and the unit of times. Other types depend on the
# machine.
_DTYPE = re.compile(r"[<>|](?:b1|[iu][1248]|f[248]|c(?:8|16)|[mM]8(?:\[\d{0,9}[A-Za-z]{1,7}\])?|[SU]\d{1,9})")


def is_array(kind: type) -> bool:
    """Return True if a type is an array without further state."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and (kind is numpy.ndarray or kind is numpy.memmap)


def is_scalar(kind: type) -> bool:
    """Return True if a type is a NumPy scalar."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, numpy.generic)


def describe(array: Any) -> tuple[str, tuple[int, ...], str, Any]:
    """Return dtype, lengths, order and elements of an array; contiguous elements are not copied."""
    np = _numpy()
    dtype = _sent(array.dtype)
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    if array.nbytes == 0:
        return dtype, array.shape, order, memoryview(b"")
    straight = np.ascontiguousarray(array.T if order == "F" else array)
    return dtype, array.shape, order, straight.reshape(-1).view(np.uint8)


def build(dtype: Any, lengths: tuple[Any, ...], order: Any, elements: Any) -> Any:
    """Build an array on the memory of its elements: a buffer, or an object with the array interface
    of NumPy.
    """
    np = _numpy()
    kind = _received(dtype)
    if not all(type(length) is int and 0 <= length < 2**62 for length in lengths) or order not in ("C", "F"):
        raise WireError(f"data: an array can't have the lengths {lengths} and the order {order!r}")
    if math.prod(lengths) * kind.itemsize != len(elements):
        raise WireError(f"data: an array of {dtype} with lengths {lengths} does not have {len(elements)} bytes")
    try:
        # The elements may be in the memory of a message, which is no buffer of Python.
        memory = np.asarray(elements) if hasattr(elements, "__array_interface__") else elements or None
        return np.ndarray(lengths, kind, memory, order=order)
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise WireError(f"data: not an array of {dtype} with lengths {lengths}: {error}") from error


def describe_scalar(scalar: Any) -> tuple[str, Any]:
    """Return dtype and bytes of a scalar; for text and bytes their kind and value."""
    np = _numpy()
    if isinstance(scalar, np.str_):
        # The conversion of NumPy strips trailing zeros.
        return "U", str.__str__(scalar)
    if isinstance(scalar, np.bytes_):
        return "S", bytes(scalar)
    return _sent(scalar.dtype), scalar.tobytes()


def build_scalar(dtype: Any, content: Any) -> Any:
    """Build a scalar from its bytes."""
    np = _numpy()
    if dtype == "U" and isinstance(content, str):
        return np.str_(content)
    if dtype == "S" and isinstance(content, bytes):
        return np.bytes_(content)
    kind = _received(dtype)
    if not isinstance(content, bytes) or len(content) != kind.itemsize or kind.kind in "SU":
        raise WireError(f"data: not a scalar of {dtype}")
    return np.frombuffer(content, kind)[0]


def _sent(dtype: Any) -> str:
    if not _DTYPE.fullmatch(dtype.str) or dtype.fields or dtype.subdtype:
        raise ValueError(
            f"an array of {dtype} can't be sent: send numbers, times or text, fields as arrays of their own"
        )
    return str(dtype.str)


def _received(dtype: Any) -> Any:
    if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
        raise WireError(f"data: {dtype!r} is not the dtype of an array that travels")
    try:
        return _numpy().dtype(dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(f"data: {dtype!r} is not the dtype of an array that travels") from error


def _numpy() -> Any:
    try:
        return import_module("numpy")
    except ImportError as error:
        raise WireError("data: it has an array, and NumPy is not installed here: pip install numpy") from error
