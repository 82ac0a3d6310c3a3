"""The series of an offline archive: in commits, in files beside them, in what a killed run has left."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import bson

from bucketwise.archivers.erasing.commits import (
    CommitEraser,
    commits_of,
    erase_removed,
    erase_versions,
    removed_files_of,
    superseded_files_of,
)
from bucketwise.archivers.erasing.erasure import Erasure
from bucketwise.archivers.erasing.kind import PlaceHolding
from bucketwise.archivers.erasing.report import Remaining
from bucketwise.archivers.erasing.texts import TextSearch, decoded_from, unpacked
from bucketwise.archivers.erasing.work import ErasureWork
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.records.receipt_files import decoded
from bucketwise.archivers.stores.base import StoreError
from bucketwise.archivers.versions.superseded import Superseded
from bucketwise.buckets.bson.raw import Docs
from bucketwise.buckets.fields.times import as_text

_NO_COMMIT = "the file belongs to no commit, and may hold the series: look at it, and delete it"
_UNFINISHED = (
    "a write was broken off there, and may hold the series: a run removes it once it is a day old; or delete "
    "it, if no run is at work"
)
_UNREADABLE = "the file can't be read, so whether it holds a value of the series is unknown"
_DIGESTS = (
    "manifests and receipts keep digests of what was erased, and filters that tell which series a commit "
    "held: whoever knows nearly all of a document can find the rest by trial"
)


@dataclass(frozen=True)
class OfflineSeries:
    """The `ArchivedSeries` of an offline archive."""

    archive: OfflineArchive

    @property
    def _name(self) -> str:
        return self.archive.policy.identity

    def holdings(self, erasure: Erasure) -> Iterator[PlaceHolding]:
        """Yields what commits hold, and the files beside them."""
        archive, url = self.archive, self.archive.store.url
        for it in commits_of(archive, erasure):
            place, found = archive.place(it.manifest.name), it.found
            yield PlaceHolding("archived", place, len(found.erased), len(found.across), it.names)
        for file, _, found in superseded_files_of(Superseded(archive), erasure):
            yield PlaceHolding("versions", f"{url}/{file.key}", len(found.erased))
        for aside in removed_files_of(archive.store, erasure):
            place, is_readable = f"{url}/{aside.key}", aside.documents is not None
            yield PlaceHolding("set_aside", place, len(aside.erased), is_readable=is_readable)

    def erase(self, work: ErasureWork) -> None:
        """Rewrites commits without the series, and files beside them."""
        self.archive.store.clean_temporaries(None, self._name)
        CommitEraser(work, self.archive).run()
        erase_versions(work, self.archive)
        erase_removed(work, self.archive)

    def leftovers(self, erasure: Erasure) -> Iterator[Remaining]:
        """Yields what runs that were killed have left of writes: nobody reads it."""
        within, store = erasure.within, self.archive.store
        for key, commit in self.archive.unlisted():
            if commit is None or commit.may_hold(within.start_ms, within.end_ms):
                yield Remaining(f"{store.url}/{key}", _NO_COMMIT, True)
        for place in store.unfinished(self._name):
            yield Remaining(place, _UNFINISHED, True)

    def texts(self, search: TextSearch) -> Iterator[Remaining]:
        """Searches the documents that each commit gives, since all that its Parquet files hold comes from
        these; and the files beside them."""
        archive = self.archive
        for commit in archive.commits():
            held = (it.batch for it in archive.sections(archive.manifest(commit)))
            yield from search.documents(archive.place(commit), (it for b in held for it in (b.main, b.extra)))
        for found in archive.store.list(f"{self._name}/meta/"):
            place = f"{archive.store.url}/{found.key}"
            try:
                entries = list(_entries(found.key, archive.store.get_bytes(found.key)))
            except (ValueError, OSError, EOFError, zlib.error, bson.errors.InvalidBSON):
                yield Remaining(place, _UNREADABLE, True)
            else:
                yield from search.entries(place, entries)

    def unreached(self, erasure: Erasure) -> Iterator[Remaining]:
        """Yields older versions of files, which count as found, and the digests in manifests."""
        del erasure
        yield from self._older_versions()
        yield Remaining(f"{self.archive.store.url}/{self._name}/meta", _DIGESTS, False)

    def _older_versions(self) -> Iterator[Remaining]:
        store, place = self.archive.store, f"{self.archive.store.url}/{self._name}/"
        try:
            older = store.older_versions(f"{self._name}/")
        except StoreError as error:
            why = f"cannot find out whether older versions of files are kept: {error}"
            yield Remaining(place, why, False)
            return
        if older.count:
            until = older.locked_until
            lock = "" if until is None else f", and locks some of them until {as_text(until)}"
            why = f"the store keeps {older.count:,} older versions of files{lock}"
            yield Remaining(place, f"{why}. Delete them by their version ids", True)


def _entries(key: str, data: bytes) -> Iterator[object]:
    """Yields what a file beside the parts holds: JSON, documents one after the other, or compressed
    receipts."""
    if key.endswith(".json"):
        yield json.loads(data)
    elif key.endswith(".bson.gz"):
        yield from map(unpacked, decoded(data))
    elif key.endswith(".bson"):
        yield from decoded_from(Docs.split(data))
