"""Shared empty headers of all messages without headers, which spares the garbage collector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class _NoHeaders(Mapping[str, str]):
    """An immutable empty mapping."""

    __slots__ = ()

    def __getitem__(self, name: str) -> str:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "{}"

    def __reduce__(self) -> str:
        return "NO_HEADERS"


NO_HEADERS: Mapping[str, str] = _NoHeaders()
