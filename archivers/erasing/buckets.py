"""Which buckets an erasure means, and what it makes of them: those of one series go whole, and out of those
that hold several only the samples of the series go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.selectors import Selector, selected
from bucketwise.buckets.fields.times import TimeRange
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.series import is_of_series
from bucketwise.buckets.versions.removal import SampleRemoval
from bucketwise.config.policies import Policy

_NONE = np.zeros(0, dtype=np.int64)


class Selected(NamedTuple):
    """Indices of a batch: of buckets that go whole; of those that can't go, since they hold something beyond
    the range as well, or their time can't be read; and of those that go on without the series."""

    erased: NDArray[np.int64]
    across: NDArray[np.int64]
    rewritten: NDArray[np.int64] = _NONE

    @classmethod
    def joined(cls, parts: Iterable[Selected]) -> Selected:
        """Returns what was found in several parts."""
        return cls(*map(np.concatenate, zip(*parts, cls(_NONE, _NONE), strict=True)))

    @property
    def affected(self) -> NDArray[np.int64]:
        """Returns the buckets that hold something of what goes."""
        return np.union1d(self.erased, self.rewritten)


class SeriesInBuckets(Protocol):
    """How a series lies in buckets."""

    def sort(self, batch: Batch) -> Selected:
        """Returns which buckets of a batch go, and which are rewritten, broken or not."""

    def rest(self, batch: Batch) -> Batch:
        """Returns buckets as they are rewritten."""

    @property
    def across(self) -> str:
        """Returns why some buckets can't go, for people."""


class WholeBuckets:
    """A series whose buckets hold no other."""

    def __init__(self, policy: Policy, series: Selector, within: TimeRange) -> None:
        self._policy, self._series, self._within = policy, series, within

    across = (
        "hold readings inside the range and beyond it, or have a time that can't be read, and a bucket is "
        "erased whole or not at all. Choose a range whose edges lie between buckets, or leave it out"
    )

    def sort(self, batch: Batch) -> Selected:
        """Returns which buckets go: those of the series that lie in the range."""
        found = sorted(self._spans(batch))
        start, end = self._within.start_ms, self._within.end_ms
        erased = [i for i, first, stop in found if start <= first and stop <= end]
        touching = [i for i, first, stop in found if first < end and stop > start]
        across = np.setdiff1d(touching, erased).astype(np.int64)
        return Selected(np.array(erased, dtype=np.int64), across)

    def rest(self, batch: Batch) -> Batch:
        """Returns the buckets: none is rewritten."""
        return batch

    def _spans(self, batch: Batch) -> Iterator[tuple[int, int, int]]:
        """Yields the buckets of the series, each with [start, end) of what it holds. Where that can't be read
        it is all of time."""
        decoded = decode(batch, self._policy)
        columns, spans = decoded.columns, decoded.spans()
        is_asked = selected(columns.series, self._policy, self._series)
        for place in np.flatnonzero(columns.holds(is_asked)).tolist() if len(is_asked) else ():
            first, last = spans[place].tolist()
            yield int(decoded.units[place]), first, last + 1
        ever = TimeRange()
        for i in np.setdiff1d(np.arange(len(batch)), decoded.units).tolist():
            if is_of_series(self._policy, batch.main[i], self._series):
                span = model_of(self._policy).covered_span(batch.main[i])
                yield (i, *(span or (ever.start_ms, ever.end_ms)))


class SharedBuckets:
    """A series whose buckets may hold others: their samples tell which."""

    def __init__(self, policy: Policy, series: Selector, within: TimeRange) -> None:
        self._removal = SampleRemoval(policy, series, within)
        self._whole = WholeBuckets(policy, series, within)
        self._is_of_bucket = not series.keys() & policy.sample_series.keys()

    across = (
        "hold samples of the series whose time can't be read, so whether they lie in the range is unknown. "
        "Correct these buckets, or leave the range out"
    )

    def sort(self, batch: Batch) -> Selected:
        """Returns which buckets hold nothing but samples that go, and which hold others as well."""
        rest = self._removal.rest(batch)
        is_affected = (rest.removed > 0) & ~rest.untimed
        erased = np.flatnonzero(is_affected & (rest.left == 0))
        if self._is_of_bucket:  # those without samples are of it as well
            empty = np.flatnonzero((rest.removed == 0) & (rest.left == 0))
            erased = np.union1d(erased, empty[self._whole.sort(batch.take(empty)).erased])
        return Selected(erased, np.flatnonzero(rest.untimed), np.flatnonzero(is_affected & (rest.left > 0)))

    def rest(self, batch: Batch) -> Batch:
        """Returns buckets without the samples."""
        return self._removal.rest(batch).batch


def in_buckets(policy: Policy, series: Selector, within: TimeRange) -> SeriesInBuckets:
    """Returns how a series lies in the buckets of a policy."""
    kind = SharedBuckets if policy.sample_series else WholeBuckets
    return kind(policy, series, within)
