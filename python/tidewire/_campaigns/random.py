"""The random numbers of one run, for Python and for NumPy."""

from __future__ import annotations

import os
import random
from typing import Any

from tidewire._binding import Philox

_WORD = 2**64 - 1


class RunRandom(random.Random):
    """A ``random.Random`` whose numbers are those of one run. Its ``random`` and ``getrandbits``
    are compiled; all else is Python's.
    """

    __slots__ = ("_philox", "getrandbits", "random")

    def __new__(cls, *_: Any) -> RunRandom:
        """Make a generator. The seed of the base class is never used."""
        made: RunRandom = random.Random.__new__(cls, 0)  # type: ignore[call-arg]
        return made

    def __init__(self, philox: Philox, unit: Any = None, bits: Any = None) -> None:
        self._philox = philox
        self.random = unit or philox.random  # type: ignore[method-assign]
        self.getrandbits = bits or philox.getrandbits  # type: ignore[method-assign]
        self.gauss_next: float | None = None

    def seed(self, a: Any = None, version: int = 2) -> None:
        """Begin another stream, which depends on ``a`` alone: an int, float, str, bytes or
        bytearray, or None for the system's.
        """
        import hashlib

        if a is None:
            key = os.urandom(16)
        elif isinstance(a, (int, float, str, bytes, bytearray)):
            data = (
                a.encode("utf-8", "surrogatepass")
                if isinstance(a, str)
                else bytes(a)
                if isinstance(a, (bytes, bytearray))
                else repr(a).encode()
            )
            key = hashlib.blake2b(data, digest_size=16, person=type(a).__name__.encode()).digest()
        else:
            raise TypeError(
                f"seed: {type(a).__name__} is not allowed: give an int, float, str, bytes or bytearray, or None"
            )
        self._philox.move_to(((int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")), (0, 0, 0, 0), 4))
        self.gauss_next = None

    def getstate(self) -> tuple[Any, ...]:
        """Return what ``setstate`` goes back to."""
        return (self._philox.position(), self.gauss_next)

    def setstate(self, state: Any) -> None:
        """Go back to what ``getstate`` has returned."""
        position, self.gauss_next = state
        self._philox.move_to(position)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle it with its place in the stream."""
        return (_restored, (self.getstate(),))


def _restored(state: Any) -> RunRandom:
    made = RunRandom(Philox((0, 0), (0, 0, 0, 0)))
    made.setstate(state)
    return made


class NumpyStream:
    """The generator of a run for NumPy, which can be moved to another run: a new one costs ten
    times as much.
    """

    __slots__ = ("_counter", "_state", "bits", "generator")

    def __init__(self, key: tuple[int, int]) -> None:
        try:
            import numpy
        except ImportError as error:
            raise ImportError("run.numpy needs NumPy: pip install numpy, or use run.random") from error
        self.bits = numpy.random.Philox(key=numpy.array(key, numpy.uint64))
        self.generator = numpy.random.Generator(self.bits)
        self._state: Any = self.bits.state
        self._counter: Any = self._state["state"]["counter"]

    def begin(self, counter: list[int]) -> None:
        """Go to the beginning of a stream, at block 0 of a counter of four words."""
        # NumPy counts up before it makes a block.
        self._counter[:] = (_WORD, counter[1] - 1 & _WORD, counter[2] - (counter[1] == 0), counter[3])
        self.bits.state = self._state
