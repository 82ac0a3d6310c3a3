"""Puts restored buckets where they go, in transactions, and reads them back; records them; and finds what a
damaged archive can't give.

What is missing is named by the receipts of the deletes of its buckets. Those of a merged commit name the
commits that it was made from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import BulkWriteError

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.archive import OfflineArchive, SectionBuckets
from bucketwise.archivers.format.manifest import DamagedError, Manifest, origins_in
from bucketwise.archivers.records.deletions import RESTORED, Deletions, subtract_restored
from bucketwise.archivers.records.heads import with_replaced
from bucketwise.archivers.records.online_heads import OnlineHeads
from bucketwise.archivers.records.pins import Pins
from bucketwise.archivers.records.receipt_files import numbered_for
from bucketwise.archivers.records.receipts import Receipts, live_of
from bucketwise.archivers.restoring.options import Mode, Plan, Target, VersionHandling
from bucketwise.archivers.versions.history import Version, bucket_sets_of
from bucketwise.archivers.versions.superseded import Superseded
from bucketwise.archivers.writes import MAX_BUCKETS, compare, insert_raw, same_id
from bucketwise.buckets.bson.cursor import is_sharded
from bucketwise.buckets.bson.raw import LOSSLESS, Batch, Docs
from bucketwise.buckets.collations import find_by_ids
from bucketwise.buckets.decoding.decode import BucketSet, decode
from bucketwise.buckets.fields.selectors import extended_json, selected
from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS, as_date
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.series import is_of_series
from bucketwise.buckets.source import Source
from bucketwise.config.errors import HaltedError
from bucketwise.config.policies import Policy
from bucketwise.rollups.context import transaction

Document = dict[str, Any]
_DUPLICATE_KEY = 11000
Indices = NDArray[np.int64]
#: Records which of a batch's buckets are restored, in the transaction that restores them.
Note = Callable[[Indices, ClientSession], None]


class PutResult(NamedTuple):
    """The buckets that were put, where, and those that could not be."""

    places: list[tuple[str, Docs, list[int]]]  # collection, documents, and of which bucket each is
    blocked: set[int]  # buckets that were left out


def put(target: Target, piece: Batch, here: Indices, note: Note) -> PutResult:
    """Inserts the documents that are absent, and the note, in one transaction. Usually all are absent, so
    they are looked up only after an insert has failed. Leaves out buckets for which another document is in
    the way."""
    database, policy = target.database, target.policy
    places: list[tuple[str, Docs, list[int]]] = [(target.collection, piece.main, list(range(len(piece))))]
    blocked: set[int] = set()
    if policy.overflow is not None:
        # A live bucket may have changed in its overflow alone: no old overflow must join it.
        blocked |= set(compare(database, policy, piece).changed)
        places.append((policy.overflow.collection, piece.extra, piece.owner.tolist()))

    def put(absent: list[list[int]]) -> None:
        def step(session: ClientSession) -> None:
            for (collection, documents, owner), missing in zip(places, absent, strict=True):
                new = documents.take([i for i in missing if owner[i] not in blocked])
                insert_raw(database, collection, new, session)
                if is_sharded(database):  # another shard may have a document with the same `_id`
                    existing_in(database, collection, new, session)
            note(here[[i for i in range(len(piece)) if i not in blocked]], session)

        transaction(database, target.guard, step)

    try:
        put([list(range(len(documents))) for _, documents, _ in places])
    except BulkWriteError as error:
        if not _is_there(error):
            raise
        blocked |= repeated(piece.main)
        there = [existing_in(database, collection, documents) for collection, documents, _ in places]
        for (_, documents, owner), existing in zip(places, there, strict=True):
            blocked |= {owner[i] for i, it in enumerate(existing) if it not in (None, documents[i])}
        put([[i for i, it in enumerate(existing) if it is None] for existing in there])
    return PutResult(places, blocked)


def repeated(documents: Docs) -> set[int]:
    """Returns the indices of documents whose `_id` an earlier one has."""
    first: dict[bytes, int] = {}
    return {i for i, raw_id in enumerate(documents.raw_ids) if first.setdefault(same_id(raw_id), i) != i}


def check_put(database: Database[Document], put: PutResult) -> None:
    """Reads back what was put, and compares. Raises HaltedError where it differs."""
    for collection, documents, owner in put.places:
        if not put.blocked and _all_exist(database, collection, documents):
            continue
        for i, it in enumerate(existing_in(database, collection, documents)):
            if it != documents[i] and owner[i] not in put.blocked:
                raise HaltedError(
                    f"a restored document is not in {collection} as it was: "
                    f"_id {extended_json(documents.decode_id(i))}"
                )


def _all_exist(database: Database[Document], collection: str, documents: Docs) -> bool:
    """Returns whether all documents are there. Reads them in the order of the index, so that one comparison
    suffices."""
    target = database.get_collection(collection, codec_options=LOSSLESS)
    found = Docs.concat([Docs.none(), *find_by_ids(target, documents.raw_ids)])
    return found.data == documents.take(documents.id_order()).data


def existing_in(
    database: Database[Document], collection: str, documents: Docs, session: ClientSession | None = None
) -> list[bytes | None]:
    """Returns, for each document, the one in the collection that has its `_id`. 1 and 1.0 are one `_id` to
    MongoDB."""
    target = database.get_collection(collection, codec_options=LOSSLESS)
    there: dict[bytes, bytes] = {}
    for at in range(0, len(documents), MAX_BUCKETS):
        for found in find_by_ids(target, documents.raw_ids[at : at + MAX_BUCKETS], session):
            there.update((same_id(found.raw_id(i)), found[i]) for i in range(len(found)))
    return [there.get(same_id(documents.raw_id(i))) for i in range(len(documents))]


def _is_there(error: BulkWriteError) -> bool:
    """Returns whether a write failed because another document has the `_id`."""
    return any(it.get("code") == _DUPLICATE_KEY for it in (error.details or {}).get("writeErrors", ()))


def put_measurements(database: Database[Document], policy: Policy, collection: str, documents: Docs) -> None:
    """Inserts into a native time-series collection. Its `_id`s are not unique, so the documents that are
    there already are looked up first."""
    model, decoded = model_of(policy), decode(Batch.of(documents), policy)
    span = int(decoded.columns.time.min()), int(decoded.columns.time.max()) + 1

    def there() -> set[bytes]:
        found = Source(database, policy, collection).batches(*span)
        return {unit for batch in found for unit in model.units(batch)}

    present = there()
    missing = [document for document in documents if model.unit(document) not in present]
    insert_raw(database, collection, Docs.of(missing))
    present = there()
    if not all(model.unit(document) in present for document in documents):
        raise HaltedError(f"a restored measurement is not in {collection} as it was; nothing was deleted")


class ArchivedBuckets(NamedTuple):
    """Some archived buckets; `span` and `readings` where they are known without reading the buckets."""

    bucket_set: BucketSet
    note: Note
    span: tuple[int, int] | None = None  # of first and last reading
    readings: int = 0
    commit: str | None = None
    until: int = 0  # the position in the commit after the last of them
    share: float | None = None  # how much of the archive has been read, with this; None: not known


class MatchingBuckets(NamedTuple):
    """The archived buckets that match."""

    batch: Batch
    policy: Policy  # the one under which it was archived
    indices: Indices  # the places of the matching buckets in the batch
    note: Note
    readings: int
    commit: str | None
    until: int
    share: float | None


@dataclass(frozen=True)
class RestoreFilter:
    """Selects buckets with a reading in [start, end), milliseconds, of some series."""

    policy: Policy
    start: int
    end: int
    series: Mapping[str, str]

    @property
    def is_part(self) -> bool:
        """Returns whether a version of a bucket may be left out while another is not."""
        return self.start > FIRST_MS or self.end <= LAST_MS or bool(self.series)

    def may_hold(self, manifest: Manifest) -> bool:
        """Returns whether a commit may hold any of these series."""
        return manifest.may_hold(self.policy, self.series)

    def sections_of(self, manifest: Manifest) -> list[bool]:
        """Returns for each section of a commit whether it may hold any buckets that match."""
        return manifest.sections_of(self.policy, self.start, self.end, self.series)

    def of(self, found: ArchivedBuckets) -> MatchingBuckets:
        """Returns the matching buckets in the order of their `_id`s, so that they are written next to one
        another."""
        batch, chosen, readings = found.bucket_set.batch, np.arange(len(found.bucket_set)), found.readings
        if found.span is None or found.span[0] < self.start or found.span[1] >= self.end or self.series:
            mine = self._matching(found.bucket_set)
            chosen = found.bucket_set.decoded.units[mine]
            readings = int(mine[found.bucket_set.decoded.columns.bucket].sum())
        chosen = chosen[batch.take(chosen).main.id_order()]
        return MatchingBuckets(
            batch.take(chosen),
            found.bucket_set.policy,
            chosen,
            found.note,
            readings,
            found.commit,
            found.until,
            found.share,
        )

    def holds(self, versions: Sequence[Version]) -> list[bool]:
        """Returns which of these versions match."""
        found = [False] * len(versions)
        for places, buckets in bucket_sets_of(versions):
            for i in buckets.decoded.units[self._matching(buckets)].tolist():
                found[places[i]] = True
        return found

    def _matching(self, buckets: BucketSet) -> NDArray[np.bool_]:
        """Returns which decoded buckets match (an empty one by its last time)."""
        columns, touching = buckets.decoded.columns, buckets.decoded.touching(self.start, self.end)
        if not self.series:  # an empty one may be of none
            return touching
        if self.series.keys() <= set(buckets.policy.series_names):
            return touching & columns.holds(selected(columns.series, buckets.policy, self.series))
        return touching & np.isin(buckets.decoded.units, self._of_series(buckets.batch))

    def _of_series(self, batch: Batch) -> list[int]:
        """Returns the buckets of the series as the policy reads them now: where they were archived, it had
        not all of its series fields yet. What it can't read is looked at by its fields."""
        decoded = decode(batch, self.policy)
        named = decoded.columns.holds(selected(decoded.columns.series, self.policy, self.series))
        others = np.setdiff1d(np.arange(len(batch)), decoded.units).tolist()
        broken = [i for i in others if is_of_series(self.policy, batch.main[i], self.series)]
        return [*decoded.units[named].tolist(), *broken]


