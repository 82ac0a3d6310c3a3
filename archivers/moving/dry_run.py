"""Dry runs: archivers that move nothing, and count what a run would do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.moving.offline import OfflineRun
from bucketwise.archivers.moving.online import OnlineRun
from bucketwise.archivers.run import ArchiveRun
from bucketwise.buckets.decoding.decode import BucketSet


class _DryRun:
    """Counts what would go in place of moving it. What stays is decided by the archiver that this is mixed
    into."""

    _work: ArchiveRun

    def recover(self) -> None:
        """Recovers nothing."""

    def settle(self, start_ms: int, end_ms: int) -> None:
        """Deletes nothing."""

    def move(self, buckets: BucketSet) -> None:
        """Counts the buckets that would be deleted now, and those that would wait."""
        self._work.report.archived(len(buckets), buckets.readings)
        self._count(len(buckets), self._work.waits(self._work.now))

    def _count(self, buckets: int, waits: str | None) -> None:
        if waits:
            self._work.report.leave(buckets, waits)
        else:
            self._work.report.deleted += buckets

    def finish(self) -> None:
        """Does nothing: no move was begun."""


class OnlineDryRun(_DryRun, OnlineRun):
    """A dry run with an online archive: also counts what earlier runs have copied and this one deletes."""

    def _skip_due(self, due: list[int]) -> list[int]:
        self._count(len(due), None)
        return due


class OfflineDryRun(_DryRun, OfflineRun):
    """The same with an offline archive."""

    def _settle_held(
        self, manifest: Manifest, same: list[int], outdated: list[int], live: NDArray[np.bool_]
    ) -> None:
        del outdated, live
        self._count(len(same), self._work.waits(manifest.newest.created))
