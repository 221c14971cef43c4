"""Rows of results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, SupportsIndex, overload

from tidewire._campaigns.report import Batch


class Row(tuple[Any, ...]):
    """A row of results: ``row.hits`` or ``row["hits"]``, ``row.run``, and ``row.row`` if runs
    return several rows.
    """

    __slots__ = ()
    _fields: tuple[str, ...] = ()

    @overload
    def __getitem__(self, key: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Any, ...]: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...
    def __getitem__(self, key: Any) -> Any:
        """Return the value of a column, by name or position."""
        if isinstance(key, str):
            try:
                return tuple.__getitem__(self, self._fields.index(key))
            except ValueError:
                raise KeyError(f"no column {key!r}: there are {', '.join(self._fields)}") from None
        return tuple.__getitem__(self, key)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no column {name!r}: there are {', '.join(self._fields)}")

    def asdict(self) -> dict[str, Any]:
        """Return the values by column."""
        return dict(zip(self._fields, self, strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the row with its columns, since each campaign has a class of its own."""
        return _row, (self._fields, tuple(self))

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in self.asdict().items())})"


def row_class(fields: tuple[str, ...]) -> type[Row]:
    """Return a class of rows with these columns."""
    names: dict[str, Any] = {
        name: property(itemgetter_of(index)) for index, name in enumerate(fields) if name.isidentifier()
    }
    return type("Row", (Row,), {"__slots__": (), **names, "_fields": fields})


def _row(fields: tuple[str, ...], values: tuple[Any, ...]) -> Row:
    return row_class(fields)(values)


def itemgetter_of(index: int) -> Any:
    """Return a getter of the value at an index, which bypasses ``Row.__getitem__``."""
    return lambda row: tuple.__getitem__(row, index)


def rows_of(batches: Iterator[Batch], columns: dict[str, str], many: bool, sets: int) -> Iterator[Row]:
    """Iterate over the rows of batches, with JSON decoded."""
    fields = ("run", *(("row",) if many else ()), *(("param_set",) if sets > 1 else ()), *columns)
    make = row_class(fields)
    for batch in batches:
        parts: list[list[Any]] = [batch.runs]
        if many:
            parts.append(batch.rows)
        if sets > 1:
            parts.append([run % sets for run in batch.runs])
        for name, kind in columns.items():
            values = batch.columns[name]
            parts.append(
                [None if value is None else json.loads(value) for value in values] if kind == "json" else values
            )
        yield from map(make, zip(*parts, strict=True))
