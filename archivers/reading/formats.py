"""Readings as CSV, as JSON (an object a line), and as Parquet: the columns of the archive's parts, by time.

Numbers that are not finite are written NaN, Infinity or -Infinity; in JSON, which has no such numbers, as
text. Where a reading has no number for a field, CSV has nothing, and JSON null.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import IO, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bucketwise.archivers.format.parquet import as_table
from bucketwise.archivers.format.series import column_name, misfit, series_types
from bucketwise.buckets.columns import Series
from bucketwise.buckets.fields.selectors import series_text
from bucketwise.buckets.packing import Rows
from bucketwise.config.errors import UsageError
from bucketwise.config.policies import Policy


class Format(StrEnum):
    """How readings are written."""

    csv = "csv"
    json = "json"
    parquet = "parquet"


#: Lines that are made at once.
_LINES = 20_000
_ROW_GROUP = 250_000
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
Wrote = Callable[[int], None]


class RowSource(Protocol):
    """Readings as rows, piece by piece."""

    @property
    def marks(self) -> Sequence[str]:
        """Returns the names of further columns."""

    @property
    def policy(self) -> Policy:
        """Returns the policy whose readings they are."""

    def __iter__(self) -> Iterator[Rows]:
        """Yields the rows in the order of time."""

    def series_types(self) -> dict[str, str]:
        """Returns the types of the series columns, where they are known."""


def write(readings: RowSource, form: Format, file: IO[bytes], wrote: Wrote = lambda _count: None) -> int:
    """Writes all readings, and returns how many. Calls `wrote` with each piece. Parquet needs a file that can
    be rewritten from its start. Raises UsageError where two columns have one name, which CSV alone takes."""
    columns = _columns(readings)
    twice = [name for name in columns if columns.count(name) > 1]
    if twice and form is not Format.csv:
        raise UsageError(
            f"two columns are named {twice[0]}, which {form} can't tell apart: write CSV, or give a value "
            f"field another name, in [policies.{readings.policy.name}.values.FIELD] with `as`"
        )
    if form is Format.parquet:
        return _write_parquet(readings, file, wrote)
    lines = _csv_lines if form is Format.csv else _json_lines
    if form is Format.csv:
        file.write((",".join(map(csv_text, columns)) + "\n").encode())
    count = 0
    for rows in readings:
        for text in lines(rows, readings):
            file.write(text.encode())
        count += len(rows.time)
        wrote(len(rows.time))
    file.flush()
    return count


def _columns(readings: RowSource) -> list[str]:
    names = (*readings.policy.series_names, "time", *readings.policy.value_names)
    return [*(column_name(name) for name in names), *readings.marks]


def _csv_lines(rows: Rows, readings: RowSource) -> Iterator[str]:
    policy = readings.policy
    series = [",".join(csv_text(series_text(value)) for value in one) for one in rows.series]
    for span in _spans(rows):
        values = [_numbers(rows, name, span, "", "{}") for name in policy.value_names]
        values += [_flags(rows.marks[name][span]) for name in readings.marks]
        names = [_of_rows(series, rows.row_series[span])] if policy.series_names else []
        yield "\n".join(map(",".join, zip(*names, _times(rows.time[span]), *values, strict=True))) + "\n"


def csv_text(text: str) -> str:
    """Returns a text as a cell of CSV."""
    if text and not any(mark in text for mark in ',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'


def _json_lines(rows: Rows, readings: RowSource) -> Iterator[str]:
    policy = readings.policy
    keys = [json.dumps(name, ensure_ascii=False) for name in _columns(readings)]
    width = len(policy.series_names)
    series = [
        "".join(f"{key}: {_json_value(value)}, " for key, value in zip(keys, one, strict=False))
        for one in rows.series
    ]
    escaped = [key.replace("{", "{{").replace("}", "}}") for key in keys[width + 1 :]]
    form = "{{{}" + f'{keys[width]}: "{{}}"' + "".join(f", {key}: {{}}" for key in escaped) + "}}\n"
    for span in _spans(rows):
        values = [_numbers(rows, name, span, "null", '"{}"') for name in policy.value_names]
        values += [_flags(rows.marks[name][span]) for name in readings.marks]
        columns = [_of_rows(series, rows.row_series[span]), _times(rows.time[span]), *values]
        yield "".join(map(form.format, *columns))


def _json_value(value: Any) -> str:
    plain = isinstance(value, str | bool | int | float)
    return json.dumps(value if plain else series_text(value), ensure_ascii=False)


def _spans(rows: Rows) -> Iterator[slice]:
    for start in range(0, len(rows.time), _LINES):
        yield slice(start, start + _LINES)


def _of_rows(texts: list[str], rows: NDArray[Any]) -> list[str]:
    return [texts[row] for row in rows.tolist()]


def _flags(flags: NDArray[np.bool_]) -> list[str]:
    return ["true" if it else "false" for it in flags.tolist()]


def _times(times: NDArray[np.int64]) -> list[str]:
    """Returns times as 2018-06-30T00:00:00.000Z."""
    distinct, rows = np.unique(times, return_inverse=True)
    texts = np.datetime_as_string(distinct.astype("M8[ms]"), unit="ms").tolist()
    return _of_rows([f"{text}Z" for text in texts], rows)


def _numbers(rows: Rows, name: str, span: slice, nothing: str, not_finite: str) -> list[str]:
    """Returns the shortest text that gives the same double again."""
    values = rows.values[name][span]
    texts = list(map(repr, values.tolist()))
    for at in np.flatnonzero(~np.isfinite(values)).tolist():
        texts[at] = not_finite.format(_NOT_FINITE[texts[at]])
    for at in np.flatnonzero(~rows.present[name][span]).tolist():
        texts[at] = nothing
    return texts


class _Misfit(Exception):
    """A series that the columns can't hold as they are."""


