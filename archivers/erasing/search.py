"""Searches all that a policy keeps for a series, once it is erased; and names the places that no erasure
reaches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from archivers.context import ArchiveContext, offline_archive
from archivers.erasing.collections import held_in, kept_of, places_of
from archivers.erasing.commits import commits_of, removed_files_of, superseded_files_of
from archivers.erasing.erasure import Erasure
from archivers.erasing.report import Remaining, counted
from archivers.erasing.summaries import summaries_of
from archivers.erasing.texts import TextSearch
from archivers.format.archive import OfflineArchive
from archivers.stores.base import ObjectStore, StoreError
from archivers.versions.kept import KeptVersions
from archivers.versions.superseded import Superseded
from buckets.fields.times import as_text
from buckets.source import Source
from config.policies import Policy

_ACROSS = "buckets of the series reach over the edge of the range"
_VERSIONS = "versions of buckets are of the series"
_UNREADABLE = "the file can't be read as documents: look at it, and delete it"
_DIGESTS = (
    "manifests and receipts keep digests of what was erased, and filters that tell which series a commit "
    "held: whoever knows nearly all of a document can find the rest by trial"
)
_NUMBERS = (
    "numbers, true, false, and texts of one or two characters are looked for as values of the series, and "
    "not inside texts"
)
_OPLOG = "it contains what was deleted until that is overwritten"
_OTHERS = "backups, exports, logs, and collections into which buckets were restored are not searched"


def remaining(context: ArchiveContext, erasure: Erasure, others: Sequence[Policy]) -> Iterator[Remaining]:
    """Yields the places that hold something of the series, then those that no erasure reaches. `others`:
    policies that read the same collection."""
    yield from _by_series(context, erasure, is_own=True)
    for policy in others:
        if set(erasure.series) <= set(policy.series_names) and not policy.sample_series:
            theirs = Erasure(policy, erasure.series, erasure.within, "")
            for it in _by_series(context, theirs, is_own=False):
                yield it._replace(why=f"{it.why}: erase them with policy {policy.name}")
    if not erasure.within.is_bounded:  # else what lies outside the range has the same values
        yield from TextSearch(context, erasure).run()
    yield from unreached(context, erasure)


def _by_series(context: ArchiveContext, erasure: Erasure, *, is_own: bool) -> Iterator[Remaining]:
    """Yields what holds the series by its fields. `is_own`: the erasure is of the policy itself. Of another
    policy the source is not searched again."""
    for place in places_of(erasure)[not is_own :]:
        source = Source(context.database, erasure.policy, place.collection, place.overflow)
        found = [it for _, it in held_in(source, erasure)]
        yield from counted(place.collection, "buckets are of the series", sum(len(it.erased) for it in found))
        yield from counted(place.collection, _ACROSS, sum(len(it.across) for it in found))
    archive = erasure.policy.archive
    if archive is not None and archive.to == "online":
        kept = KeptVersions(context.database, erasure.policy)
        count = sum(len(found.erased) for _, found in kept_of(erasure, kept))
        yield from counted(kept.name, _VERSIONS, count)
    for collection, some in summaries_of(context, erasure, is_within=True):
        yield from counted(collection.name, "summaries are of the series", len(some))
    offline = offline_archive(context.connections, erasure.policy)
    if offline is not None:
        yield from _in_archive(offline, erasure)


def _in_archive(archive: OfflineArchive, erasure: Erasure) -> Iterator[Remaining]:
    for held in commits_of(archive, erasure):
        place = archive.place(held.manifest.name)
        yield from counted(place, "buckets of the commit are of the series", len(held.found.erased))
        yield from counted(place, _ACROSS, len(held.found.across))
    for file, _, found in superseded_files_of(Superseded(archive), erasure):
        yield from counted(f"{archive.store.url}/{file.key}", _VERSIONS, len(found.erased))
    for aside in removed_files_of(archive.store, erasure):
        place = f"{archive.store.url}/{aside.key}"
        if aside.documents is None:
            yield Remaining(place, _UNREADABLE, True)
        yield from counted(place, "documents are of the series", len(aside.erased))


def unreached(context: ArchiveContext, erasure: Erasure) -> Iterator[Remaining]:
    """Yields the places that an erasure does not reach. Only older versions of files count as found."""
    if context.store is not None and context.to == "offline":
        yield from _older_versions(context.store, erasure.policy.name)
        yield Remaining(f"{context.store.url}/{erasure.policy.name}/meta", _DIGESTS, False)
    if not erasure.matcher.is_whole and not erasure.within.is_bounded:
        yield Remaining("collections and files", _NUMBERS, False)
    yield Remaining("the oplog of MongoDB", _OPLOG, False)
    yield Remaining("elsewhere", _OTHERS, False)


def _older_versions(store: ObjectStore, policy: str) -> Iterator[Remaining]:
    place = f"{store.url}/{policy}/"
    try:
        older = store.older_versions(f"{policy}/")
    except StoreError as error:
        yield Remaining(place, f"cannot find out whether older versions of files are kept: {error}", False)
        return
    if older.count:
        until = older.locked_until
        lock = "" if until is None else f", and locks some of them until {as_text(until)}"
        why = (
            f"the store keeps {older.count:,} older versions of files{lock}. Delete them by their version ids"
        )
        yield Remaining(place, why, True)
