"""Searches all that a policy keeps for a series, once it is erased; and names the places that no erasure
reaches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import chain, groupby, islice
from typing import NamedTuple

from bucketwise.archivers.context import ArchiveContext, offline_archive
from bucketwise.archivers.erasing.collections import held_in, kept_of, places_of
from bucketwise.archivers.erasing.commits import commits_of, removed_files_of, superseded_files_of
from bucketwise.archivers.erasing.erasure import Erasure
from bucketwise.archivers.erasing.report import Remaining, counted
from bucketwise.archivers.erasing.summaries import summaries_of
from bucketwise.archivers.erasing.texts import TextSearch
from bucketwise.archivers.erasing.work import names_of
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.stores.base import ObjectStore, StoreError
from bucketwise.archivers.versions.kept import KeptVersions
from bucketwise.archivers.versions.superseded import Superseded
from bucketwise.archivers.writes.delete import MAX_BUCKETS
from bucketwise.buckets.fields.times import as_text
from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy
from bucketwise.rollups.rolling.quarantine import Quarantine

_ACROSS = "buckets of the series reach over the edge of the range"
_WHAT = {
    "live": "buckets are of the series",
    "online": "buckets are of the series",
    "versions": "versions of buckets are of the series",
    "archived": "buckets of the commit are of the series",
    "set_aside": "documents are of the series",
}
_UNREADABLE = "the file can't be read as documents: look at it, and delete it"
_NO_COMMIT = "the file belongs to no commit, and may hold the series: look at it, and delete it"
_UNFINISHED = (
    "a write was broken off there, and may hold the series: a run removes it once it is a day old; or delete "
    "it, if no run is at work"
)
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


class PlaceHolding(NamedTuple):
    """What a place, or a part of it, holds of the series: how much goes, and how many buckets reach over the
    edge of the range. `kind`: the name of its count. `names`: of the buckets that go, see `names_of`."""

    kind: str
    place: str
    erased: int
    across: int = 0
    names: Set[int] = frozenset()
    is_readable: bool = True


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
    yield from _reported(in_collections(context, erasure, is_own=is_own))
    for level, some in summaries_of(context, erasure, is_within=True):
        yield from counted(level.collection, "summaries are of the series", len(some))
    offline = offline_archive(context.connections, erasure.policy)
    if offline is not None:
        yield from _reported(in_archive(offline, erasure))
        yield from _unfinished(offline, erasure)


def _unfinished(archive: OfflineArchive, erasure: Erasure) -> Iterator[Remaining]:
    """Yields what runs that were killed have left of writes: nobody reads it, and it may hold the series."""
    within, url = erasure.within, archive.store.url
    for key, commit in archive.unlisted():
        if commit is None or commit.may_hold(within.start_ms, within.end_ms):
            yield Remaining(f"{url}/{key}", _NO_COMMIT, True)
    for place in archive.store.unfinished(archive.policy.identity):
        yield Remaining(place, _UNFINISHED, True)


def _reported(places: Iterable[PlaceHolding]) -> Iterator[Remaining]:
    for (kind, place), some in groupby(places, lambda it: (it.kind, it.place)):
        held = list(some)
        if not all(it.is_readable for it in held):
            yield Remaining(place, _UNREADABLE, True)
        yield from counted(place, _WHAT[kind], sum(it.erased for it in held))
        yield from counted(place, _ACROSS, sum(it.across for it in held))


def in_collections(
    context: ArchiveContext, erasure: Erasure, *, is_own: bool = True
) -> Iterator[PlaceHolding]:
    """Yields what the collections of a policy hold: buckets, and versions of these beside an online archive.
    `is_own`: also the source."""
    for place in places_of(erasure)[not is_own :]:
        source = Source(context.database, erasure.policy, place.collection, place.overflow)
        for batch, found in held_in(source, erasure):
            names = names_of(batch.take(found.erased))
            yield PlaceHolding(place.name, place.collection, len(found.erased), len(found.across), names)
    if erasure.policy.archive_collections is not None:
        kept = KeptVersions(context.database, erasure.policy)
        for _, found in kept_of(erasure, kept):
            yield PlaceHolding("versions", kept.name, len(found.erased))


def in_archive(archive: OfflineArchive, erasure: Erasure) -> Iterator[PlaceHolding]:
    """Yields what the commits of an offline archive hold, and the files beside them."""
    for it in commits_of(archive, erasure):
        place, found = archive.place(it.manifest.name), it.found
        yield PlaceHolding("archived", place, len(found.erased), len(found.across), it.names)
    for file, _, found in superseded_files_of(Superseded(archive), erasure):
        yield PlaceHolding("versions", f"{archive.store.url}/{file.key}", len(found.erased))
    for aside in removed_files_of(archive.store, erasure):
        place, is_readable = f"{archive.store.url}/{aside.key}", aside.documents is not None
        yield PlaceHolding("set_aside", place, len(aside.erased), is_readable=is_readable)


def count_records(context: ArchiveContext, erasure: Erasure) -> Counter[str]:
    """Returns how many live buckets of the series are pinned, and how many are recorded as quarantined."""
    counts = Counter[str]()
    recorded = Quarantine(context.database, erasure.policy, context.now).recorded()
    ids = (it["_id"]["id"] for it in recorded)
    pages = iter(lambda: list(islice(ids, MAX_BUCKETS)), [])
    for name, found in (("pins", context.pins.pages()), ("quarantine", pages)):
        for batch in chain.from_iterable(map(context.source.by_ids, found)):
            counts[name] += len(erasure.sort(batch).erased)
    return counts


def unreached(context: ArchiveContext, erasure: Erasure) -> Iterator[Remaining]:
    """Yields the places that an erasure does not reach. Only older versions of files count as found."""
    if context.store is not None and context.policy.has_parts:
        yield from _older_versions(context.store, erasure.policy.identity)
        yield Remaining(f"{context.store.url}/{erasure.policy.identity}/meta", _DIGESTS, False)
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
