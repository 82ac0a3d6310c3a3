"""How far apart the documents of a series lie, beside the time that the slots of one cover.

Slots of a wrong width show here: 48 half-hours of a day that are read as minutes cover 48 minutes, where
documents come a day apart.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.columns import Series
from bucketwise.buckets.decoding.decode import Decoded, decode
from bucketwise.buckets.fields.selectors import series_query
from bucketwise.buckets.models import model_of
from bucketwise.buckets.sampling.sample import has_index
from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy

#: Documents whose neighbours are looked for.
_LOOKED_AT = 5


class Spacing(NamedTuple):
    """Documents of a series come `gap` apart, and the slots of one cover `length` at most; those that hold
    something begin within `covered`. Milliseconds."""

    gap: int
    length: int
    covered: int


class _Neighbours(NamedTuple):
    gap: int
    series: Series
    start: int


def sparse_spacing(source: Source, batch: Batch) -> Spacing | None:
    """Returns the spacing of a collection of slots where no document of any series, as far as a sample shows,
    comes within twice the time that one covers; None elsewhere."""
    policy = source.policy
    length = model_of(policy).covered_ms
    if length is None:
        return None
    decoded = decode(batch, policy)
    nearest = _nearest(batch, decoded, policy)
    if not nearest or nearest[0].gap < 2 * length:
        return None
    if len(batch) < source.count():  # the sample may lack those in between
        if not has_index(source.indexes, source.last_field):
            return None
        for it in nearest[:_LOOKED_AT]:
            series = series_query(policy, it.series)
            if any(map(len, source.batches(it.start + length, it.start + 2 * length, series))):
                return None
    firsts = decoded.columns.time[decoded.columns.starts[decoded.columns.filled]]
    covered = int((decoded.last[decoded.columns.filled] - firsts).max(initial=0))
    return Spacing(nearest[0].gap, length, covered)


def _nearest(batch: Batch, decoded: Decoded, policy: Policy) -> list[_Neighbours]:
    """Returns sampled documents and the next one of their series, the nearest first."""
    model = model_of(policy)
    spans = (model.covered_span(batch.main[int(i)]) for i in decoded.units)
    starts = np.array([0 if it is None else it[0] for it in spans], dtype=np.int64)
    series = decoded.columns.bucket_series
    order = np.lexsort((starts, series))
    gaps = np.diff(starts[order])
    beside = np.flatnonzero((np.diff(series[order]) == 0) & (gaps > 0))
    beside = beside[np.argsort(gaps[beside], kind="stable")]
    return [
        _Neighbours(int(gaps[i]), decoded.columns.series[series[order[i]]], int(starts[order[i]]))
        for i in beside.tolist()
    ]
