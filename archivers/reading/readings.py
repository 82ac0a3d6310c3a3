"""The readings of a range, live and archived as one: each once, in the order of time, in bounded memory.

The range is read slice by slice. A slice that holds too many readings is cut, so that memory is bounded by
what a slice may hold and by the commits that overlap it, one at a time. MongoDB is read as it was at one
instant, a new one for each slice, and the store after that instant: a bucket that moves into the archive
meanwhile is found on one side, and not on both.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import OperationFailure

from bucketwise.archivers.context import Connections
from bucketwise.archivers.format.keys import UNSIGNED, Keys
from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.format.series import RowFilter
from bucketwise.archivers.moving.archive import check_archive
from bucketwise.archivers.reading.archived import archived_reader
from bucketwise.archivers.stores.base import NotFound, ObjectStore
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.columns import Columns, Quarantined, Series, is_number, joined
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.selectors import (
    Selector,
    check_selector,
    selected,
    selector_query,
    series_order,
)
from bucketwise.buckets.fields.times import DAY_MS, FIRST_MS, LAST_MS, as_ms
from bucketwise.buckets.models.series import SeriesTable
from bucketwise.buckets.packing import Rows
from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy

T = TypeVar("T")
#: Error codes: the instant is too long ago for MongoDB, or too close to a change of its collections.
_SNAPSHOT_GONE = (239, 246)
#: In the message of the second of these where there is no such instant at all.
_CAPPED = "capped collections"
_TRIES = 3


def at_one_instant(database: Database[dict[str, Any]], read: Callable[[ClientSession], T]) -> T:
    """Returns what `read` returns in a session that sees one instant. Of a capped collection there is none:
    `read` then sees each query's own; nothing is moved out of such a collection meanwhile.

    A run that takes changed buckets out of a commit replaces its files, maybe while they are read here. Then
    a file is missing, and the second attempt finds the commit that took its place."""
    is_capped = False
    for attempt in itertools.count(1):
        try:
            # The client sees to causal order itself; a session would name an earlier time.
            with database.client.start_session(snapshot=not is_capped, causal_consistency=False) as session:
                return read(session)
        except (NotFound, DamagedError):
            if attempt == _TRIES:
                raise
        except OperationFailure as error:
            if error.code not in _SNAPSHOT_GONE or attempt == _TRIES:
                raise
            is_capped = _CAPPED in str(error)
    raise AssertionError("unreachable")


Document = dict[str, Any]
MAX_READINGS = 250_000
#: Quarantined buckets that are reported one by one; the rest are counted.
MAX_DETAILS = 1000
#: Lengths of slices. Each begins and ends at a multiple of its length.
_LENGTHS = (
    1, 10, 100, 1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000, 3 * 3_600_000, 12 * 3_600_000,
    DAY_MS, 2 * DAY_MS, 4 * DAY_MS, 8 * DAY_MS, 16 * DAY_MS, 32 * DAY_MS,
)  # fmt: skip
_DAY = _LENGTHS.index(DAY_MS)


class Readings:
    """The readings of [since, until) of the series asked for, as rows sorted by time, series and `_id`:
    those of `series`, or of any `among` these; of all where neither is given.

    Iterating gives them a piece at a time; no piece is empty. None for `since` or `until` is no bound.
    `at_most`: readings in a piece, of all series, unless they share one millisecond.
    `check` is called between slices and raises where to stop. What is met on the way of buckets that break
    their model is in `quarantined`, the first thousand, and counted in `quarantined_total`: their readings
    are not among the rows. Raises UsageError where the policy has no such series field, and HaltedError
    where the archive is damaged, or not all there.
    """

    marks: Sequence[str] = ()

    def __init__(  # noqa: PLR0913  (for people who write Python)
        self,
        database: Database[Document],
        policy: Policy,
        store: ObjectStore | None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        series: Selector | None = None,
        among: Sequence[Selector] = (),
        check: Callable[[], None] = lambda: None,
        at_most: int = MAX_READINGS,
        keys: Keys = UNSIGNED,
    ) -> None:
        self.selectors = [series, *among] if series else list(among)
        for selector in self.selectors:
            check_selector(policy, selector)
        self.policy = policy
        self.quarantined: list[Quarantined] = []
        self._broken: set[str] = set()
        self._connections = Connections(database, store, keys=keys)
        self._archived = archived_reader(self._connections, policy)
        self._start = FIRST_MS if since is None else as_ms(since)
        self._end = LAST_MS + 1 if until is None else as_ms(until)
        self._check = check
        self._at_most = at_most

    @property
    def quarantined_total(self) -> int:
        """Returns how many different broken buckets were met so far."""
        return len(self._broken)

    def series_types(self) -> dict[str, str]:
        """Returns the types of the series columns in the archive's parts; empty where there are none."""
        return self._archived.series_types()

    def __iter__(self) -> Iterator[Rows]:
        check_archive(self._connections, self.policy)
        size = _DAY
        at, was_empty = self._start, True
        while at < self._end:
            self._check()
            if was_empty:
                found = self._next(at)
                if found is None or found >= self._end:
                    return
                at = max(at, found)
            end = min((at // _LENGTHS[size] + 1) * _LENGTHS[size], self._end)
            limit = self._at_most if size else None
            held = at_one_instant(self._connections.database, partial(self._read, at, end, limit))
            if held is None:
                size = max(0, size - 2)
                continue
            at, was_empty = end, not held.count
            rows = held.rows()
            if len(rows.time):
                yield rows
            if held.count <= self._at_most // 8:
                size = min(size + 1, len(_LENGTHS) - 1)

    def _next(self, at: int) -> int | None:
        """Returns an instant at or after `at`, before which there is nothing. Looks at live buckets first:
        one that is deleted then is found in the archive."""
        found = [Source(self._connections.database, self.policy).earliest(at), self._archived.earliest(at)]
        return min((instant for instant in found if instant is not None), default=None)

    def _read(self, start: int, end: int, limit: int | None, session: ClientSession) -> _Slice | None:
        """Returns what a slice holds; None where it is more than `limit` readings. Reads rows of parts where
        these suffice. Buckets are read where two readings have one series and time: their `_id`s say which
        comes first, or that both are of one bucket, live and archived."""
        for is_by_rows in (True, False):
            held = self._read_all(
                RowFilter(start, end, self.selectors), limit, session, is_by_rows=is_by_rows
            )
            if held is None or held.is_in_order:
                return held
        raise AssertionError("unreachable")

    def _read_all(
        self, row_filter: RowFilter, limit: int | None, session: ClientSession, *, is_by_rows: bool
    ) -> _Slice | None:
        """Reads what is live, and then what is archived; returns None where that is more than `limit`
        readings."""
        held = _Slice(self.policy, row_filter)
        source = Source(self._connections.database, self.policy, session=session)
        for batch in source.batches(
            row_filter.start, row_filter.end, selector_query(self.policy, *row_filter.series)
        ):
            self._add(held, batch)
            if limit is not None and held.count > limit:
                return None
        for found in self._archived.at(session).readings(row_filter, is_by_rows=is_by_rows):
            if isinstance(found, Rows):
                held.add_rows(found)
            else:
                self._add(held, found)
            if limit is not None and held.count > limit:
                return None
        return held

    def _add(self, held: _Slice, batch: Batch) -> None:
        decoded = decode(batch, self.policy)
        held.add(decoded.columns)
        for bucket in decoded.quarantined:
            name = repr(bucket.id)
            if name not in self._broken and len(self.quarantined) < MAX_DETAILS:
                self.quarantined.append(bucket)
            self._broken.add(name)


@dataclass(frozen=True)
class _Part:
    """The readings of one batch, or of the rows of a part, in the slice and of the series asked for."""

    series: NDArray[np.int32]  # n
    time: NDArray[np.int64]  # n
    bucket: NDArray[np.int32]  # n: index into orders
    orders: NDArray[np.bytes_]  # b; none of rows: these are in the order of `_id`s already
    values: dict[str, NDArray[np.float64]]  # n
    present: dict[str, NDArray[np.bool_]]  # n


class _Slice:
    """The readings of one slice."""

    def __init__(self, policy: Policy, row_filter: RowFilter) -> None:
        self.count = 0  # readings, of those that are read
        self._policy = policy
        self._filter = row_filter
        self._series = SeriesTable()
        self._parts: list[_Part] = []

    def add(self, columns: Columns) -> None:
        """Takes over the readings of decoded buckets that lie in the slice and are of the series asked for;
        `count` counts those of all series."""
        inside = (columns.time >= self._filter.start) & (columns.time < self._filter.end)
        self.count += int(inside.sum())
        wanted = selected(columns.series, self._policy, *self._filter.series)
        at = np.flatnonzero(inside & wanted[columns.series_of_readings])
        if not len(at):
            return
        used, bucket = np.unique(columns.bucket[at], return_inverse=True)
        self._parts.append(
            _Part(
                series=self._indices(columns.series, columns.series_of_readings[at]),
                time=columns.time[at],
                bucket=bucket.astype(np.int32),
                orders=columns.bucket_order[used],
                values={name: column[at] for name, column in columns.values.items()},
                present={name: is_number(kinds[at]) for name, kinds in columns.kinds.items()},
            )
        )

    def add_rows(self, rows: Rows) -> None:
        """Adds rows of one part, in their order there."""
        self.count += len(rows.time)
        none, series = np.zeros(0, dtype=np.bytes_), self._indices(rows.series, rows.row_series)
        self._parts.append(_Part(series, rows.time, np.zeros_like(series), none, rows.values, rows.present))

    def _indices(self, series: Sequence[Series], of_readings: NDArray[np.int32]) -> NDArray[np.int32]:
        """Returns the index in this slice of each reading's series, (n,)."""
        index = np.zeros(len(series), dtype=np.int32)
        for one in np.unique(of_readings).tolist():
            index[one] = self._series.index(series[one])
        return index[of_readings]

    @property
    def times(self) -> NDArray[np.int64]:
        return joined([part.time for part in self._parts], np.int64)

    @cached_property
    def _place(self) -> NDArray[np.int32]:
        """Returns the place of each reading's series among all."""
        order = sorted(range(len(self._series.series)), key=lambda i: series_order(self._series.series[i]))
        place = np.empty(len(order), dtype=np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        series: NDArray[np.int32] = joined([part.series for part in self._parts], np.int32)
        return np.asarray(place[series])

    @cached_property
    def _sequence(self) -> NDArray[np.int64]:
        """Returns the order by time, then series; where those tie, as they were added."""
        return np.lexsort((self._place, self.times))

    @cached_property
    def _tied(self) -> NDArray[np.bool_]:
        """Returns which readings, in sequence, have the series and time of the next one, (n - 1,)."""
        time, place = self.times[self._sequence], self._place[self._sequence]
        return np.asarray((np.diff(time) == 0) & (np.diff(place) == 0))

    @property
    def is_in_order(self) -> bool:
        """Returns whether the order of readings with one series and time is known: by their `_id`s, or since
        they lie together in one part."""
        if all(len(part.orders) for part in self._parts):
            return True
        lengths = [len(part.time) for part in self._parts]
        of_part = np.repeat(np.arange(len(lengths)), lengths)[self._sequence]
        return not (self._tied & (np.diff(of_part) != 0)).any()

    def rows(self) -> Rows:
        """Returns the rows by time, then series; where those tie, by `_id`; then as they lie in their
        bucket."""
        names, parts, sequence = self._policy.value_names, self._parts, self._sequence
        if self._tied.any() and all(len(part.orders) for part in parts):
            sequence = np.lexsort((self._by_id(), self._place, self.times))
        return Rows(
            series=sorted(self._series.series, key=series_order),
            row_series=self._place[sequence],
            time=self.times[sequence],
            values={it: joined([part.values[it] for part in parts], np.float64)[sequence] for it in names},
            present={it: joined([part.present[it] for part in parts], np.bool_)[sequence] for it in names},
        )

    def _by_id(self) -> NDArray[np.int64]:
        """Returns for each reading the rank of its bucket's `_id`."""
        orders = np.concatenate([part.orders for part in self._parts])
        ranks = np.unique(orders, return_inverse=True)[1]
        starts = np.cumsum([0, *(len(part.orders) for part in self._parts)])
        buckets = [part.bucket + start for part, start in zip(self._parts, starts, strict=False)]
        return np.asarray(ranks[np.concatenate(buckets)], dtype=np.int64)
