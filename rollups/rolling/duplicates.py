"""All readings of a slice at once, where summaries need that: with `duplicates = "first"` or `"last"` one of
those of a series at one instant counts, and steps lead from each reading to the next one.

They may lie in any live or archived buckets of a slice, so that all its readings are gathered before they are
summarised: in memory, or by portions of the series in a file.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.columns import Columns, Series, StateColumn
from bucketwise.buckets.layouts.layout import positions_in
from bucketwise.buckets.models.series import series_key
from bucketwise.rollups.rolling.portions import ALL_PORTIONS, SpillFile, portion_of

#: Bytes of readings that are gathered in memory.
GATHERED_BYTES = 256 << 20
#: Readings that are worked on at once, if they are of several series: the processor's cache holds them.
_AT_ONCE = 1 << 18


@dataclass
class Gathered:
    """The readings of a slice, from `start` to before `end` (milliseconds)."""

    counts: Literal["keep", "first", "last"]  # by `_id`, then by the place in the bucket
    start: int
    end: int
    _parts: list[Columns] = field(default_factory=list)
    _bytes: int = 0
    _spilled: SpillFile | None = None

    def add(self, columns: Columns) -> None:
        """Adds the readings of some buckets."""
        inside = (columns.time >= self.start) & (columns.time < self.end)
        part = columns if inside.all() else _chosen(columns, np.flatnonzero(inside))
        self._parts.append(part)
        self._bytes += part.time.nbytes * (3 + 2 * len(part.values)) + part.bucket_order.nbytes
        self._bytes += sum(it.codes.nbytes + sum(map(len, it.names)) for it in part.states.values())
        if self._bytes > GATHERED_BYTES:
            self._spill()

    def counted(self) -> Iterator[Columns]:
        """Yields the readings that count, those of a series together."""
        if self._spilled is None:
            yield from self._unique(self._parts)
            return
        self._spill()
        for portion in ALL_PORTIONS:
            yield from self._unique([pickle.loads(it) for it in self._spilled.get(portion)])

    def _spill(self) -> None:
        spilled = self._spilled = self._spilled or SpillFile()
        for part in self._parts:
            portions = np.array([portion_of(series_key(it)) for it in part.series], dtype=np.int64)
            of_readings = portions[part.series_of_readings] if len(part.series) else portions
            for portion in np.unique(of_readings).tolist():
                some = _chosen(part, np.flatnonzero(of_readings == portion))
                spilled.put(portion, pickle.dumps(some))
        self._parts, self._bytes = [], 0

    def _unique(self, parts: list[Columns]) -> Iterator[Columns]:
        for some in _by_series([it for it in parts if len(it.time)]):
            joined = _joined(some)
            yield joined if self.counts == "keep" else self._first_or_last(joined)

    def _first_or_last(self, joined: Columns) -> Columns:
        of_series, time = joined.series_of_readings, joined.time
        order = np.lexsort((np.arange(len(time)), time, of_series))  # readings are in the order that counts
        is_new = np.ones(len(order), dtype=np.bool_)
        is_new[1:] = (np.diff(time[order]) != 0) | (np.diff(of_series[order]) != 0)
        chosen = is_new if self.counts == "first" else np.append(is_new[1:], True)
        return _chosen(joined, np.sort(order[chosen]))


def _by_series(parts: list[Columns]) -> Iterator[list[Columns]]:
    """Yields the parts with all readings of some series, as many as are quickly worked on at once."""
    total = sum(len(it.time) for it in parts)
    if total <= _AT_ONCE or any(it.reading_series is not None for it in parts):
        if parts:
            yield parts
        return
    series, places = _series_of(parts)
    counts = np.zeros(len(series), dtype=np.int64)
    for its, part in zip(places, parts, strict=True):
        counts[its] += part.readings_of_series
    turn = (np.cumsum(counts) - counts) // _AT_ONCE
    for number in np.unique(turn).tolist():
        of_parts = zip(places, parts, strict=True)
        some = [_of_buckets(part, (turn[its] == number)[part.bucket_series]) for its, part in of_parts]
        yield [it for it in some if len(it.time)]


def _of_buckets(columns: Columns, chosen: NDArray[np.bool_]) -> Columns:
    """Returns the readings of some buckets, each of which is of one series."""
    lengths = columns.lengths[chosen]
    readings = positions_in(columns.starts[:-1][chosen], lengths)
    used, bucket_series = np.unique(columns.bucket_series[chosen], return_inverse=True)
    return replace(
        _taken(columns, readings),
        series=[columns.series[i] for i in used.tolist()],
        bucket_series=bucket_series.astype(np.int32),
        bucket_order=columns.bucket_order[chosen],
        starts=np.append(0, np.cumsum(lengths)),
    )


def _chosen(columns: Columns, readings: NDArray[np.int64]) -> Columns:
    """Returns some of the readings, with the buckets and series that they are of."""
    buckets, bucket = np.unique(columns.bucket[readings], return_inverse=True)
    used, of_reading = np.unique(columns.series_of_readings[readings], return_inverse=True)
    first = np.searchsorted(bucket, np.arange(len(buckets)))
    return replace(
        _taken(columns, readings),
        series=[columns.series[i] for i in used.tolist()],
        bucket_series=of_reading[first].astype(np.int32),
        bucket_order=columns.bucket_order[buckets],
        starts=np.append(first, len(readings)).astype(np.int64),
        reading_series=None if columns.reading_series is None else of_reading.astype(np.int32),
    )


def _taken(columns: Columns, readings: NDArray[np.int64]) -> Columns:
    """Returns some of the readings; what tells their buckets and series is still that of all."""
    return replace(
        columns,
        time=columns.time[readings],
        values={name: it[readings] for name, it in columns.values.items()},
        kinds={name: it[readings] for name, it in columns.kinds.items()},
        local=None if columns.local is None else columns.local[readings],
        states={name: it.take(readings) for name, it in columns.states.items()},
    )


def _series_of(parts: Sequence[Columns]) -> tuple[list[Series], list[NDArray[np.int32]]]:
    """Returns the distinct series of the parts, and where the series of each part are among them."""
    index: dict[bytes, int] = {}
    series: list[Series] = []
    places = []
    for part in parts:
        keys = [series_key(it) for it in part.series]
        for key, it in zip(keys, part.series, strict=True):
            if key not in index:
                index[key] = len(series)
                series.append(it)
        places.append(np.array([index[key] for key in keys], dtype=np.int32))
    return series, places


def _joined(parts: list[Columns]) -> Columns:
    """Returns all readings in the order of their buckets' `_id`s."""
    series, places = _series_of(parts)
    names, of_bucket = np.unique(np.concatenate([it.bucket_order for it in parts]), return_inverse=True)
    # Documents of which several share an `_id` may be of several series.
    has_own = any(it.reading_series is not None for it in parts) or len(names) < len(of_bucket)
    bucket_series = np.zeros(len(names), dtype=np.int32)
    if not has_own:
        bucket_series[of_bucket] = np.concatenate(
            [its[it.bucket_series] for its, it in zip(places, parts, strict=True)]
        )
    lengths = np.concatenate([it.lengths for it in parts])
    order = None
    if (of_bucket[1:] < of_bucket[:-1]).any():  # mostly none: `_id`s ascend as time does
        order = np.argsort(np.repeat(of_bucket, lengths), kind="stable")

    def taken(columns: list[NDArray[Any]]) -> NDArray[Any]:
        found = np.concatenate(columns)
        return found if order is None else np.asarray(found[order])

    locals_ = [it.local for it in parts if it.local is not None]
    states = {}
    for name in parts[0].states:
        codes, held = StateColumn.together([it.states[name] for it in parts])
        states[name] = StateColumn(taken(codes), held)
    return Columns(
        series=series,
        bucket_series=bucket_series,
        bucket_order=names,
        starts=np.append(0, np.cumsum(np.bincount(of_bucket, lengths, len(names)), dtype=np.int64)),
        time=taken([it.time for it in parts]),
        values={name: taken([it.values[name] for it in parts]) for name in parts[0].values},
        kinds={name: taken([it.kinds[name] for it in parts]) for name in parts[0].kinds},
        reading_series=taken([its[it.series_of_readings] for its, it in zip(places, parts, strict=True)])
        if has_own
        else None,
        local=taken(locals_) if locals_ else None,
        states=states,
    )
