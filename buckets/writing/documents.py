"""Readings as documents of a target: whole ones, and as the updates by which an application writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from bson import ObjectId

from bucketwise.buckets.columns import Series
from bucketwise.buckets.models.model import Document, Operation
from bucketwise.buckets.models.shape import nested
from bucketwise.buckets.writing.exact import ExactReadings, joined
from bucketwise.buckets.writing.targets import Target


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

    def __post_init__(self) -> None:
        self._model = self.target.model

    def add(self, exact: ExactReadings, end_ms: int | None) -> Iterator[Document]:
        """Yields the documents that are full by then. `end_ms`: all readings before it were given; None: that
        was all, and open buckets are closed."""
        readings = in_order(joined([*self._open, exact]))
        closed = np.ones(len(readings), dtype=np.bool_)
        if end_ms is not None:
            closed = self._model.closed(readings.series_index, readings.time, self.target.size, end_ms)
        self._open = [readings.take(~closed)]
        yield from self._documents(readings.take(closed))

    def _documents(self, exact: ExactReadings) -> Iterator[Document]:
        begins = self._model.begins(exact.series_index, exact.time, self.target.size)
        edges = np.append(np.flatnonzero(begins), len(exact))
        values = {name: exact.python(name) for name in exact.bits}
        times, series = exact.time.tolist(), exact.series_index.tolist()
        for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            self.made += 1
            body = self._model.document(
                times[start:end], {name: it[start:end] for name, it in values.items()}
            )
            identity = {"_id": _identity(times[start], self.made)}
            yield nested({**identity, **_series(self.target, self.series[series[start]]), **body})


def updates(target: Target, series: Sequence[Series], exact: ExactReadings) -> Iterator[Operation]:
    """Yields the writes of an application as readings come in, in the order of time: an insert for each
    reading, or an update of its bucket."""
    writer, model = DocumentWriter(target, series), target.model
    for i in np.argsort(exact.time, kind="stable").tolist():
        one = exact.take(slice(i, i + 1))
        (document,) = writer.add(one, None)
        values = {name: one.python(name)[0] for name in one.bits}
        of_series = _series(target, series[int(one.series_index[0])])
        yield model.written(document, of_series, int(one.time[0]), values, target.size)


def _series(target: Target, series: Series) -> Document:
    return dict(zip(target.policy.series_fields, series, strict=True))


def _identity(ms: int, number: int) -> ObjectId:
    seconds = min(max(ms // 1000, 0), 0xFFFFFFFF)
    return ObjectId(seconds.to_bytes(4, "big") + number.to_bytes(8, "big"))
