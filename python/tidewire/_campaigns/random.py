"""The random numbers of one run, for Python and for NumPy."""

from __future__ import annotations

import os
import random
from typing import Any

from tidewire._binding import Philox

_WORD = 2**64 - 1


class RunRandom(random.Random):
    """A ``random.Random`` with the numbers of one run. Its ``random`` and ``getrandbits`` are
    compiled; Python derives all other methods from them.
    """

    __slots__ = ("_philox", "getrandbits", "random")

    def __new__(cls, *_: Any) -> RunRandom:
        """Create a generator. The seed of the base class is never used."""
        generator: RunRandom = random.Random.__new__(cls, 0)  # type: ignore[call-arg]
        return generator

    def __init__(self, philox: Philox, unit: Any = None, bits: Any = None) -> None:
        self._philox = philox
        self.random = unit or philox.random  # type: ignore[method-assign]
        self.getrandbits = bits or philox.getrandbits  # type: ignore[method-assign]
        self.gauss_next: float | None = None

    def seed(self, a: Any = None, version: int = 2) -> None:
        """Start a stream that depends only on ``a``: an int, float, str, bytes or bytearray, or
        None for a random one.
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
        """Return the state for ``setstate``."""
        return (self._philox.position(), self.gauss_next)

    def setstate(self, state: Any) -> None:
        """Restore a state from ``getstate``."""
        position, self.gauss_next = state
        self._philox.move_to(position)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle the generator with its position in the stream."""
        return (_restored, (self.getstate(),))


def _restored(state: Any) -> RunRandom:
    generator = RunRandom(Philox((0, 0), (0, 0, 0, 0)))
    generator.setstate(state)
    return generator


class NumpyStream:
    """The NumPy generator of a run. Moving it to another run costs a tenth of creating one."""

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
        """Move to the start of a stream, at block 0 of a counter of four words."""
        # NumPy increments the counter before it generates a block.
        self._counter[:] = (_WORD, counter[1] - 1 & _WORD, counter[2] - (counter[1] == 0), counter[3])
        self.bits.state = self._state