@dataclass(frozen=True)
class RestoreRecords:
    """Records restored buckets. One that is restored into the source is live again. Its receipt has to say
    so, so that a later version replaces the archived one. And it is pinned, since the next run would find it
    expired."""

    policy: Policy
    receipts: Receipts
    deletions: Deletions
    pins: Pins
    until: datetime | None
    how: VersionHandling

    def offline(
        self, manifest: Manifest, held: SectionBuckets, chosen: Indices, session: ClientSession
    ) -> None:
        """Records that chosen buckets of a section are live again, and pins them, in a transaction."""
        gone = self._set_live(manifest, held.positions[chosen], True, session) > 0
        restored = held.batch.take(chosen)
        subtract_restored(self.receipts, int(gone.sum()), int(restored.sizes[gone].sum()), session)
        self.pins.put(restored, self.until, session)

    def superseded(self, batch: Batch, chosen: Indices, session: ClientSession) -> None:
        """Pins a version that no longer counts. Nothing else is recorded of it."""
        self.pins.put(batch.take(chosen), self.until, session)

    def _set_live(
        self, manifest: Manifest, chosen: Indices, is_live: NDArray[np.bool_] | bool, session: ClientSession
    ) -> NDArray[np.int64]:
        """Returns what has changed, (n,): 1 where the bucket was deleted and is live again, -1 where it was
        live, else 0."""
        live = self.receipts.live(manifest.commit, manifest.buckets, session)
        before = live[chosen].astype(np.int64)
        live[chosen] = is_live
        self.receipts.set_live(manifest.commit, live, {}, session)
        changed: NDArray[np.int64] = live[chosen] - before
        return changed

    def online(self, batch: Batch, chosen: Indices, session: ClientSession) -> None:
        """Records that chosen buckets of an online archive are live again, and pins them, in a
        transaction."""
        restored = batch.take(chosen)
        live = self.receipts.copied(restored.main.ids, session)
        gone = np.array([raw_id not in live for raw_id in restored.main.raw_ids], dtype=np.bool_)
        heads = OnlineHeads(self.receipts.collection.database, self.policy).subtracted(restored, session)
        if heads:
            self.deletions.record_of_copies(RESTORED, {"buckets": len(restored), **heads}, session)
        ids = restored.main.ids
        facts = {"kind": "online", "state": "copied", "ids": ids, "copied": as_date(FIRST_MS)}
        self.receipts.update(f"restored-{restored.digest[:32]}", {"$set": facts}, session)
        subtract_restored(self.receipts, int(gone.sum()), int(restored.sizes[gone].sum()), session)
        self.pins.put(restored, self.until, session)

    def settled(self, plans: list[Plan], session: ClientSession) -> None:
        """Records that all versions in what was put are live. The pins hold the last version alone; where the
        bucket is more than that, the next run rolls its windows up again."""
        commits: dict[str, list[tuple[Version, bool]]] = {}
        for plan in plans:
            for version in plan.history.versions:
                if version.is_superseded:
                    continue
                is_live = self.how.mode == Mode.merged or version is plan.history.last
                if version.commit is not None:
                    commits.setdefault(version.commit.commit, []).append((version, is_live))
        buckets = size = 0
        for found in commits.values():
            positions = np.array([version.position for version, _ in found], dtype=np.int64)
            live = np.array([is_live for _, is_live in found], dtype=np.bool_)
            assert found[0][0].commit is not None
            changed = self._set_live(found[0][0].commit, positions, live, session)
            buckets += int(changed.sum())
            size += int(changed @ np.array([version.bucket.size for version, _ in found]))
        if plans and plans[0].history.last.commit is None:
            whole = Batch.concat([plan.final for plan in plans])
            self.online(whole, np.arange(len(whole)), session)
        elif plans:
            last = Batch.concat([plan.history.last.bucket for plan in plans])
            subtract_restored(self.receipts, buckets, size, session)
            self.pins.put(last, self.until, session, Batch.concat([plan.final for plan in plans]))


