"""How far apart the documents of a series lie, beside the time that the slots of one cover.

Slots of a wrong width show here: 48 half-hours of a day that are read as minutes cover 48 minutes, where
documents come a day apart. As quarters of a day they leave each day half empty.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
#: Widths of slots that writers choose, milliseconds.
_USUAL = [it * 1_000 for it in (5, 10, 15, 20, 30, 60, 120, 180, 300, 600, 720, 900, 1_200, 1_800, 3_600)]
#: So many slots, in so many documents, are no chance; most of the slots hold something, and most of the
#: documents reach as far.
_SLOTS, _DOCUMENTS, _MOST = 12, 3, 0.8


class Spacing(NamedTuple):
    """Documents of a series come `gap` apart, and the slots of one cover `length` at most; those that hold
    something begin within `covered`. Milliseconds. `meant`: the width in which as many slots, of `width`,
    would fill the gap; None where they could not reach over half of it."""

    gap: int
    length: int
    covered: int
    width: int | None = None
    meant: int | None = None


class _Neighbours(NamedTuple):
    gap: int
    series: Series
    start: int


def sparse_spacing(source: Source, batch: Batch) -> Spacing | None:
    """Returns the spacing of a collection of slots where no document of any series, as far as a sample shows,
    comes within twice the time that one covers, or where all have as many slots as would fill the time to the
    next one in another width; None elsewhere."""
    policy = source.policy
    length = model_of(policy).covered_ms
    if length is None:
        return None
    decoded = decode(batch, policy)
    nearest = _nearest(batch, decoded, policy)
    if not nearest:
        return None
    if nearest[0].gap < 2 * length:
        return _narrow(batch, decoded, policy, nearest)
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
    starts = _starts(batch, decoded, policy)
    series = decoded.columns.bucket_series
    order = np.lexsort((starts, series))
    gaps = np.diff(starts[order])
    beside = np.flatnonzero((np.diff(series[order]) == 0) & (gaps > 0))
    beside = beside[np.argsort(gaps[beside], kind="stable")]
    return [
        _Neighbours(int(gaps[i]), decoded.columns.series[series[order[i]]], int(starts[order[i]]))
        for i in beside.tolist()
    ]


def _starts(batch: Batch, decoded: Decoded, policy: Policy) -> NDArray[np.int64]:
    """Returns when buckets start, (b,), milliseconds."""
    spans = (model_of(policy).covered_span(batch.main[int(i)]) for i in decoded.units)
    return np.array([0 if it is None else it[0] for it in spans], dtype=np.int64)


def _narrow(batch: Batch, decoded: Decoded, policy: Policy, nearest: list[_Neighbours]) -> Spacing | None:
    """Returns the spacing of documents that all have the same many slots, from the first on, where these
    would fill the time to the next document if they were wider; None elsewhere."""
    width, columns = model_of(policy).slot_ms, decoded.columns
    counts = np.diff(columns.starts)[columns.filled]
    if width is None or len(counts) < _DOCUMENTS:
        return None
    starts = _starts(batch, decoded, policy)[columns.filled]
    reached = (decoded.last[columns.filled] - starts) // width + 1
    slots, gap = int(reached.max()), int(np.median([it.gap for it in nearest]))
    if slots < _SLOTS or counts.sum() < _MOST * slots * len(counts):
        return None
    is_alike = np.mean(reached >= slots - 1) >= _MOST
    meant = gap // slots
    if not is_alike or meant < 2 * width or gap % slots or meant not in _USUAL:
        return None
    return Spacing(gap, slots * width, (slots - 1) * width, width, meant)
