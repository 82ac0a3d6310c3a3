"""Reads the rows of a part that are of some series and a range, from the row groups that may hold them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bucketwise.archivers.format.parquet import as_ms, as_read, column_name
from bucketwise.buckets.columns import Series
from bucketwise.buckets.fields.selectors import Selector, series_text
from bucketwise.buckets.packing.pack import Rows


class RowFilter(NamedTuple):
    """Selects readings in [start, end), milliseconds, of the series that any of the selectors matches;
    without selectors, of all."""

    start: int
    end: int
    series: Sequence[Selector] = ()


def read_rows(
    data: bytes, types: dict[str, str], values: Sequence[str], row_filter: RowFilter
) -> Iterator[Rows]:
    """Yields the rows of a part that are asked for, in the order in which they lie there. `types`: of its
    series columns, which hold the series exactly. Raises pyarrow's errors where the file is damaged."""
    sought = [
        {column_name(it): _value(text, types[it]) for it, text in one.items()} for one in row_filter.series
    ]
    wanted = [it for it in sought if None not in it.values()]
    if sought and not wanted:
        return
    file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True, pre_buffer=False)
    columns = [*map(column_name, types), "time", *map(column_name, values)]
    for i in range(file.num_row_groups):
        group = file.metadata.row_group(i)
        if not wanted or any(_may_hold(group, it) for it in wanted):
            table = file.read_row_group(i, columns=columns, use_threads=False)
            if len(found := table.filter(_mask(table, wanted, row_filter))):
                yield _rows(found, types, values)


def _value(text: str, kind: str) -> Any:
    """Returns the value of a column that has this text; None where it can have none."""
    readers: dict[str, Any] = {"int64": int, "double": float, "bool": {"true": True, "false": False}.get}
    if kind == "string":
        return text
    with suppress(ValueError):
        value = readers[kind](text)
        if value is not None and series_text(as_read(value, kind)) == text:
            return value if kind != "int64" or -(2**63) <= value < 2**63 else None
    return None


def _may_hold(group: Any, wanted: Mapping[str, Any]) -> bool:
    """Returns whether a row group may hold these values, by its statistics."""
    for column in map(group.column, range(group.num_columns)):
        bounds = column.statistics if column.path_in_schema in wanted else None
        if bounds is None or not bounds.has_min_max:
            continue
        if not bounds.min <= wanted[column.path_in_schema] <= bounds.max:
            return False
    return True


def _mask(table: pa.Table, wanted: Sequence[Mapping[str, Any]], row_filter: RowFilter) -> pa.Array:
    times = as_ms(table["time"])
    found = (times >= row_filter.start) & (times < row_filter.end)
    if wanted:
        found &= np.logical_or.reduce([_has(table, it) for it in wanted])
    return pa.array(found)


def _has(table: pa.Table, values: Mapping[str, Any]) -> NDArray[np.bool_]:
    found = np.ones(len(table), dtype=np.bool_)
    for name, value in values.items():
        found &= np.asarray(pc.equal(table[name], pa.scalar(value, table[name].type)), dtype=np.bool_)
    return found


def _rows(table: pa.Table, types: dict[str, str], values: Sequence[str]) -> Rows:
    held = {name: table[column_name(name)] for name in values}
    series, of_row = _series(table, types)
    return Rows(
        series=series,
        row_series=of_row,
        time=as_ms(table["time"]),
        values={name: np.asarray(it.to_numpy(), dtype=np.float64) for name, it in held.items()},
        present={name: np.asarray(it.is_valid(), dtype=np.bool_) for name, it in held.items()},
    )


def _series(table: pa.Table, types: dict[str, str]) -> tuple[list[Series], NDArray[np.int32]]:
    """Returns the series of rows that lie together, and which of them each row is of."""
    is_first = np.zeros(len(table), dtype=np.bool_)
    is_first[0] = True
    columns = {name: table[column_name(name)] for name in types}
    for column in columns.values():
        codes = column.combine_chunks().dictionary_encode().indices.to_numpy()
        is_first[1:] |= np.diff(codes) != 0
    first = pa.array(np.flatnonzero(is_first))
    by_field = [
        [as_read(value, types[name]) for value in column.take(first).to_pylist()]
        for name, column in columns.items()
    ]
    series = list(zip(*by_field, strict=True)) if by_field else [()]
    return series, (np.cumsum(is_first) - 1).astype(np.int32)
