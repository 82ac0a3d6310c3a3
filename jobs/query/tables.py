"""Arrow tables of a policy for DuckDB: its readings, the summaries of a level, and its coverage by
day.

Arrow decides that, as it decides which files of a data set to open: from a filter, and what is known of some
rows ("`time` lies between these two instants"), it tells whether any of these may pass. The literals of the
filter cut time, and the values of a series field, into points and the gaps between them; within a gap the
filter can't tell two values apart. What Arrow can't decide is read: maybe more than needed, and never less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, pairwise, product
from math import prod
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from bson.datetime_ms import DatetimeMS
from pyarrow.fs import LocalFileSystem
from pymongo import ASCENDING, DESCENDING

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.coverage import CoverageQuery, Row, coverage_of, known_span
from bucketwise.archivers.format.parquet import arrow_type, as_table
from bucketwise.archivers.format.series import as_written, column_name, misfit, series_types
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.reading.archived import archived_reader
from bucketwise.archivers.reading.readings import Readings
from bucketwise.buckets.bson.cursor import SIMPLE
from bucketwise.buckets.columns import Quarantined, Series
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.selectors import Selector, extended_json, series_text, summary_query
from bucketwise.buckets.fields.times import DAY_MS, FIRST_MS, LAST_MS, TimeRange, as_date
from bucketwise.buckets.sampling.sample import sample
from bucketwise.config.errors import BucketwiseError
from bucketwise.config.policies import CALENDAR_LEVELS, LevelName, Policy
from bucketwise.rollups.calendar.windows import to_ms
from bucketwise.rollups.statistics import columns_of, statistics_of
from bucketwise.rollups.summaries import documents
from bucketwise.rollups.summaries.coverage import interval_of

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
    """The ranges and series to read: ranges [start, end) in milliseconds, in order and apart, and the series
    that any selector matches. No selectors: all series. No ranges: nothing."""

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


Document = dict[str, Any]

Types = dict[str, str]  # series field -> "int64", "bool", "double" or "string"
_AT_ONCE = 5_000  # summaries that are held as documents


class Misfit(BucketwiseError):
    """A series that the columns can't hold as they are. `types`: those that can."""

    def __init__(self, policy: str, field: str, value: Any, types: Types) -> None:
        super().__init__(
            f"policy {policy}: the series field {field} holds values of several types; its column has "
            f"another than {extended_json(value)}. Write the result to a file with --output: then the query "
            "starts again, with a column that holds them all"
        )
        self.policy, self.types = policy, types


class Table(Protocol):
    """The source of a view's rows."""

    schema: pa.Schema
    time: str  # the column by which ranges are found
    types: Types  # of the series columns

    def read(self, narrowed: Narrowed) -> Iterator[pa.Table]:
        """Yields all rows of the ranges and series that it is narrowed to, and maybe others."""


class ReadingsTable:
    """Every reading, live and archived, each once."""

    time = "time"

    def __init__(self, context: ArchiveContext, types: Types) -> None:
        self.types, self._context = types, context
        self.quarantined: dict[str, Quarantined] = {}
        values = [(column_name(it), pa.float64()) for it in context.policy.value_names]
        self.schema = pa.schema([*_series_columns(types), ("time", INSTANT), *values])

    def read(self, narrowed: Narrowed) -> Iterator[pa.Table]:
        """Yields the readings of the ranges and series that the query was narrowed to."""
        context = self._context
        for start, end in narrowed.ranges:
            found = Readings(
                context.database,
                context.policy,
                context.store,
                since=as_date(start),
                until=as_date(end) if as_date(end) != as_date(end - 1) else None,
                among=narrowed.selectors,
                check=context.check,
                keys=context.keys,
            )
            for rows in found:
                _fit(context.policy, rows.series, self.types)
                context.progress("readings", len(rows.time))
                yield as_table(rows, slice(None), self.types).cast(self.schema)
            self.quarantined |= {repr(it.id): it for it in found.quarantined}


class SummariesTable:
    """The summaries of one level: a row a series and window, a column a statistic."""

    time = "start"

    def __init__(self, context: ArchiveContext, level: LevelName, types: Types) -> None:
        policy = context.policy
        assert policy.rollup is not None
        self.types, self._context = types, context
        self._collection = context.database.get_collection(
            policy.rollup.targets[level], codec_options=documents.OPTIONS
        )
        self._paths = _summary_columns(policy, level)
        fields = [(name, kind) for name, (kind, _) in self._paths.items()]
        self.schema = pa.schema([*_series_columns(types), *fields])

    def read(self, narrowed: Narrowed) -> Iterator[pa.Table]:
        """Yields the summaries of windows that start in the ranges, of the series narrowed to."""
        policy = self._context.policy
        spans = [{"start": {"$gte": DatetimeMS(a), "$lt": DatetimeMS(b)}} for a, b in narrowed.ranges]
        if not spans:
            return
        series = [summary_query(it) for it in narrowed.selectors]
        query: Document = {"$and": [{"$or": spans}, *([{"$or": series}] if all(series) and series else [])]}
        stored = self._collection.find(query, {"coverage": 0}, collation=SIMPLE)
        found = (documents.filled(policy, it) for it in stored if documents.is_of_series(policy, it))
        while some := list(islice(found, _AT_ONCE)):
            self._context.check()
            self._context.progress("summaries", len(some))
            yield self._table(some)

    def _table(self, found: Sequence[Document]) -> pa.Table:
        policy = self._context.policy
        series = [documents.series_of(policy, it) for it in found]
        _fit(policy, series, self.types)
        held = list(zip(*(as_written(it, self.types) for it in series), strict=True))
        columns: list[Sequence[Any]] = [*held]
        for kind, path in self._paths.values():
            values = [documents.value_at(it, path) for it in found]
            if kind == INSTANT:
                values = [None if it is None else to_ms(it) * 1000 for it in values]
            elif pa.types.is_map(kind):
                values = [None if it is None else list(it.items()) for it in values]
            columns.append(values)
        arrays = [pa.array(it, field.type) for it, field in zip(columns, self.schema, strict=True)]
        return pa.table(arrays, schema=self.schema)


