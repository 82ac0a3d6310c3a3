"""The series of an online archive: in its collections, and in the one with older versions of buckets."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import NamedTuple

from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.erasing.erasure import Erasure, ErasureWork, Selected, names_of
from bucketwise.archivers.erasing.kind import PlaceHolding, Remaining, TextSearch
from bucketwise.archivers.records.copies import record_gone
from bucketwise.archivers.records.online_heads import OnlineHeads
from bucketwise.archivers.records.receipts import MERGED, MERGING
from bucketwise.archivers.versions.kept import KeptVersions
from bucketwise.archivers.writes import archive_collections, chunks
from bucketwise.buckets.bson.cursor import SIMPLE, find_raw, ids_query
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
        names = names_of(batch.take(found.erased))
        yield PlaceHolding(place.name, place.collection, len(found.erased), len(found.across), names)


def held_in(source: Source, erasure: Erasure) -> Iterator[tuple[Batch, Selected]]:
    """Yields the documents that a collection may hold of the series, and which of them go. Without a range,
    the query names nothing but the series: the time of a bucket may be anything."""
    query, within = selector_query(erasure.policy, erasure.series), erasure.within
    if within.is_bounded:
        found = chain(source.batches(within.start_ms, within.end_ms, query), source.untimed())
    else:
        found = chain(map(source.with_overflow, find_raw(source.collection, query)))
    for batch in found:
        yield batch, erasure.sort(batch)


class CollectionEraser:
    """Deletes in transactions, each of which looks at its buckets again as they are then."""

    def __init__(self, work: ErasureWork, place: BucketPlace) -> None:
        self._work = work
        self._place = place

    def run(self) -> None:
        """Deletes until nothing is found."""
        for _ in range(_MOST_PASSES):
            if not self._pass():
                break

    def _source(self, session: ClientSession | None = None) -> Source:
        context, place = self._work.context, self._place
        return Source(context.database, context.policy, place.collection, place.overflow, session)

    def _pass(self) -> int:
        deleted, uncounted = 0, set[bytes]()
        for batch, found in held_in(self._source(), self._work.erasure):
            for piece in chunks(batch.take(found.erased)):
                self._work.context.check()
                if self._place.name == "online":
                    self._work.forget(piece)
                    uncounted = self._heads.uncounted(piece)
                names, count = self._work.transaction(partial(self._delete, piece, uncounted))
                self._work.counted.update(names)
                self._work.context.progress("erased buckets", count)
                deleted += count
        return deleted

    @property
    def _heads(self) -> OnlineHeads:
        return OnlineHeads(self._work.context.database, self._work.context.policy)

    def _delete(self, piece: Batch, uncounted: Set[bytes], session: ClientSession) -> tuple[set[int], int]:
        """Deletes buckets. One that has changed goes as it is now, if it is still of the series."""
        work, place = self._work, self._place
        now = Batch.concat([piece.slice(0, 0), *self._source(session).by_raw_ids(piece.main.raw_ids)])
        erased = now.take(work.erasure.sort(now).erased)
        if not len(erased):
            return set(), 0
        names = work.take(names_of(erased), len(erased), place.name, session)
        ids = erased.main.ids
        database, overflow = work.context.database, work.context.policy.overflow
        main = database.get_collection(place.collection, codec_options=LOSSLESS)
        main.delete_many(ids_query(erased.main.raw_ids), session=session)
        if place.overflow is not None and overflow is not None:
            extra = database.get_collection(place.overflow, codec_options=LOSSLESS)
            extra.delete_many({overflow.ref_field: {"$in": ids}}, session=session, collation=SIMPLE)
        if place.name == "live":
            work.release(ids, session)
        else:
            heads = self._heads.subtracted(erased, session, uncounted)
            record_gone(work.context.deletions, place.collection, erased.main.raw_ids, session, heads)
            for state in ("copied", MERGING, MERGED):
                work.context.receipts.pull(ids, session, state)
        return names, len(erased)


def kept_of(erasure: Erasure, versions: KeptVersions) -> Iterator[tuple[list[bytes], Selected]]:
    """Yields the documents of each version beside the online archive that may be of the series, with what the
    bucket in them means."""
    for documents, bucket in versions.all():
        yield documents, erasure.sort(bucket)


class VersionsEraser:
    """Deletes the versions of buckets that lie beside the online archive."""

    def __init__(self, work: ErasureWork) -> None:
        self._work = work
        self._versions = KeptVersions(work.context.database, work.context.policy)

    def run(self) -> None:
        """Deletes version by version."""
        for documents, found in kept_of(self._work.erasure, self._versions):
            if len(found.erased):
                self._work.context.check()
                self._work.transaction(partial(self._delete, documents))

    def _delete(self, documents: list[bytes], session: ClientSession) -> None:
        self._work.check_not_held(session)
        self._work.erasures.count({"versions": 1}, session)
        self._versions.erase(documents, session)


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
