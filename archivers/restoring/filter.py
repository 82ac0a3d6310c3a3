"""Which buckets of an archive to restore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.restoring.put import Indices, Note
from bucketwise.archivers.versions.history import Version, bucket_sets_of
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import BucketSet, decode
from bucketwise.buckets.fields.selectors import selected
from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS
from bucketwise.buckets.models.asked import is_of_series
from bucketwise.config.policies import Policy


class ArchivedBuckets(NamedTuple):
    """Some archived buckets; `span` and `readings` where they are known without reading the buckets."""

    bucket_set: BucketSet
    note: Note
    span: tuple[int, int] | None = None  # of first and last reading
    readings: int = 0
    commit: str | None = None
    until: int = 0  # the position in the commit after the last of them
    share: float | None = None  # how much of the archive has been read, with this; None: not known


class MatchingBuckets(NamedTuple):
    """The archived buckets that match."""

    batch: Batch
    policy: Policy  # the one under which it was archived
    indices: Indices  # the places of the matching buckets in the batch
    note: Note
    readings: int
    commit: str | None
    until: int
    share: float | None


@dataclass(frozen=True)
class RestoreFilter:
    """Selects buckets with a reading in [start, end), milliseconds, of some series."""

    policy: Policy
    start: int
    end: int
    series: Mapping[str, str]

    @property
    def is_part(self) -> bool:
        """Returns whether a version of a bucket may be left out while another is not."""
        return self.start > FIRST_MS or self.end <= LAST_MS or bool(self.series)

    def may_hold(self, manifest: Manifest) -> bool:
        """Returns whether a commit may hold any of these series."""
        return manifest.may_hold(self.policy, self.series)

    def sections_of(self, manifest: Manifest) -> list[bool]:
        """Returns for each section of a commit whether it may hold any buckets that match."""
        return manifest.sections_of(self.policy, self.start, self.end, self.series)

    def of(self, found: ArchivedBuckets) -> MatchingBuckets:
        """Returns the matching buckets in the order of their `_id`s, so that they are written next to one
        another."""
        batch, chosen, readings = found.bucket_set.batch, np.arange(len(found.bucket_set)), found.readings
        if found.span is None or found.span[0] < self.start or found.span[1] >= self.end or self.series:
            mine = self._matching(found.bucket_set)
            chosen = found.bucket_set.decoded.units[mine]
            readings = int(mine[found.bucket_set.decoded.columns.bucket].sum())
        chosen = chosen[batch.take(chosen).main.id_order()]
        return MatchingBuckets(
            batch.take(chosen),
            found.bucket_set.policy,
            chosen,
            found.note,
            readings,
            found.commit,
            found.until,
            found.share,
        )

    def holds(self, versions: Sequence[Version]) -> list[bool]:
        """Returns which of these versions match."""
        found = [False] * len(versions)
        for places, buckets in bucket_sets_of(versions):
            for i in buckets.decoded.units[self._matching(buckets)].tolist():
                found[places[i]] = True
        return found

    def _matching(self, buckets: BucketSet) -> NDArray[np.bool_]:
        """Returns which decoded buckets match (an empty one by its last time)."""
        columns, touching = buckets.decoded.columns, buckets.decoded.touching(self.start, self.end)
        if not self.series:  # an empty one may be of none
            return touching
        if self.series.keys() <= set(buckets.policy.series_names):
            return touching & columns.holds(selected(columns.series, buckets.policy, self.series))
        return touching & np.isin(buckets.decoded.units, self._of_series(buckets.batch))

    def _of_series(self, batch: Batch) -> list[int]:
        """Returns the buckets of the series as the policy reads them now: where they were archived, it had
        not all of its series fields yet. What it can't read is looked at by its fields."""
        decoded = decode(batch, self.policy)
        named = decoded.columns.holds(selected(decoded.columns.series, self.policy, self.series))
        others = np.setdiff1d(np.arange(len(batch)), decoded.units).tolist()
        broken = [i for i in others if is_of_series(self.policy, batch.main[i], self.series)]
        return [*decoded.units[named].tolist(), *broken]
