"""The series of an online archive: in its collections, and in the one with older versions of buckets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.erasing.collections import (
    BucketPlace,
    CollectionEraser,
    VersionsEraser,
    holdings_in,
    kept_of,
)
from bucketwise.archivers.erasing.erasure import Erasure
from bucketwise.archivers.erasing.kind import PlaceHolding
from bucketwise.archivers.erasing.report import Remaining
from bucketwise.archivers.erasing.texts import TextSearch
from bucketwise.archivers.erasing.work import ErasureWork
from bucketwise.archivers.versions.kept import KeptVersions
from bucketwise.archivers.writes.online import archive_collections


@dataclass(frozen=True)
class OnlineSeries:
    """The `ArchivedSeries` of an online archive."""

    context: ArchiveContext

    @cached_property
    def _place(self) -> BucketPlace:
        return BucketPlace("online", *archive_collections(self.context.policy))

    def holdings(self, erasure: Erasure) -> Iterator[PlaceHolding]:
        """Yields what the collections hold, and the versions beside them."""
        yield from holdings_in(self.context, self._place, erasure)
        kept = KeptVersions(self.context.database, erasure.policy)
        for _, found in kept_of(erasure, kept):
            yield PlaceHolding("versions", kept.name, len(found.erased))

    def erase(self, work: ErasureWork) -> None:
        """Deletes the buckets, then their versions."""
        CollectionEraser(work, self._place).run()
        VersionsEraser(work).run()

    def leftovers(self, erasure: Erasure) -> Iterator[Remaining]:
        """Yields nothing: MongoDB keeps no half-done writes."""
        del erasure
        return iter(())

    def texts(self, search: TextSearch) -> Iterator[Remaining]:
        """Searches the documents of the collections."""
        return search.collections([self._place.collection, self._place.overflow])

    def unreached(self, erasure: Erasure) -> Iterator[Remaining]:
        """Yields nothing: the oplog is named for every policy."""
        del erasure
        return iter(())
