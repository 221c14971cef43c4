"""Results of a campaign as CSV, Parquet and data frames: rows in order of run, with the parameters
that differ between sets.

A temporary file in the same folder replaces the target when it is complete. Rows are read and
written in batches, in constant memory.
"""

from __future__ import annotations

import csv
import datetime
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tidewire.errors import InvalidArgument

if TYPE_CHECKING:
    from tidewire._campaigns.campaign import Campaign
    from tidewire._campaigns.report import Batch

_SETS_JOINED_MAX = 10_000
_ROWS_OF_A_GROUP = 100_000
_KINDS_OF_PLAIN = {int: "integer", float: "float", str: "text", bool: "boolean"}


class Table:
    """The typed columns of an export, and the values of batches in the same order."""

    def __init__(self, campaign: Campaign) -> None:
        columns = campaign.columns
        if columns is None:
            raise InvalidArgument(
                f"campaign: {campaign.name!r} has no results yet: its columns are known once a run has succeeded"
            )
        self._sets = campaign.sets
        self._many = bool(campaign.many)
        self._columns = columns
        self.columns: dict[str, str] = {"run": "integer"}
        if self._many:
            self.columns["row"] = "integer"
        if self._sets > 1:
            self.columns["param_set"] = "integer"
        self._parameters = _parameters(campaign) if 1 < self._sets <= _SETS_JOINED_MAX else {}
        for name, values in self._parameters.items():
            self.columns[name if name not in columns else f"param_{name}"] = _kind(values)
        self.columns.update(columns)

    def values(self, batch: Batch) -> list[Sequence[Any]]:
        """Return the values of a batch by column."""
        columns: list[Sequence[Any]] = [batch.runs]
        if self._many:
            columns.append(batch.rows)
        if self._sets > 1:
            sets = [run % self._sets for run in batch.runs]
            columns.append(sets)
            columns += [[values[number] for number in sets] for values in self._parameters.values()]
        return columns + [batch.columns[name] for name in self._columns]


def _parameters(campaign: Campaign) -> dict[str, list[Any]]:
    """Return the parameters that differ between sets, with their values by set. Nested values
    become text.
    """
    stored_sets = campaign._stored_sets()
    sets: list[dict[str, Any]] = [json.loads(stored_sets[number]) for number in range(campaign.sets)]
    names = dict.fromkeys(name for values in sets for name in values)
    varied = {}
    for name in names:
        values = [one.get(name) for one in sets]
        if any(value != values[0] for value in values):
            has_one_type = len({type(value) for value in values if value is not None}) == 1
            is_plain = has_one_type and all(type(value) in _KINDS_OF_PLAIN for value in values if value is not None)
            varied[name] = values if is_plain else [None if value is None else str(value) for value in values]
    return varied


def _kind(values: Sequence[Any]) -> str:
    return next((_KINDS_OF_PLAIN[type(value)] for value in values if value is not None), "text")


def to_csv(campaign: Campaign, path: str | os.PathLike[str] | IO[str]) -> int:
    """Write the rows as CSV; see ``Campaign.to_csv``."""
    table = Table(campaign)
    if not isinstance(path, (str, os.PathLike)):
        return _write_csv(campaign, table, path)
    with replaced_file(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        return _write_csv(campaign, table, file)


def _write_csv(campaign: Campaign, table: Table, file: IO[str]) -> int:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table.columns)
    needs_text = [kind in ("boolean", "time") for kind in table.columns.values()]
    count = 0
    for batch in campaign.batches():
        values = [
            _as_text(column) if as_text else column
            for column, as_text in zip(table.values(batch), needs_text, strict=True)
        ]
        writer.writerows(zip(*values, strict=True))
        count += len(batch.runs)
    return count


def _as_text(values: Sequence[Any]) -> list[str | None]:
    """Return booleans and times as text that other programs read."""
    return [
        value.isoformat() if isinstance(value, datetime.datetime) else None if value is None else str(value).lower()
        for value in values
    ]


def to_parquet(campaign: Campaign, path: str | os.PathLike[str]) -> int:
    """Write the rows as Parquet; see ``Campaign.to_parquet``."""
    try:
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise InvalidArgument(f"to_parquet: it needs pyarrow ({error}): pip install 'pyarrow>=14'") from error
    table = Table(campaign)
    types = {
        "integer": pyarrow.int64(),
        "float": pyarrow.float64(),
        "boolean": pyarrow.bool_(),
        "time": pyarrow.timestamp("us", tz="UTC"),
    }
    schema = pyarrow.schema([(name, types.get(kind, pyarrow.string())) for name, kind in table.columns.items()])
    count = 0
    with replaced_file(path) as temporary, parquet.ParquetWriter(temporary, schema, compression="zstd") as writer:
        # Memory is bounded by one row group, some tens of megabytes.
        for batch in campaign.batches(rows_max=_ROWS_OF_A_GROUP):
            arrays = [
                pyarrow.array(values, type=field.type)
                for values, field in zip(table.values(batch), schema, strict=True)
            ]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
            count += len(batch.runs)
    return count


def frame(campaign: Campaign, kind: str | None = None) -> Any:
    """Return all rows as a data frame; see ``Campaign.frame``."""
    library = _library(kind)
    table = Table(campaign)
    columns: dict[str, list[Any]] = {name: [] for name in table.columns}
    for batch in campaign.batches(rows_max=_ROWS_OF_A_GROUP):
        for name, values in zip(columns, table.values(batch), strict=True):
            columns[name] += values
    if library == "polars":
        polars = import_module("polars")
        types = {"integer": polars.Int64, "float": polars.Float64, "boolean": polars.Boolean, "text": polars.String}
        types |= {"json": polars.String, "time": polars.Datetime("us", "UTC")}
        return polars.DataFrame(columns, schema={name: types[kind] for name, kind in table.columns.items()})
    return import_module("pandas").DataFrame(columns)


def _library(kind: str | None) -> str:
    """Return the data frame library: the requested one, else an imported or an installed one."""
    libraries = ("pandas", "polars")
    if kind is not None and kind not in libraries:
        raise InvalidArgument(f"kind: {kind!r} is not allowed: give 'pandas' or 'polars'")
    candidates = libraries if kind is None else (kind,)
    library = next((name for name in candidates if name in sys.modules), None) or next(
        (name for name in candidates if find_spec(name) is not None), None
    )
    if library is None:
        raise InvalidArgument(f"frame: {' and '.join(candidates)} can't be imported: pip install {candidates[0]}")
    return library


@contextmanager
def replaced_file(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield the path of a temporary file in the same folder. It replaces ``path`` at the end of the
    block.
    """
    target = Path(path)
    if target.is_dir():
        raise InvalidArgument(f"path: {str(target)!r} is a folder: name a file")
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise InvalidArgument(
            f"path: {str(target)!r} can't be written ({error.strerror}): name a folder that can be"
        ) from error
    os.close(handle)
    try:
        yield temporary
        os.chmod(temporary, 0o666 & ~_mask())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _mask() -> int:
    """Return the umask of this process."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
