"""What an archive gives to a restore."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from pymongo.client_session import ClientSession

from bucketwise.archivers.restoring.damaged import MissingBuckets
from bucketwise.archivers.restoring.options import RestoreOptions
from bucketwise.archivers.restoring.put import ArchivedBuckets, Indices, RestoreFilter
from bucketwise.archivers.restoring.records import RestoreRecords
from bucketwise.archivers.versions.history import Histories


class ArchivedCopies(Protocol):
    """The copies of one archive."""

    @property
    def histories(self) -> Histories:
        """Returns what finds the versions of a bucket."""

    def begin(self, options: RestoreOptions, wanted: RestoreFilter) -> None:
        """Raises HaltedError where something that may be wanted is damaged, unless `options` leave it out."""

    def missing(self) -> list[MissingBuckets]:
        """Returns what was left out."""

    def of(
        self, options: RestoreOptions, records: RestoreRecords | None, wanted: RestoreFilter
    ) -> Iterator[ArchivedBuckets]:
        """Yields all archived buckets that may hold something of what is asked for. `records`: records what
        was restored into the source; None: it goes elsewhere."""


def note_nothing(_chosen: Indices, _session: ClientSession) -> None:
    """Records nothing of what was restored."""