def _write_parquet(readings: RowSource, file: IO[bytes], wrote: Wrote) -> int:
    """Writes the columns of the archive. Where a series does not fit, starts again with wider types."""
    met: dict[tuple[type, ...], Series] = {}  # one series of each combination of types suffices
    types = readings.series_types()
    while True:
        try:
            return _write_table(readings, file, types, met, wrote)
        except _Misfit:
            types = series_types(list(met.values()), readings.policy.series_names)
            file.seek(0)
            file.truncate()


def _write_table(
    readings: RowSource,
    file: IO[bytes],
    types: dict[str, str],
    met: dict[tuple[type, ...], Series],
    wrote: Wrote,
) -> int:
    count = 0
    table = pa.table({})
    writer: pq.ParquetWriter | None = None
    for rows in readings:
        met.update((tuple(map(type, series)), series) for series in rows.series)
        types = types or series_types(list(met.values()), readings.policy.series_names)
        if any(misfit(series, types) for series in met.values()):
            raise _Misfit
        more = as_table(rows, slice(None), types)
        table = pa.concat_tables([table, more]) if len(table) else more
        if len(table) >= _ROW_GROUP:
            writer = _put(writer, file, table, types)
            table = pa.table({})
        count += len(rows.time)
        wrote(len(rows.time))
    if len(table) or writer is None:
        writer = _put(writer, file, table if len(table) else _nothing(readings, types), types)
    writer.close()
    return count


def _put(
    writer: pq.ParquetWriter | None, file: IO[bytes], table: pa.Table, types: dict[str, str]
) -> pq.ParquetWriter:
    if writer is None:
        encodings = {"time": "DELTA_BINARY_PACKED"}
        writer = pq.ParquetWriter(
            file,
            table.schema,
            compression="zstd",
            use_dictionary=[name for name in table.schema.names if name not in encodings],
            column_encoding=encodings,
            write_page_index=True,
            write_page_checksum=True,
            sorting_columns=[pq.SortingColumn(len(types))],
        )
    writer.write_table(table, row_group_size=_ROW_GROUP)
    return writer


def _nothing(readings: RowSource, types: dict[str, str]) -> pa.Table:
    """Returns no rows, with the columns that readings would have."""
    policy = readings.policy
    kinds = types or dict.fromkeys(policy.series_names, "string")
    numbers = {name: np.zeros(0) for name in policy.value_names}
    flags = {name: np.zeros(0, dtype=np.bool_) for name in policy.value_names}
    none = np.zeros(0, dtype=np.int64)
    marks = {name: np.zeros(0, dtype=np.bool_) for name in readings.marks}
    return as_table(Rows([], none.astype(np.int32), none, numbers, flags, marks), slice(None), kinds)
