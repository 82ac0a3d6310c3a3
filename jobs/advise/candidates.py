"""The same readings in each model: written into a scratch database, and measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any

import numpy as np
from pydantic import SecretStr
from pymongo import DESCENDING
from pymongo.database import Database
from pymongo.errors import OperationFailure

from bucketwise.archivers.format.parquet import read_rows, write_part
from bucketwise.archivers.format.series import RowFilter, column_name, series_types
from bucketwise.buckets.bson.cursor import First, find_raw
from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.bson.types import DOUBLE
from bucketwise.buckets.columns import Series
from bucketwise.buckets.fields.selectors import series_query, series_text
from bucketwise.buckets.fields.times import DAY_MS, as_date
from bucketwise.buckets.models.series import SeriesTable
from bucketwise.buckets.packing import Rows
from bucketwise.buckets.source import Source
from bucketwise.buckets.writing import (
    CARRIED,
    TARGETS,
    DocumentWriter,
    ExactReadings,
    Losses,
    Target,
    exact_of,
    in_order,
    joined,
    misfits,
    readings_in,
    target_of,
    updates,
)
from bucketwise.config.checks.names import database_fault
from bucketwise.config.errors import UsageError
from bucketwise.config.policies import Policy, Rollup
from bucketwise.config.tables import MongoDB
from bucketwise.jobs.core import connect, lease
from bucketwise.jobs.core.embedded import EmbeddedMongodError, embedded_mongod
from bucketwise.jobs.core.lease import Lease
from bucketwise.jobs.core.runner import Runner
from bucketwise.jobs.core.stopping import Stop
from bucketwise.jobs.output.progress import ProgressDisplay
from bucketwise.jobs.rollup import ROLLUP
from bucketwise.rollups.answers import Question
from bucketwise.rollups.answers import summarize as summarize_range

Document = dict[str, Any]

Scratch = tuple[Database[Document], Callable[[], None]]
_EMBEDDED = "scratch"
#: In which collections models and summaries are tried.
TRY, ROLLED, HOURLY, DAILY = "try_", "rolled", "rolled_hourly", "rolled_daily"
_OWN = {*(TRY + it for it in TARGETS), ROLLED, HOURLY, DAILY}
#: The policy of these summaries: no policy file can name one so.
SUMMARIES = "advise summaries"
_BOOKS = "bucketwise_"
#: The lease that marks a database as made here.
_MARK = "advise --scratch"


@contextmanager
def scratch_database(database: Database[Document], name: str | None) -> Iterator[Scratch]:
    """Gives a new database of this name on the same server; without a name, one of a mongod of its own; and a
    check, which raises LeaseLostError once another has taken it over. It is gone once the block has ended,
    however it ends. Raises UsageError, and LeaseHeldError where another process tries models in it."""
    with ExitStack() as held:
        if name is not None:
            if fault := database_fault(name):
                raise UsageError(f"--scratch {name}: {fault.message}; {fault.remedy}")
            yield held.enter_context(_on_server(database.client[name]))
            return
        try:
            mongod = held.enter_context(embedded_mongod())
        except EmbeddedMongodError as error:
            raise UsageError(
                f"models can't be tried: {error}. Or name a database to make for it on the "
                "server itself: --scratch DATABASE. Or leave it out: --no-candidates"
            ) from error
        settings = MongoDB(uri=SecretStr(mongod.uri), database=_EMBEDDED)
        yield held.enter_context(connect.connect(settings))[_EMBEDDED], lambda: None


@contextmanager
def _on_server(scratch: Database[Document]) -> Iterator[Scratch]:
    if scratch[lease.COLLECTION].find_one({"_id": _MARK}):
        with Lease(scratch, _MARK):  # whoever made it was killed
            if _collections_in(scratch) <= {*_own_collections(scratch)}:
                _clear(scratch)
    if scratch.list_collection_names():
        raise UsageError(
            f"--scratch {scratch.name}: this database already exists. Name a new one: it is dropped in "
            "the end"
        )
    with Lease(scratch, _MARK) as held_lease:
        try:
            yield scratch, held_lease.check
        finally:
            if held_lease.loss() is None:
                _clear(scratch)


def _collections_in(scratch: Database[Document]) -> set[str]:
    return {it for it in scratch.list_collection_names() if not it.startswith("system.")}


def _own_collections(scratch: Database[Document]) -> list[str]:
    """Returns the collections made here, the mark last. The books are not where policies of others have runs
    in them."""
    leases = {it["_id"] for it in scratch[lease.COLLECTION].find({}, {"_id": 1})}
    books = () if leases - {_MARK, SUMMARIES} else (_BOOKS,)
    made = (it for it in _collections_in(scratch) if it in _OWN or it.startswith(books))
    return sorted(made, key=lease.COLLECTION.__eq__)


def _clear(scratch: Database[Document]) -> None:
    """Drops what was made, and the database, unless somebody else has created something in it since."""
    for it in _own_collections(scratch):
        scratch.drop_collection(it)
    if not _collections_in(scratch):  # of time series MongoDB keeps `system.views`
        scratch.client.drop_database(scratch.name)


#: Of so many series, where an index finds them.
_SERIES = 20
_HOUR_MS, _WIDER = 3_600_000, 4
_BYTES = 64_000_000


@dataclass(frozen=True)
class Extract:
    """Some readings by series, then time; and how they were chosen."""

    policy: Policy
    exact: ExactReadings
    series: list[Series]
    losses: Losses
    how: str

    @property
    def is_whole_minutes(self) -> bool:
        """Returns whether all are on whole minutes."""
        return not (self.exact.time % 60_000).any()

    @property
    def busiest(self) -> int:
        """Returns the index of the series with most readings."""
        return int(np.bincount(self.exact.series_index).argmax())


def extract(
    source: Source, series: Sequence[Series], readings: int, a_bucket: float, check: Callable[[], None]
) -> Extract:
    """Returns about so many of the last readings, of some series where an index finds these. `a_bucket`:
    readings in a bucket of the sample; `series`: those in the sample. It takes a few commands, and none reads
    more than a few times what it returns."""
    table, losses = SeriesTable(), Losses()
    chosen = series[:: math.ceil(len(series) / _SERIES)] if series else []
    if chosen and _finds_series(source):
        each = math.ceil(readings / len(chosen) / max(1.0, a_bucket))
        parts = [_of_series(source, one, each, table, losses) for one in chosen]
        how = f"the last readings of {len(chosen):,} series"
    elif not source.model.needs_index or (
        source.model.own_times and source.comparison.has_index(source.last_field)
    ):
        parts = [_last_readings(source, readings, table, losses, check)]
        how = "the last readings of all series"
    else:
        count = math.ceil(readings / max(1.0, a_bucket))
        parts, how = (
            [_found(source, {}, ("$natural", DESCENDING), count, table, losses)],
            "what was written last",
        )
    return Extract(source.policy, in_order(joined(parts)), table.series, losses, how)


def _finds_series(source: Source) -> bool:
    """Returns whether an index finds the last buckets of one series."""
    if not source.model.needs_index or source.policy.sample_series or not source.model.own_times:
        return False
    wanted = {*source.policy.stored_series.values()}
    for index in source.indexes:
        keys = list(index["key"])
        if set(keys[: len(wanted)]) == wanted and keys[len(wanted) : len(wanted) + 1] == [source.last_field]:
            return "partialFilterExpression" not in index and not index.get("hidden")
    return False


def _of_series(
    source: Source, series: Series, count: int, table: SeriesTable, losses: Losses
) -> ExactReadings:
    query = series_query(source.policy, series)
    return _found(source, query, (source.last_field, DESCENDING), count, table, losses)


def _found(
    source: Source, query: Document, order: tuple[str, int], count: int, table: SeriesTable, losses: Losses
) -> ExactReadings:
    parts, size = [ExactReadings.none(source.policy.value_names)], 0
    for docs in islice(
        find_raw(source.collection, query, first=First(count, [order]), reads_ahead=False), 1000
    ):
        batch: Batch = source.with_overflow(Docs.of(list(docs)))
        parts.append(exact_of(batch, source.policy, table, losses)[0])
        size += docs.size
        if size > _BYTES:
            break
    return joined(parts)


def _last_readings(
    source: Source, readings: int, table: SeriesTable, losses: Losses, check: Callable[[], None]
) -> ExactReadings:
    """Returns those of all series from some instant on, at least so many if there are."""
    rough = source.rough
    latest, earliest = rough.latest(), rough.earliest()
    best = ExactReadings.none(source.policy.value_names)
    if latest is None or earliest is None:
        return best
    width, before = _HOUR_MS, 0
    while True:
        check()
        found = readings_in(rough, latest + 1 - width, latest + 1 + _HOUR_MS, table, losses, 2 * readings)
        if found is None and not before and width > 1:  # more than enough in the first hour
            width = max(1, width // _WIDER**2)
            continue
        if found is None:
            return best
        best, before = found, width
        if len(found) >= readings or latest - width < earliest:
            return best
        width *= _WIDER


Body = dict[str, Any]

#: Spans of the queries for one series, up to its last reading: milliseconds.
SPANS = {"hour": 3_600_000, "day": DAY_MS, "month": 30 * DAY_MS}
#: What is told of each model, for the collection as a whole.
SIZES = ("documents", "data_bytes", "index_bytes", "storage_bytes")
_INSERTED, _UPDATED, _ROUNDS = 1_000, 3_000, 3


@dataclass
class Measured:
    """Measurements of some readings in one model. Bytes; readings a second; milliseconds a query."""

    model: str
    documents: int = 0
    data_bytes: int = 0
    index_bytes: int = 0
    storage_bytes: int | None = None
    inserts: float | None = None  # readings a second, as whole documents
    updates: float | None = None  # as they come in, one by one
    queries: dict[str, float] = field(default_factory=dict)
    unfit: str | None = None  # why the model has no place for them


def measured(
    database: Database[Document], extract: Extract, check: Callable[[], None], models: Iterable[str] = TARGETS
) -> Iterator[Measured]:
    """Yields each model that the readings fit into, and Parquet; of others why they don't. What is written is
    dropped again."""
    for model in models:
        check()
        whole = extract.is_whole_minutes
        target = target_of(model, extract.policy, TRY + model, is_whole_minutes=whole)
        wrong = [f"{count:,} {what}" for what, count in misfits(target, extract.exact) if count]
        if wrong:
            yield Measured(model, unfit="; ".join(wrong))
            continue
        found = Measured(model)
        documents = list(DocumentWriter(target, extract.series).add(extract.exact, None))
        _insert(database, target, documents, found, len(extract.exact))
        _sizes(database, target, found)
        found.queries = dict(_queries(database, target, extract))
        database.drop_collection(target.policy.collection)
        check()
        _update(database, target, extract, found)
        yield found
    yield _parquet(extract)


def made(database: Database[Document], target: Target) -> None:
    """Makes the collection of a target, with its indexes."""
    database.create_collection(target.policy.collection, **target.options)
    for keys in target.model.indexes:
        database[target.policy.collection].create_index(keys)


def _insert(
    database: Database[Document], target: Target, documents: list[Document], found: Measured, readings: int
) -> None:
    made(database, target)
    collection, left = database[target.policy.collection], iter(documents)
    start = perf_counter()
    while some := list(islice(left, _INSERTED)):
        collection.insert_many(some, ordered=False)
    found.inserts = readings / (perf_counter() - start)
    found.documents = len(documents)


def _sizes(database: Database[Document], target: Target, found: Measured) -> None:
    name = target.policy.collection
    held = target.model.held_in(name)
    try:
        database.client.admin.command("fsync")  # sizes on disk are those of the last checkpoint
    except OperationFailure:
        pass
    else:
        found.storage_bytes = database.command("collStats", held)["storageSize"]
    stats = database.command("collStats", held)
    found.data_bytes, found.index_bytes = stats["size"], stats["totalIndexSize"]
    if (native := stats.get("timeseries")) is not None:
        found.documents = native["bucketCount"]


def _update(database: Database[Document], target: Target, extract: Extract, found: Measured) -> None:
    first = np.sort(np.argsort(extract.exact.time, kind="stable")[:_UPDATED])
    operations = list(updates(target, extract.series, extract.exact.take(first)))
    made(database, target)
    start = perf_counter()
    database[target.policy.collection].bulk_write(operations)
    found.updates = len(operations) / (perf_counter() - start)
    database.drop_collection(target.policy.collection)


def _queries(database: Database[Document], target: Target, extract: Extract) -> Iterator[tuple[str, float]]:
    """Yields how long each query takes. Documents are fetched, and not decoded."""
    source = Source(database, target.policy)
    of_one = extract.exact.series_index == extract.busiest
    last = int(extract.exact.time[of_one].max())
    names = target.policy.stored_series.values()
    series = dict(zip(names, extract.series[extract.busiest], strict=True))
    order = [(source.last_field, DESCENDING)]

    def last_value() -> None:
        list(find_raw(source.collection, series, first=First(1, order), reads_ahead=False))

    yield "last", timed(last_value)
    for name, span in SPANS.items():
        yield name, timed(partial(_drain, source, last + 1 - span, last + 1, series))


def _drain(source: Source, start: int, end: int, series: Document) -> None:
    for _ in source.batches(start, end, series):
        pass


def timed(action: Callable[[], object]) -> float:
    """Returns milliseconds: the best of some rounds."""
    found = math.inf
    for _ in range(_ROUNDS):
        start = perf_counter()
        action()
        found = min(found, (perf_counter() - start) * 1000)
    return found


def _parquet(extract: Extract) -> Measured:
    """Returns the size of the extract as Parquet, a part a day, as an archive has them."""
    exact, names = extract.exact, extract.policy.series_names
    columns = ["time", *map(column_name, (*names, *exact.bits))]
    if len(set(columns)) < len(columns):
        return Measured("parquet", unfit=f"two columns of one name, among {', '.join(columns)}")
    types = series_types(extract.series, names)
    days = exact.time // DAY_MS
    start, parts = perf_counter(), {}
    for day in np.unique(days).tolist():
        rows = rows_of(exact.take(np.flatnonzero(days == day)), extract)
        parts[day * DAY_MS] = write_part(rows, slice(None), types)
    found = Measured("parquet", len(parts), sum(map(len, parts.values())), 0)
    found.storage_bytes = found.data_bytes
    found.inserts = len(exact) / (perf_counter() - start)
    last = int(exact.time[exact.series_index == extract.busiest].max())
    for name, span in {"last": 1, **SPANS}.items():
        row_filter = RowFilter(last + 1 - span, last + 1)
        held = [
            data for day, data in parts.items() if day < row_filter.end and day + DAY_MS > row_filter.start
        ]

        def read(row_filter: RowFilter = row_filter, held: list[bytes] = held) -> None:
            for data in held:
                list(read_rows(data, types, extract.policy.value_names, row_filter))

        found.queries[name] = timed(read)
    return found


def rows_of(exact: ExactReadings, extract: Extract) -> Rows:
    """Returns readings as rows of a part."""
    values = {
        name: np.where(exact.types[name] == DOUBLE, exact.bits[name].view(np.float64), exact.bits[name])
        for name in exact.bits
    }
    present = {name: np.isin(types, CARRIED) for name, types in exact.types.items()}
    return Rows(extract.series, exact.series_index, exact.time, values, present)


def scaled(found: Measured, factor: float) -> Body:
    """Returns the JSON of a candidate: sizes as they would be for the whole collection."""
    return {
        "model": found.model,
        **{size: _times(getattr(found, size), factor) for size in SIZES},
        "readings_per_second": {speed: _times(getattr(found, speed), 1) for speed in ("inserts", "updates")},
        "query_ms": {name: round(it, 3) for name, it in found.queries.items()},
        "unfit": found.unfit,
    }


def _times(number: float | None, factor: float) -> int | None:
    return None if number is None else round(number * factor)


def from_summaries(database: Database[Document], extract: Extract, stop: Stop) -> Document:
    """Returns the milliseconds that an hour, a day and a month of one series take, and the bytes of all
    summaries of the readings."""
    rollup = Rollup(hourly=HOURLY, daily=DAILY)
    # A document a reading: buckets of sparse readings would be long, and be read for each of their days.
    target = target_of("reading", extract.policy, ROLLED, is_whole_minutes=False)
    policy = target.policy.model_copy(update={"name": SUMMARIES, "rollup": rollup})
    made(database, target)
    written = DocumentWriter(target, extract.series).add(extract.exact, None)
    while some := list(islice(written, 10_000)):
        database[ROLLED].insert_many(some, ordered=False)
    last = as_date(int(extract.exact.time[extract.exact.series_index == extract.busiest].max()))
    now = last + timedelta(days=2)
    quiet = ProgressDisplay(quiet=True)
    runner = Runner("rollup", [ROLLUP], database, None, now, stop, quiet, is_now_given=True)
    (result,) = runner.run_all([policy])
    if result.error is not None:
        return {"error": result.error}
    series = extract.series[extract.busiest]
    selector = {name: series_text(it) for name, it in zip(policy.series_names, series, strict=True)}
    found: Document = {}
    for name in SPANS:
        since, until = _window(last, name)
        answer = partial(summarize_range, database, policy, Question(since, until, selector), stop.check)
        found[name] = round(timed(answer), 3)
    sizes = [database.command("collStats", it)["size"] for it in rollup.targets.values()]
    return {"query_ms": found, "data_bytes": sum(sizes)}


def _window(last: datetime, name: str) -> tuple[datetime, datetime]:
    """Returns whole hours or days up to the one with the last reading."""
    if name == "hour":
        since = last.replace(minute=0, second=0, microsecond=0)
        return since, since + timedelta(hours=1)
    until = last.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    return until - timedelta(milliseconds=SPANS[name]), until