#: Files that are asked for at once.
_AT_ONCE = 8
#: Damages that an error names.
_MOST_NAMED = 3


class MissingBuckets(NamedTuple):
    """Buckets that the archive can't give. `live`: how many of them are still in the source. `receipts`: of
    the deletes of the others, and maybe of further buckets of the same commits."""

    commit: str
    place: str
    reason: str
    first: datetime | None
    last: datetime | None
    buckets: int
    live: int
    receipts: list[Document]


@dataclass
class DamageFound:
    """The damage that was met: an `OnDamage` that leaves it out."""

    met: dict[tuple[str, int | None, str], DamagedError] = field(default_factory=dict)

    def __call__(self, error: DamagedError, commit: str, section: int | None) -> None:
        """Notes damage once for each section of a commit, or file beside it."""
        self.met.setdefault((commit, section, error.place if section is None else ""), error)


def check_sound(archive: OfflineArchive, wanted: RestoreFilter) -> None:
    """Raises HaltedError where the archive can't give something that may be wanted: a manifest, a file of a
    commit, or one beside the commits is missing or changed. Reads what the store can't tell."""
    found = DamageFound()
    archive.on_damage, before = found, archive.on_damage
    try:
        _look(archive, wanted)
    finally:
        archive.on_damage = before
    if found.met:
        damage = [f"{it.place}: {it.what}" for it in found.met.values()]
        more = f"; and {len(damage) - _MOST_NAMED:,} more" if len(damage) > _MOST_NAMED else ""
        raise HaltedError(
            f"policy {archive.policy.name}: the archive can't give all that is asked for: "
            f"{'; '.join(damage[:_MOST_NAMED])}{more}. Nothing was restored. Put back what is damaged, or "
            "restore the rest with --skip-damaged"
        )