class CoverageTable:
    """A row a day, as `bucketwise coverage` has it."""

    time = "day"
    schema = pa.schema(
        [
            ("day", pa.date32()),
            ("state", pa.string()),
            *((name, pa.int64()) for name in ("readings", "live", "archived", "online", "summarised")),
            *((name, pa.int64()) for name in ("live_buckets", "pinned", "held", "quarantined")),
            ("expires_at", INSTANT),
            ("commits", pa.list_(pa.string())),
        ]
    )

    def __init__(self, context: ArchiveContext) -> None:
        self.types: Types = {}
        self._context = context

    def read(self, narrowed: Narrowed) -> Iterator[pa.Table]:
        """Yields a row for each day of the ranges."""
        first, last = known_span(self._context)
        archived = archive_of(self._context).evidence
        for start, end in narrowed.ranges:
            within = as_date(max(start, first)), as_date(min(end, last))
            if within[0] < within[1]:
                rows = coverage_of(self._context, archived, CoverageQuery(TimeRange(*within)))
                yield pa.Table.from_pylist(list(map(_day_row, rows)), self.schema)


def _day_row(row: Row) -> Document:
    counts = ("state", "readings", "live", "archived", "online", "summarised", "live_buckets", "pinned")
    return {
        "day": as_date(row.start).date(),
        **{name: getattr(row, name) for name in (*counts, "held", "quarantined")},
        "expires_at": row.expires,
        "commits": [it.commit for it in row.commits],
    }


def _series_columns(types: Types) -> list[tuple[str, pa.DataType]]:
    return [(column_name(name), arrow_type(kind)) for name, kind in types.items()]


def _summary_columns(policy: Policy, level: LevelName) -> dict[str, tuple[pa.DataType, str]]:
    """Returns the type of each column, and where it lies in a summary."""
    whole, number, instant = pa.int64(), pa.float64(), INSTANT
    found: list[tuple[str, pa.DataType]] = [("start", instant), ("end", instant)]
    if level in CALENDAR_LEVELS:
        found += [("timezone", pa.string()), ("hours", number)]
    found += [("count", whole)]
    if interval_of(policy) is not None:
        found += [("expected", whole), ("missing", whole)]
        found += [("longest_hole", number), ("longest_hole_at", instant)]
    seconds = pa.map_(pa.string(), number)
    types = {"whole": whole, "number": number, "instant": instant, "flag": pa.bool_(), "seconds": seconds}
    fields = statistics_of(policy).items()
    found += [(f"{name}.{it.key}", types[it.kind]) for name, kinds in fields for it in columns_of(kinds)]
    return {column_name(path): (kind, path) for path, kind in found}


def _fit(policy: Policy, series: Sequence[Series], types: Types) -> None:
    """Raises Misfit."""
    for one in series:
        if (found := misfit(one, types)) is not None:
            field, value = found
            is_number = types[field] in ("int64", "double") and type(value) in (int, float)
            kind = "double" if is_number and types[field] == "int64" and type(value) is float else "string"
            raise Misfit(policy.name, field, value, types | {field: kind})


def readings_reader(
    context: ArchiveContext, since: datetime | None, until: datetime | None, series: Selector
) -> pa.RecordBatchReader:
    """Returns the readings of a range as batches with the columns of parts, in the order of time. Raises
    UsageError where the policy has no such series field; while it is read, Misfit."""
    policy, types = context.policy, types_of(context)
    found = Readings(
        context.database, policy, context.store, since=since, until=until, series=series, keys=context.keys
    )
    values = [(column_name(it), pa.float64()) for it in policy.value_names]
    schema = pa.schema([*_series_columns(types), ("time", pa.timestamp("ms", tz="UTC")), *values])

    def batches() -> Iterator[pa.RecordBatch]:
        for rows in found:
            _fit(policy, rows.series, types)
            yield from as_table(rows, slice(None), types).cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


def types_of(context: ArchiveContext) -> Types:
    """Returns the types of the series columns: those of the archive's parts; without any, as the first and
    the last series that are summarised suggest them, or a sample of what is live."""
    policy = context.policy
    if known := archived_reader(context.connections, policy).series_types():
        return known
    found: list[Series] = []
    for target in policy.rollup.targets.values() if policy.rollup else ():
        collection = context.database.get_collection(target, codec_options=documents.OPTIONS)
        for order in (ASCENDING, DESCENDING):  # by type first
            ours = {"_id.series": {"$exists": True}}
            ends = collection.find(ours, {"_id": 1}).sort("_id", order).limit(1)
            found += [documents.series_of(policy, it) for it in ends if documents.is_of_series(policy, it)]
    if not found:
        found = decode(sample(context.source), policy).columns.series
    return series_types(found, policy.series_names)
