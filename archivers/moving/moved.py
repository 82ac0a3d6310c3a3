"""Buckets that have moved to another day since they were copied, and were copied again.

An older copy counts once its bucket is gone, as does the newer one. So the bucket stays while the commit with
the older copy is held back: by a hold, a pin, or the range of the run. When that commit is settled, its copy
is found to be outdated, and leaves; then the bucket may go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bucketwise.archivers.format.archive import OfflineArchive, Positions, SectionBuckets
from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.format.origins import First, origin_at
from bucketwise.archivers.moving.known import KnownCopies
from bucketwise.archivers.records.receipts import commit_of
from bucketwise.archivers.run import ArchiveRun
from bucketwise.archivers.writes.delete import same_id

Document = dict[str, Any]
OLDER = "moved in time: a commit that is held back has an older copy, which would count as well"


class OlderCopies:
    """Finds older copies of buckets that are about to be deleted."""

    def __init__(self, work: ArchiveRun, archive: OfflineArchive, known: KnownCopies) -> None:
        self._work, self._archive, self._known = work, archive, known

    def without(self, manifest: Manifest, due: Positions) -> Positions:
        """Returns those of these positions in a commit of which no other open commit has an older copy."""
        if self._work.measured or not len(due):
            return due
        others = list(self._others(manifest))
        moved = [
            mine[name]
            for held in (self._archive.buckets_at(manifest, due) if others else ())
            for mine in [dict(_places(held))]
            for receipt in others
            if self._known.may_hold(receipt, held.batch)
            for name, copied_before in self._live_of(receipt)
            if name in mine and copied_before < origin_at(manifest, mine[name])
        ]
        return np.setdiff1d(due, moved)

    def _others(self, manifest: Manifest) -> Iterator[Document]:
        """Yields the receipts of the open commits that may have older copies: those before it in the chain,
        and merged ones."""
        earlier = {"$or": [{"sequence": {"$lt": manifest.sequence}}, {"compacted": True}]}
        for receipt in self._work.receipts.in_state("open", "offline", earlier):
            if receipt["_id"]["name"] != manifest.commit:
                yield receipt

    def _live_of(self, receipt: Document) -> Iterator[tuple[bytes, First]]:
        """Yields the `_id`s of a commit's copies of live buckets, each with where it was archived first."""
        commit = commit_of(receipt)
        assert commit is not None
        other = self._archive.manifest(commit)
        live = np.flatnonzero(self._work.receipts.live(other.commit, other.buckets))
        for held in self._archive.buckets_at(other, live):
            yield from ((name, origin_at(other, position)) for name, position in _places(held))


def _places(held: SectionBuckets) -> Iterator[tuple[bytes, int]]:
    return zip(map(same_id, held.batch.main.raw_ids), held.positions.tolist(), strict=True)