def _look(archive: OfflineArchive, wanted: RestoreFilter) -> None:
    def look(place: tuple[Manifest, int]) -> None:
        manifest, number = place
        try:
            archive.check_readable(manifest, number)
        except DamagedError as error:
            archive.on_damage(error, manifest.commit, number)

    manifests = archive.manifests(wanted.start, wanted.end)
    places = ((it, n) for it in manifests for n, is_wanted in enumerate(wanted.sections_of(it)) if is_wanted)
    with ThreadPoolExecutor(_AT_ONCE, "bucketwise-looks") as pool:
        for _ in pool.map(look, places):
            pass
    superseded = Superseded(archive)
    for file, manifest in superseded.around(wanted.start, wanted.end):
        if wanted.may_hold(manifest):
            superseded.check(file)


def missing_buckets(
    context: ArchiveContext, archive: OfflineArchive, found: DamageFound
) -> list[MissingBuckets]:
    """Returns what was left out, in the order of commits."""
    return [
        _missing(context, archive, commit, section, error)
        for (commit, section, _), error in sorted(found.met.items(), key=lambda it: str(it[0]))
    ]


def _missing(
    context: ArchiveContext, archive: OfflineArchive, commit: str, section: int | None, error: DamagedError
) -> MissingBuckets:
    receipt, names, span = context.receipts.get(commit) or {}, [commit], slice(None)
    first, last = receipt.get("first"), receipt.get("last")
    if section is not None:
        manifest = archive.current(context.receipts.registered([commit])[commit])
        first, last = manifest.sections[section].first, manifest.sections[section].last
        span = slice(*manifest.edges[section : section + 2])
        with contextlib.suppress(DamagedError):  # one of those that it replaced: what is known has to do
            taken_over = with_replaced(context.receipts, archive, manifest)
            mine = origins_in(manifest, span.start, span.stop)
            names = [it.commit for it in taken_over if mine & origins_in(it, 0, it.buckets)]
    live = live_of(receipt, receipt.get("buckets", 0))[span]
    receipts = numbered_for(context.receipts, context.receipt_files, 0, names)
    return MissingBuckets(
        commit, error.place, error.what, first, last, len(live), int(live.sum()), list(map(_named, receipts))
    )


def _named(receipt: Document) -> Document:
    held_by = receipt["held_by"]["commit"]
    kept = ("sequence", "at", "buckets", "positions", "documents_sha256")
    return {**{key: receipt.get(key) for key in kept}, "commit": held_by}
