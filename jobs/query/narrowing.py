"""Narrows what has to be read for a filter of DuckDB: to ranges of time, and series.

Arrow decides that, as it decides which files of a data set to open: from a filter, and what is known of some
rows ("`time` lies between these two instants"), it tells whether any of these may pass. The literals of the
filter cut time, and the values of a series field, into points and the gaps between them; within a gap the
filter can't tell two values apart. What Arrow can't decide is read: maybe more than needed, and never less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from bucketwise.archivers.format.series import column_name
from bucketwise.buckets.fields.selectors import Selector, series_text
from bucketwise.buckets.fields.times import DAY_MS, FIRST_MS, LAST_MS

INSTANT = pa.timestamp("us", tz="UTC")


Range = tuple[int, int]


EVER: tuple[Range, ...] = ((FIRST_MS, LAST_MS + 1),)


#: With more literals than this, looking at each is not worth it.
_MOST_POINTS = 1000


_MOST_SELECTORS = 100


#: Ranges with less than this between them are read as one; and all of them where there are too many.
_NEAR_MS, _MOST_RANGES = 60_000, 100


_EXACT = {"string": pa.string(), "int64": pa.int64(), "bool": pa.bool_()}


_FORMAT, _NOWHERE = ds.ParquetFileFormat(), LocalFileSystem()


@dataclass(frozen=True)
class Narrowed:
    """What has to be read: ranges [start, end) in milliseconds, in order and apart, and the series that any
    selector matches. No selectors: all series. No ranges: nothing."""

    ranges: tuple[Range, ...] = EVER
    selectors: tuple[Selector, ...] = ()


def narrowed(filter_: pc.Expression | None, schema: pa.Schema, time: str, series: dict[str, str]) -> Narrowed:
    """Returns the ranges and series that a filter leaves. `time`: the column of instants, or of days;
    `series`: the types of series columns, by the fields' names."""
    if filter_ is None:
        return Narrowed()
    literals = _literals(filter_)
    row_test = _RowTest(filter_, schema)
    ranges = _ranges(row_test, schema, time, literals)
    texts = {
        name: found
        for name, kind in series.items()
        if kind in _EXACT
        and (found := _texts(row_test, column_name(name), _EXACT[kind], literals)) is not None
    }
    if not all(texts.values()):
        return Narrowed(())
    while prod(map(len, texts.values())) > _MOST_SELECTORS:
        del texts[max(texts, key=lambda name: len(texts[name]))]
    selectors = [dict(zip(texts, it, strict=True)) for it in product(*texts.values())] if texts else []
    return Narrowed(ranges, tuple(selectors))


class _RowTest:
    """Decides which rows may pass a filter."""

    def __init__(self, filter_: pc.Expression, schema: pa.Schema) -> None:
        self._filter, self._schema = filter_, schema

    def among(self, known: Sequence[pc.Expression]) -> list[int]:
        """Returns the indices of those of these conditions under which a row may pass."""
        pieces = [
            _FORMAT.make_fragment(str(i), _NOWHERE, partition_expression=it) for i, it in enumerate(known)
        ]
        whole = ds.FileSystemDataset(pieces, self._schema, _FORMAT, _NOWHERE)
        return sorted(int(it.path) for it in whole.get_fragments(filter=self._filter))  # opens no file


def _ranges(row_test: _RowTest, schema: pa.Schema, time: str, literals: Sequence[Any]) -> tuple[Range, ...]:
    field, kind = pc.field(time), schema.field(time).type
    length, per_ms = (DAY_MS, 1) if kind == pa.date32() else (1, 1000)  # of what the column counts
    low, high = FIRST_MS * per_ms // length, ((LAST_MS + 1) * per_ms - 1) // length
    points = sorted({at for it in _of_type(literals, kind) if low <= (at := it.value) <= high})
    spans = []  # first and last
    for before, at in pairwise([None, *points[:: len(points) // _MOST_POINTS + 1], None]):
        spans.append((low if before is None else before + 1, high if at is None else at - 1))
        spans += [] if at is None else [(at, at)]
    spans = [it for it in spans if it[0] <= it[1]]
    known = [(field >= _instant(first, kind)) & (field <= _instant(last, kind)) for first, last in spans]
    passed = [spans[i] for i in row_test.among(known)]
    return _joined([(first * length // per_ms, last * length // per_ms + length) for first, last in passed])


def _instant(count: int, kind: pa.DataType) -> pc.Expression:
    return pc.scalar(pa.scalar(count, kind))


def _joined(ranges: Sequence[Range]) -> tuple[Range, ...]:
    near: list[Range] = []
    for start, end in ranges:
        if near and start - near[-1][1] < _NEAR_MS:
            near[-1] = near[-1][0], max(near[-1][1], end)
        else:
            near.append((start, end))
    return tuple(near) if len(near) <= _MOST_RANGES else ((near[0][0], near[-1][1]),)


def _texts(row_test: _RowTest, column: str, kind: pa.DataType, literals: Sequence[Any]) -> list[str] | None:
    """Returns the texts of the values of a series field that may pass; None where these can't be named."""
    values = sorted({it.as_py() for it in _of_type(literals, kind)})
    if not values or len(values) > _MOST_POINTS:
        return None
    field, points = pc.field(column), [pc.scalar(pa.scalar(it, kind)) for it in values]
    gaps = [field < points[0], field > points[-1], field.is_null()]
    gaps += [(field > low) & (field < high) for low, high in pairwise(points)] if kind != pa.bool_() else []
    if row_test.among(gaps):
        return None
    return [series_text(values[i]) for i in row_test.among([field == it for it in points])]


def _of_type(literals: Sequence[Any], kind: pa.DataType) -> Iterator[Any]:
    return (it for it in literals if it.type == kind and it.is_valid)


def _literals(filter_: pc.Expression) -> list[Any]:
    """Returns all values that a filter names, found where Arrow keeps them for another process. Without them
    everything is read."""
    try:
        kept = pa.ipc.open_file(filter_.__reduce__()[1][0]).get_batch(0)
    except (pa.ArrowException, AttributeError, TypeError, LookupError):
        return []
    found: list[Any] = []
    for column in kept.columns:
        values = column.flatten() if pa.types.is_struct(column.type) else [column]
        for one in values:
            found += [it for row in one for it in row.values] if pa.types.is_list(one.type) else list(one)
    return found
