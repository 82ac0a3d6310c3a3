"""Readings as documents of a target: whole ones, and as the updates by which an application writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from bson import DatetimeMS, ObjectId
from numpy.typing import NDArray
from pymongo import InsertOne, UpdateOne

from bucketwise.buckets.columns import Series
from bucketwise.buckets.models.shape import split
from bucketwise.buckets.models.slots import slot_levels
from bucketwise.buckets.writing.exact import ExactReadings, joined
from bucketwise.buckets.writing.targets import Target

Document = dict[str, Any]
Operation = InsertOne[Document] | UpdateOne


def in_order(exact: ExactReadings) -> ExactReadings:
    """Returns readings by series, then time; where those tie, as they come."""
    return exact.take(np.lexsort((exact.time, exact.series_index)))


@dataclass
class DocumentWriter:
    """Makes documents of readings that come a stretch of time after another; the same ones each time.

    Buckets stay open until they are full, or until their span is over: of each series at most one, whatever
    was given. `_id`s are ObjectIds of the first time in each document, and ascend as readings do."""

    target: Target
    series: Sequence[Series]  # may grow
    made: int = 0  # documents
    _open: list[ExactReadings] = field(default_factory=list)

    def add(self, exact: ExactReadings, end_ms: int | None) -> Iterator[Document]:
        """Yields the documents that are full by then. `end_ms`: all readings before it were given; None: that
        was all, and open buckets are closed."""
        readings = in_order(joined([*self._open, exact]))
        closed = np.ones(len(readings), dtype=np.bool_) if end_ms is None else self._closed(readings, end_ms)
        self._open = [readings.take(~closed)]
        yield from self._documents(readings.take(closed))

    def _closed(self, held: ExactReadings, end_ms: int) -> NDArray[np.bool_]:
        if self.target.policy.model == "slots":
            span = self.target.span_ms
            return np.asarray((held.time // span + 1) * span <= end_ms)
        if self.target.policy.model == "samples":
            place, length = _within(held.series_index)
            return np.asarray(place < length // self.target.size * self.target.size)
        return np.ones(len(held), dtype=np.bool_)

    def _documents(self, exact: ExactReadings) -> Iterator[Document]:
        make = {"slots": _slotted, "samples": _sampled}.get(self.target.policy.model, _single)
        edges = np.append(np.flatnonzero(self._firsts(exact)), len(exact))
        values = {name: exact.python(name) for name in exact.bits}
        times, series = exact.time.tolist(), exact.series_index.tolist()
        for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            self.made += 1
            body = make(self.target, times[start:end], {name: it[start:end] for name, it in values.items()})
            identity = {"_id": _identity(times[start], self.made)}
            yield _nested({**identity, **_series(self.target, self.series[series[start]]), **body})

    def _firsts(self, exact: ExactReadings) -> NDArray[np.bool_]:
        """Returns with which readings a document begins, (n,)."""
        if not len(exact) or self.target.policy.model in ("reading", "timeseries"):
            return np.ones(len(exact), dtype=np.bool_)
        if self.target.policy.model == "samples":
            return np.asarray(_within(exact.series_index)[0] % self.target.size == 0)
        bucket = exact.time // self.target.span_ms
        return np.append(True, (np.diff(bucket) != 0) | (np.diff(exact.series_index) != 0))


def updates(target: Target, series: Sequence[Series], exact: ExactReadings) -> Iterator[Operation]:
    """Yields the writes of an application as readings come in, in the order of time: an insert for each
    reading, or an update of its bucket."""
    policy, writer = target.policy, DocumentWriter(target, series)
    for i in np.argsort(exact.time, kind="stable").tolist():
        one = exact.take(slice(i, i + 1))
        (document,) = writer.add(one, None)
        series_fields = _series(target, series[int(one.series_index[0])])
        if policy.model in ("reading", "timeseries"):
            yield InsertOne(document)
        elif policy.model == "slots":
            when = {str(policy.time_field): document[str(policy.time_field)]}
            yield UpdateOne(
                {**series_fields, **when}, {"$set": _places(target, int(one.time[0]), exact, i)}, upsert=True
            )
        else:
            at = DatetimeMS(int(one.time[0]))
            change = {
                "$push": {str(policy.samples_field): document[str(policy.samples_field)][0]},
                "$inc": {str(policy.count_field): 1},
                "$min": {str(policy.start_field): at},
                "$max": {str(policy.end_field): at},
            }
            yield UpdateOne(
                {**series_fields, str(policy.count_field): {"$lt": target.size}}, change, upsert=True
            )


def _places(target: Target, ms: int, exact: ExactReadings, i: int) -> Document:
    keys = ".".join(_keys(target, ms))
    found = {f"{name}.{keys}": exact.take(slice(i, i + 1)).python(name)[0] for name in exact.bits}
    return {path: it for path, it in found.items() if it is not None}


def _keys(target: Target, ms: int) -> list[str]:
    offset, found = ms % target.span_ms, []
    for level in slot_levels(target.policy):
        found.append(str(offset // level.length))
        offset %= level.length
    return found


def _single(target: Target, times: list[int], values: dict[str, list[Any]]) -> Document:
    fields = {name: it[0] for name, it in values.items() if it[0] is not None}
    return {str(target.policy.time_field): DatetimeMS(times[0]), **fields}


def _slotted(target: Target, times: list[int], values: dict[str, list[Any]]) -> Document:
    keys = [_keys(target, ms) for ms in times]
    body: Document = {}
    for name, held in values.items():
        slots: Document = {}
        for path, value in zip(keys, held, strict=True):
            if value is not None:
                inner = slots
                for key in path[:-1]:
                    inner = inner.setdefault(key, {})
                inner[path[-1]] = value
        if slots:
            body[name] = slots
    start = times[0] // target.span_ms * target.span_ms
    return {str(target.policy.time_field): DatetimeMS(start), **body}


def _sampled(target: Target, times: list[int], values: dict[str, list[Any]]) -> Document:
    policy = target.policy
    samples = []
    for i, ms in enumerate(times):
        fields = {name: it[i] for name, it in values.items() if it[i] is not None}
        samples.append({str(policy.sample_time_field): DatetimeMS(ms), **_nested(fields)})
    return {
        str(policy.count_field): len(times),
        str(policy.start_field): DatetimeMS(times[0]),
        str(policy.end_field): DatetimeMS(times[-1]),
        str(policy.samples_field): samples,
    }


def _series(target: Target, series: Series) -> Document:
    return dict(zip(target.policy.series_fields, series, strict=True))


def _nested(dotted: Document) -> Document:
    """Returns a document of values by their dotted paths."""
    if not any("." in path for path in dotted):
        return dotted
    found: Document = {}
    for path, value in dotted.items():
        *outer, last = split(path)
        inner = found
        for key in outer:
            inner = inner.setdefault(key, {})
        inner[last] = value
    return found


def _within(series: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the place of each reading among those of its series that lie together, (n,), and how many these
    are."""
    starts = np.append(0, np.flatnonzero(np.diff(series)) + 1)
    lengths = np.diff(np.append(starts, len(series)))
    return np.arange(len(series)) - np.repeat(starts, lengths), np.repeat(lengths, lengths)


def _identity(ms: int, number: int) -> ObjectId:
    seconds = min(max(ms // 1000, 0), 0xFFFFFFFF)
    return ObjectId(seconds.to_bytes(4, "big") + number.to_bytes(8, "big"))
