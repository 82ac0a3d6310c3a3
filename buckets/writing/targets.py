"""What a collection can be rewritten in, and its readings as documents of that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from bson import ObjectId

from bucketwise.buckets.columns import Series
from bucketwise.buckets.fields.times import DAY_MS, FIRST_MS, LAST_MS
from bucketwise.buckets.models import MODELS, model_of
from bucketwise.buckets.models.model import BucketModel, Document, Operation
from bucketwise.buckets.models.series import SeriesTable
from bucketwise.buckets.models.shape import nested
from bucketwise.buckets.models.target import TargetNames
from bucketwise.buckets.source import Source
from bucketwise.buckets.writing.exact import ExactReadings, Losses, exact_of, joined
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy

#: Targets by name, in the order in which they are shown.
TARGETS = tuple(name for model in MODELS for name in model.targets)
ALIASES = {alias: name for model in MODELS for alias, name in model.target_aliases.items()}
#: Documents and readings in memory at once as Python's objects, to be written.
AT_ONCE, _READINGS = 2_000, 100_000


@dataclass(frozen=True)
class Target:
    """A model with its size, and the policy that reads what is written in it."""

    name: str
    policy: Policy
    size: int = 0  # samples a bucket

    @property
    def model(self) -> BucketModel[Any]:
        """Returns the bucket model of what is written."""
        return model_of(self.policy)

    @property
    def options(self) -> Document:
        """Returns how the collection is made."""
        return self.model.made_with("seconds")

    @property
    def write_batch_size(self) -> int:
        """Returns how many documents are written before the progress is recorded."""
        return max(1, min(AT_ONCE, _READINGS // (self.size or self.model.written_at_once)))


def target_named(text: str) -> str | None:
    """Returns the target that a person means; None where there is no such one."""
    name = ALIASES.get(text, text)
    return name if any(model.has_target(name) for model in MODELS) else None


def target_of(name: str, policy: Policy, collection: str, *, is_whole_minutes: bool) -> Target:
    """Returns the target of this name for the readings of a policy. `is_whole_minutes`: whether all of them
    lie on whole minutes."""
    model = next(it for it in MODELS if it.has_target(name))
    names = TargetNames.of(policy, model_of(policy).time_field)
    keys: Document = {"name": policy.name, "collection": collection, "model": model.name}
    keys |= {"series_fields": names.series, "value_fields": names.values}
    keys |= model.target_keys(name, names, is_whole_minutes=is_whole_minutes)
    return Target(name, make_policy(**keys), model.target_size(name))


def misfits(target: Target, exact: ExactReadings) -> Iterator[tuple[str, int]]:
    """Yields what the model has no place for, and how many readings have it. `exact`: by series, then
    time."""
    is_empty = np.ones(len(exact), dtype=np.bool_)
    for types in exact.types.values():
        is_empty &= types == 0
    return target.model.misfits(exact.series_index, exact.time, is_empty)


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


#: Readings of a stretch, unless they share a millisecond.
AT_MOST = 250_000
_LONGEST = 32 * DAY_MS


class Stretch(NamedTuple):
    """The readings of [start, end) in milliseconds, by series, then time, then `_id`."""

    start: int
    end: int
    exact: ExactReadings


def stretches(
    source: Source,
    table: SeriesTable,
    losses: Losses,
    check: Callable[[], None],
    at_most: int = AT_MOST,
) -> Iterator[Stretch]:
    """Yields stretches of the source in the order of time; none is empty, and they are always the same for
    the same documents. `check` is called before each, and raises where to stop."""
    length, at = DAY_MS, source.earliest(FIRST_MS)
    while at is not None and at <= LAST_MS:
        check()
        end = min((at // length + 1) * length, LAST_MS + 1)
        exact = readings_in(source, at, end, table, losses, at_most if length > 1 else None)
        if exact is None:
            length = max(1, length // 8)
            continue
        if len(exact):
            yield Stretch(at, end, exact)
        at = end if len(exact) else source.earliest(end)
        if len(exact) < at_most // 8:
            length = min(length * 2, _LONGEST)


def readings_in(
    source: Source, start: int, end: int, table: SeriesTable, losses: Losses, at_most: int | None = None
) -> ExactReadings | None:
    """Returns the readings of [start, end); None where these are more than `at_most`."""
    parts: list[ExactReadings] = []
    orders: list[np.ndarray[tuple[int], np.dtype[np.bytes_]]] = []
    count, found = 0, Losses()
    for batch in source.batches(start, end):
        exact, order = exact_of(batch, source.policy, table, found, (start, end))
        parts.append(exact)
        orders.append(order)
        count += len(exact)
        if at_most is not None and count > at_most:
            return None
    losses.add(found)
    if not parts:
        return ExactReadings.none(source.policy.value_names)
    whole = joined(parts)
    return in_order(whole.take(np.argsort(np.concatenate(orders), kind="stable")))
