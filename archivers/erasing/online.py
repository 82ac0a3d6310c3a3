"""The series of an online archive: in its collections, and in the one with older versions of buckets."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import NamedTuple

from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.erasing.buckets import Selected
from bucketwise.archivers.erasing.erasure import BucketNames, Erasure, ErasureWork
from bucketwise.archivers.erasing.kind import PlaceHolding, Remaining, TextSearch
from bucketwise.archivers.records.copies import CopyReceipts, note_marks, record_gone, record_rewritten
from bucketwise.archivers.records.online_heads import ArchivedDays, OnlineHeads
from bucketwise.archivers.records.receipts import MERGED, MERGING
from bucketwise.archivers.versions.kept import KeptVersion, KeptVersions, beside
from bucketwise.archivers.versions.merging import record_superseded
from bucketwise.archivers.writes import archive_collections, chunks, replace_raw, same_id, units
from bucketwise.buckets.bson.cursor import SIMPLE, ids_query
from bucketwise.buckets.bson.raw import LOSSLESS, Batch
from bucketwise.buckets.fields.selectors import selector_query
from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy

#: Rounds of deletes. While an application still writes, each round finds more: what is left is reported.
_MOST_PASSES = 10


class BucketPlace(NamedTuple):
    """A collection with buckets of a policy, and one with their overflow; `name` is that of its count."""

    name: str
    collection: str
    overflow: str | None


def source_of(policy: Policy) -> BucketPlace:
    """Returns where a policy's live buckets lie."""
    return BucketPlace("live", policy.collection, policy.overflow.collection if policy.overflow else None)


def holdings_in(context: ArchiveContext, place: BucketPlace, erasure: Erasure) -> Iterator[PlaceHolding]:
    """Yields what collections hold of the series."""
    source = Source(context.database, erasure.policy, place.collection, place.overflow)
    for batch, found in held_in(source, erasure):
        counts = len(found.affected), len(found.across)
        yield PlaceHolding(place.name, place.collection, *counts, BucketNames.of(batch, found))


def held_in(source: Source, erasure: Erasure) -> Iterator[tuple[Batch, Selected]]:
    """Yields the documents that a collection may hold of the series, and which of them go. Without a range,
    the query names nothing but the series: the time of a bucket may be anything."""
    query, within = selector_query(erasure.policy, erasure.series), erasure.within
    found = source.matching(query)
    if within.is_bounded:
        found = chain(source.batches(within.start_ms, within.end_ms, query), source.untimed())
    for batch in found:
        yield batch, erasure.sort(batch)


class CollectionEraser:
    """Deletes buckets, and rewrites those that hold other series, in transactions, each of which looks at its
    buckets again as they are then."""

    def __init__(self, work: ErasureWork, place: BucketPlace) -> None:
        self._work = work
        self._place = place

    def run(self) -> None:
        """Goes on until nothing is found."""
        for _ in range(_MOST_PASSES):
            if not self._pass():
                break

    def _source(self, session: ClientSession | None = None) -> Source:
        context, place = self._work.context, self._place
        return Source(context.database, context.policy, place.collection, place.overflow, session)

    def _pass(self) -> int:
        total = 0
        for batch, found in held_in(self._source(), self._work.erasure):
            for piece in chunks(batch.take(found.affected)):
                self._work.context.check()
                self._prepare(piece)
                names, count = self._work.transaction(partial(self._erase, piece))
                self._work.counted.update(names)
                self._work.context.progress("erased buckets", count)
                total += count
        return total

    def _prepare(self, piece: Batch) -> None:
        """Does what has to be done before the transaction."""

    def _erase(self, piece: Batch, session: ClientSession) -> tuple[set[int], int]:
        """Deletes or rewrites buckets. One that has changed goes as it is now, if it is still of the
        series."""
        work, place = self._work, self._place
        now = Batch.concat([piece.slice(0, 0), *self._source(session).by_raw_ids(piece.main.raw_ids)])
        found = work.erasure.sort(now)
        if not len(found.affected):
            return set(), 0
        erased, shared = now.take(found.erased), now.take(found.rewritten)
        names = work.take(BucketNames.of(now, found), found, place.name, session)
        if len(erased):
            self._delete(erased, session)
        if len(shared):
            self._rewrite(shared, work.erasure.buckets.rest(shared), session)
        return names, len(found.affected)

    def _delete(self, erased: Batch, session: ClientSession) -> None:
        place, ids = self._place, erased.main.ids
        database, overflow = self._work.context.database, self._work.context.policy.overflow
        main = database.get_collection(place.collection, codec_options=LOSSLESS)
        main.delete_many(ids_query(erased.main.raw_ids), session=session)
        if place.overflow is not None and overflow is not None:
            extra = database.get_collection(place.overflow, codec_options=LOSSLESS)
            extra.delete_many({overflow.ref_field: {"$in": ids}}, session=session, collation=SIMPLE)
        self._note_deleted(erased, session)

    def _note_deleted(self, erased: Batch, session: ClientSession) -> None:
        self._work.release(erased.main.ids, session)

    def _rewrite(self, before: Batch, after: Batch, session: ClientSession) -> None:
        place, database = self._place, self._work.context.database
        replace_raw(database, place.collection, after.main, session)
        if place.overflow is not None:
            replace_raw(database, place.overflow, after.extra, session)
        self._note_rewritten(before, after, session)

    def _note_rewritten(self, before: Batch, after: Batch, session: ClientSession) -> None:
        """Takes broken ones out of quarantine, since what is told of them may name the series: the next run
        looks at them again."""
        self._work.drop_quarantine(before.main.ids, session)


