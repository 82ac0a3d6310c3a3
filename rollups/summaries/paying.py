"""Whether summaries are smaller than the documents that they stand for, as far as a sample of these tells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.columns import Columns
from bucketwise.buckets.decoding.decode import Decoded, decode
from bucketwise.config.policies import LevelName, Policy
from bucketwise.rollups.calendar.levels import LEVEL_RULES, Level, levels_of
from bucketwise.rollups.statistics import statistics_of
from bucketwise.rollups.summaries import coverage, documents
from bucketwise.rollups.summaries.summary import aggregate

#: Buckets whose summaries are made to see how large they are.
_TRIED = 20


class Whole(NamedTuple):
    """How many buckets a collection has, and the time from the first to the last in milliseconds."""

    buckets: int
    span_ms: int


class LevelCost(NamedTuple):
    """One window of one series: how many readings it has, the bytes of their documents, and those of its
    summary."""

    level: LevelName
    readings: float
    document_bytes: float
    summary_bytes: float

    @property
    def is_larger(self) -> bool:
        """Returns whether the summary is larger than what it stands for."""
        return self.summary_bytes > self.document_bytes


class Paying(NamedTuple):
    """The levels of a policy whose summaries are larger than what they stand for, and the finest level whose
    summaries are not; None where there is none."""

    larger: list[LevelCost]
    best: LevelCost | None


def paying(policy: Policy, sampled: Batch, whole: Whole | None = None) -> Paying:
    """Returns which levels do not pay. `whole`: for buckets of one reading, which do not tell how often there
    is one; without it nothing is said of them."""
    nothing, levels = Paying([], None), levels_of(policy)
    decoded = decode(sampled, policy)
    readings = len(decoded.columns.time)
    if not levels or not readings:
        return nothing
    rate = _rate(decoded.columns) or _rate_of(whole, decoded.columns)
    if rate is None:
        return nothing
    size = float(sampled.sizes[decoded.units].sum()) / readings
    few = decode(sampled.take(decoded.units[decoded.columns.filled][:_TRIED]), policy)
    tried = [_cost(policy, it, few, rate, size) for it in levels]
    larger = [it for it in tried if it.is_larger]
    if not larger:
        return nothing
    zone = levels[0].zone
    every = (_cost(policy, Level(it, "", zone, None), few, rate, size) for it in LEVEL_RULES)
    return Paying(larger, next((it for it in every if not it.is_larger), None))


def _cost(policy: Policy, level: Level, few: Decoded, rate: float, size: float) -> LevelCost:
    """Returns what a level costs. `size`: the bytes of documents that a reading takes up."""
    readings = max(1.0, rate * level.row.length)
    summary_bytes = float(np.mean(_summary_sizes(policy, level, few)))
    return LevelCost(level.name, readings, readings * size, summary_bytes)


def _rate(columns: Columns) -> float | None:
    """Returns how many readings of one series there are in a millisecond, in buckets with at least two."""
    several = np.flatnonzero(columns.lengths > 1)
    if not len(several) or len(several) * 2 < len(columns.filled):
        return None
    first, last = (columns.of_filled(it) for it in (np.minimum, np.maximum))
    chosen = np.isin(columns.filled, several)
    lengths, spans = columns.lengths[columns.filled][chosen], (last - first)[chosen]
    covered = float((spans * lengths / (lengths - 1)).sum())
    return float(lengths.sum()) / _series_a_bucket(columns) / covered if covered else None


def _series_a_bucket(columns: Columns) -> float:
    """Returns how many series share a bucket, on average."""
    if columns.reading_series is None:
        return 1
    pairs = np.unique(columns.bucket.astype(np.int64) * len(columns.series) + columns.reading_series)
    return len(pairs) / max(1, len(columns.filled))


def _rate_of(whole: Whole | None, columns: Columns) -> float | None:
    """Returns the same by how much there is in all."""
    if whole is None or whole.span_ms <= 0 or whole.buckets < 2:
        return None
    series = len(np.unique(columns.series_of_readings))
    a_bucket = len(columns.time) / max(1, len(columns.filled))
    return whole.buckets * a_bucket / series / whole.span_ms


def _summary_sizes(policy: Policy, level: Level, few: Decoded) -> list[int]:
    """Returns the bytes of the summaries of some buckets."""
    spans = few.spans()[few.columns.filled].tolist()
    return [size for first, last in spans for size in _between(policy, level, few.columns, first, last)]


def _between(policy: Policy, level: Level, columns: Columns, first: int, last: int) -> Iterator[int]:
    edges = level.edges(first, last + 1)[: _TRIED + 1]
    array, fields = np.array(edges, dtype=np.int64), statistics_of(policy)
    for series, window, state in aggregate(columns, array, fields, interval=coverage.interval_of(policy)):
        span = edges[window], edges[window + 1]
        yield len(documents.summary(policy, level, columns.series[series], span, state))
