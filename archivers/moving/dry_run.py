"""Dry runs: archivers that move nothing, and count what a run would do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from archivers.format.manifest import Manifest
from archivers.moving.offline import OfflineRun
from archivers.moving.online import OnlineRun
from archivers.run import Archiver, ArchiveRun
from buckets.bson.raw import Batch
from buckets.columns import Series
from buckets.decoding.decode import BucketSet


class DryRun:
    """An `Archiver` that moves nothing: it asks the real one what stays, and counts what would go."""

    def __init__(self, work: ArchiveRun, archiver: Archiver) -> None:
        self._work = work
        self._archiver = archiver

    def recover(self) -> None:
        """Recovers nothing."""

    def settle(self, start_ms: int, end_ms: int) -> None:
        """Deletes nothing."""

    def misfit(self, series: Series) -> tuple[str, object] | None:
        """Returns the field and value of a series that the archive can't take; None where it can."""
        return self._archiver.misfit(series)

    def not_copied(self, batch: Batch, first_ms: int, last_ms: int) -> NDArray[np.int64]:
        """Returns the indices of the buckets that are not copied yet."""
        return self._archiver.not_copied(batch, first_ms, last_ms)

    def move(self, buckets: BucketSet) -> None:
        """Counts the buckets that would be deleted now, and those that would wait."""
        report = self._work.report
        if waits := self._work.waits(self._work.now):
            report.leave(len(buckets), waits)
        else:
            report.deleted += len(buckets)

    def finish(self) -> None:
        """Does nothing: no move was begun."""

    def close(self) -> None:
        """Closes the archiver that it asks."""
        self._archiver.close()


class OnlineDryRun(OnlineRun):
    """What is asked for an online archive: counts what earlier runs have copied and this one deletes."""

    def not_copied(self, batch: Batch, first_ms: int, last_ms: int) -> NDArray[np.int64]:
        """Returns the buckets without an equal copy."""
        found = super().not_copied(batch, first_ms, last_ms)
        new = [i for i in found if batch.main.raw_id(i) not in self._due]
        self._work.report.deleted += len(found) - len(new)
        return np.array(new, dtype=np.int64)


class OfflineDryRun(OfflineRun):
    """The same for an offline archive."""

    def _settle_held(
        self, manifest: Manifest, same: list[int], outdated: list[int], live: NDArray[np.bool_]
    ) -> None:
        del outdated, live
        if waits := self._work.waits(manifest.newest.created):
            self._work.report.leave(len(same), waits)
        else:
            self._work.report.deleted += len(same)