class OnlineEraser(CollectionEraser):
    """Does the same in an online archive, whose records say what has to be there."""

    def __init__(self, work: ErasureWork, place: BucketPlace) -> None:
        super().__init__(work, place)
        self._heads = OnlineHeads(work.context.database, work.context.policy)
        self._uncounted: Set[bytes] = frozenset()
        self._proven: Set[bytes] = frozenset()  # copies as they were read before the transaction

    def _prepare(self, piece: Batch) -> None:
        """Forgets what else refers to those that go, and finds those that receipts don't vouch for."""
        found, context = self._work.erasure.sort(piece), self._work.context
        erased, shared = piece.take(found.erased), piece.take(found.rewritten)
        self._work.forget(erased)
        self._work.rewrite_restored(shared)
        self._uncounted = self._heads.uncounted(erased) if len(erased) else frozenset()
        receipts = CopyReceipts(context.database, context.policy, None)
        unproven = receipts.mismatches(shared) if len(shared) else {}
        read = enumerate(units(context.policy, shared))
        self._proven = {unit for i, unit in read if i not in unproven}

    def _note_deleted(self, erased: Batch, session: ClientSession) -> None:
        context, ids = self._work.context, erased.main.ids
        heads = self._heads.subtracted(erased, session, self._uncounted)
        record_gone(context.deletions, self._place.collection, erased.main.raw_ids, session, heads)
        for state in ("copied", MERGING, MERGED):
            context.receipts.pull(ids, session, state)

    def _note_rewritten(self, before: Batch, after: Batch, session: ClientSession) -> None:
        """Records the copies as they are now, unless nothing vouches for them as they were."""
        context = self._work.context
        proven = [i for i, unit in enumerate(units(context.policy, before)) if unit in self._proven]
        copies = after.take(proven)
        if not len(copies):
            return
        ArchivedDays(context.receipts, context.policy).note(copies, context.now, session)
        old = before.take(proven)
        told = note_marks(context.receipts, context.policy, old, copies, "copied", session)
        others = [i for i, raw_id in enumerate(copies.main.raw_ids) if raw_id not in told]
        record_rewritten(context.deletions, context.policy, copies.take(others), session)


def kept_of(erasure: Erasure, versions: KeptVersions) -> Iterator[tuple[list[bytes], KeptVersion, Selected]]:
    """Yields the documents of each version beside the online archive that may be of the series, with what is
    in them, and what becomes of it."""
    for documents, version in versions.all():
        yield documents, version, erasure.sort(version.bucket)


class VersionsEraser:
    """Deletes, or rewrites, the versions of buckets that lie beside the online archive."""

    def __init__(self, work: ErasureWork) -> None:
        self._work = work
        self._versions = KeptVersions(work.context.database, work.context.policy)

    def run(self) -> None:
        """Goes version by version."""
        for documents, version, found in kept_of(self._work.erasure, self._versions):
            if len(found.affected):
                self._work.context.check()
                shared = version if len(found.rewritten) else None
                self._work.transaction(partial(self._erase, documents, shared))

    def _erase(self, documents: list[bytes], shared: KeptVersion | None, session: ClientSession) -> None:
        """`shared`: the version, if it holds other series as well."""
        self._work.check_not_held(session)
        self._work.erasures.count({"versions": 1}, session)
        self._versions.erase(documents, session)
        if shared is not None:
            self._rewrite(shared, session)

    def _rewrite(self, version: KeptVersion, session: ClientSession) -> None:
        context, name = self._work.context, same_id(version.bucket.main.raw_id(0))
        receipts = CopyReceipts(context.database, context.policy, None)
        is_proven = not any(receipts.altered(beside({name: [version]})))
        rest = self._work.erasure.buckets.rest(version.bucket)
        entries = [(version.version, rest)]
        self._versions.put(version.by, entries, session, is_superseded=version.is_superseded)
        if is_proven:
            note_marks(context.receipts, context.policy, version.bucket, rest, MERGING, session)
            record_superseded(context, [rest], session)


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
        for _, _, found in kept_of(erasure, kept):
            yield PlaceHolding("versions", kept.name, len(found.affected))

    def erase(self, work: ErasureWork) -> None:
        """Deletes or rewrites the buckets, then their versions."""
        OnlineEraser(work, self._place).run()
        VersionsEraser(work).run()

    def leftovers(self, erasure: Erasure) -> Iterator[Remaining]:
        """Yields nothing: MongoDB keeps no half-done writes."""
        return iter(())

    def texts(self, search: TextSearch) -> Iterator[Remaining]:
        """Searches the documents of the collections."""
        return search.collections([self._place.collection, self._place.overflow])

    def unreached(self, erasure: Erasure) -> Iterator[Remaining]:
        """Yields nothing: the oplog is named for every policy."""
        return iter(())
