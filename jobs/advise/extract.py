"""A part of a collection, and a database of its own to try it in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from pydantic import SecretStr
from pymongo import DESCENDING
from pymongo.database import Database

from bucketwise.buckets.bson.cursor import find_raw
from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.columns import Series
from bucketwise.buckets.fields.selectors import series_query
from bucketwise.buckets.models.series import SeriesTable
from bucketwise.buckets.sampling.sample import has_index
from bucketwise.buckets.source import Source
from bucketwise.buckets.writing.exact import ExactReadings, Losses, exact_of, joined
from bucketwise.buckets.writing.targets import TARGETS, in_order, readings_in
from bucketwise.config.checks.names import database_fault
from bucketwise.config.errors import UsageError
from bucketwise.config.policies import Policy
from bucketwise.config.tables import MongoDB
from bucketwise.jobs.core import connect, lease
from bucketwise.jobs.core.embedded import EmbeddedMongodError, embedded_mongod
from bucketwise.jobs.core.lease import Lease

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
                f"there is no mongod to try models in: {error}. Or name a database to make for it on the "
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
    """What was made here, the mark last. The books are not where policies of others have runs in them."""
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
        source.model.own_times and has_index(source.indexes, source.last_field)
    ):
        parts, how = [_last(source, readings, table, losses, check)], "the last readings of all series"
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
        find_raw(source.collection, query, sort=[order], limit=count, reads_ahead=False), 1000
    ):
        batch: Batch = source.with_overflow(Docs.of(list(docs)))
        parts.append(exact_of(batch, source.policy, table, losses)[0])
        size += docs.size
        if size > _BYTES:
            break
    return joined(parts)


def _last(
    source: Source, readings: int, table: SeriesTable, losses: Losses, check: Callable[[], None]
) -> ExactReadings:
    """Returns the readings before the last time, as far back as it takes."""
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
