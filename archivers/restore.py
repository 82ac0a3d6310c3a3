"""Restore: archived buckets come back as they were, byte for byte, into any collection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import BulkWriteError

from archivers.delete import MAX_BUCKETS, chunks, compare, same_id
from archivers.manifest import Manifest
from archivers.offline import OfflineArchive
from archivers.online import archive_collections, archived_source, insert_raw
from archivers.pins import Pins
from archivers.receipts import Receipts
from archivers.stores.base import ObjectStore
from buckets import timeseries
from buckets.ahead import ahead
from buckets.asked import check_asked, extended_json, series_text
from buckets.columns import Series
from buckets.decode import Lot, decode
from buckets.raw import LOSSLESS, Batch, Docs
from buckets.source import Source, find_by_ids
from buckets.times import FIRST_MS, LAST_MS, as_date, as_ms
from buckets.timeseries import measurement
from config.errors import BucketwiseError, HaltedError, UsageError
from config.policies import Policy
from rollups.guarded import Guard, transaction
from rollups.units import at_once, result_of

Document = dict[str, Any]
_DUPLICATE_KEY = 11000
Indices = NDArray[np.int64]
#: Tells the books which of a batch's buckets are restored, in the transaction that restores them.
Note = Callable[[Indices, ClientSession], None]


@dataclass
class RestoreReport:
    """What is in the target now, whether this run put it there or an earlier one."""

    buckets: int = 0
    readings: int = 0
    overflow: int = 0  # overflow documents
    pinned: int = 0  # of the buckets


def restore(
    database: Database[Document],
    policy: Policy,
    store: ObjectStore | None,
    now: datetime,
    *,
    since: datetime | None,
    until: datetime | None,
    series: Mapping[str, str],
    to: str,
    pinned_until: datetime | None,
    guard: Guard,
    check: Callable[[], None],
    progress: Callable[[str, int], None],
) -> RestoreReport:
    """Bring back every bucket with a reading in [since, until) of the series asked for.

    Into the source they are pinned: no run deletes them, or archives them again, before `pinned_until`; with
    None, before they are released.

    Overflow documents go back into the policy's overflow collection. What is there already and equal
    stays; another document of the same `_id` is never written over. Raises UsageError for a target that
    won't do, BucketwiseError where documents are in the way, HaltedError where the archive is not what it
    should be.
    """
    _check_request(database, policy, series, to)
    start = FIRST_MS if since is None else as_ms(since)
    end = LAST_MS + 1 if until is None else as_ms(until)
    report = RestoreReport()
    blocked: list[Any] = []
    books = None
    if to == policy.collection:
        receipts, pins = Receipts(database, policy.name), Pins(database, policy, now)
        books = _Books(receipts, pins, pinned_until)
    archived = _archived(database, policy, store, start, end, to, books)
    with ThreadPoolExecutor(1, "bucketwise-reader") as reader:
        seen: Future[None] = at_once(lambda: None)  # of the piece before: it is read back meanwhile
        for wanted in ahead(map(partial(_wanted, policy, start, end, series), archived), lambda: True):
            at = 0
            for piece in chunks(wanted.batch):
                check()
                here = wanted.indices[at : at + len(piece)]
                at += len(piece)
                if policy.model == "timeseries":
                    _put_measurements(database, policy, to, piece.main)
                else:
                    put = _put(database, policy, to, piece, guard, here, wanted.note)
                    report.pinned += len(piece) - len(put.blocked) if books else 0
                    blocked += [piece.main.decode_id(i) for i in sorted(put.blocked)]
                    result_of(seen, check)
                    seen = reader.submit(_see, database, put)
                report.overflow += len(piece.extra)
                progress("restored buckets", len(piece))
            report.buckets += len(wanted.batch)
            report.readings += wanted.readings
        result_of(seen, check)
    if blocked:
        raise BucketwiseError(
            f"--to {to}: {len(blocked)} of {report.buckets} buckets were not restored: another document has "
            f"the same _id, the first time {extended_json(blocked[0])}. What is there was left as it is. "
            "Restore into a new collection, or a shorter range where one _id was archived more than once"
        )
    return report


def _check_request(database: Database[Document], policy: Policy, series: Mapping[str, str], to: str) -> None:
    check_asked(policy, series)
    if policy.archive is None or policy.archive.to == "none":
        raise UsageError(f"policy {policy.name} archives nothing, so there is nothing to restore")
    taken = [policy.rollup.hourly, policy.rollup.daily] if policy.rollup else []
    if policy.archive.to == "online":
        taken += archive_collections(policy)
    if policy.overflow is not None:
        taken.append(policy.overflow.collection)
    if to in taken or to.startswith(("system.", "bucketwise_")) or not to or "$" in to:
        raise UsageError(f"--to {to}: buckets can't be restored there; name the source or a new collection")
    found = next(iter(database.list_collections(filter={"name": to})), None)
    wanted = "timeseries" if policy.model == "timeseries" else "collection"
    if found is not None and found["type"] != wanted:
        needed = "a native time-series collection" if wanted == "timeseries" else "an ordinary collection"
        raise UsageError(f"--to {to}: it is a {found['type']}; this policy's buckets need {needed}")


def _archived(
    database: Database[Document],
    policy: Policy,
    store: ObjectStore | None,
    start: int,
    end: int,
    to: str,
    books: _Books | None,
) -> Iterator[_Found]:
    """All that may hold something of the range."""
    assert policy.archive is not None
    if policy.archive.to == "online":
        for batch in archived_source(database, policy).batches(start, end):
            note = partial(books.online, batch) if books else _note_nothing
            yield _Found(Lot(batch, policy), note)
        return
    assert store is not None
    archive = OfflineArchive(policy, store, Receipts(database, policy.name).seal)
    for manifest in archive.manifests(start, end):
        if manifest.timeseries is not None and timeseries.made_with(database, to) is None:
            database.create_collection(to, timeseries=manifest.timeseries)
        batch = archive.load(manifest)
        note = partial(books.offline, manifest, batch) if books else _note_nothing
        span = as_ms(manifest.first), as_ms(manifest.last)
        yield _Found(Lot(batch, manifest.archived_policy), note, span, manifest.readings)


def _note_nothing(_chosen: Indices, _session: ClientSession) -> None:
    pass


@dataclass(frozen=True)
class _Books:
    """What is restored into the source is live again: the receipt has to say so, for later versions to take
    the place of the archived ones. And it is pinned, since the next run would take it for expired."""

    receipts: Receipts
    pins: Pins
    until: datetime | None

    def offline(self, manifest: Manifest, batch: Batch, chosen: Indices, session: ClientSession) -> None:
        live = self.receipts.live(manifest.commit, manifest.buckets, session)
        live[chosen] = True
        self.receipts.set_live(manifest.commit, live, {}, session)
        self.pins.put(batch.take(chosen), self.until, session)

    def online(self, batch: Batch, chosen: Indices, session: ClientSession) -> None:
        restored = batch.take(chosen)
        ids = [restored.main.decode_id(i) for i in range(len(restored))]
        facts = {"kind": "online", "state": "copied", "ids": ids, "copied": as_date(FIRST_MS)}
        self.receipts.update(f"restored-{restored.digest[:32]}", {"$set": facts}, session)
        self.pins.put(restored, self.until, session)


class _Found(NamedTuple):
    """Some of what is archived; `span` and `readings` where they are known without a look at the buckets."""

    lot: Lot
    note: Note
    span: tuple[int, int] | None = None  # of first and last reading
    readings: int = 0


class _Wanted(NamedTuple):
    """What is asked for of it."""

    batch: Batch
    indices: Indices  # of its buckets, in what was found
    note: Note
    readings: int


def _wanted(policy: Policy, start: int, end: int, series: Mapping[str, str], found: _Found) -> _Wanted:
    """Buckets with a reading in the range (empty ones: their last time), in the order of their `_id`s: where
    they are put, they lie together then."""
    batch, chosen, readings = found.lot.batch, np.arange(len(found.lot)), found.readings
    if found.span is None or found.span[0] < start or found.span[1] >= end or series:
        columns = found.lot.decoded.columns
        named = np.array([_matches(one, policy, series) for one in columns.series], dtype=np.bool_)
        mine = found.lot.decoded.touching(start, end) & columns.holds(named)
        chosen, readings = found.lot.decoded.units[mine], int(mine[columns.bucket].sum())
    chosen = chosen[batch.take(chosen).main.id_order()]
    return _Wanted(batch.take(chosen), chosen, found.note, readings)


def _matches(one: Series, policy: Policy, wanted: Mapping[str, str]) -> bool:
    values = dict(zip(policy.series_names, one, strict=False))
    return all(series_text(values[name]) == text for name, text in wanted.items() if name in values)


class _Put(NamedTuple):
    places: list[tuple[str, Docs, list[int]]]  # collection, documents, and of which bucket each is
    blocked: set[int]  # buckets that were left out


def _put(
    database: Database[Document],
    policy: Policy,
    to: str,
    piece: Batch,
    guard: Guard,
    here: Indices,
    note: Note,
) -> _Put:
    """Insert what isn't there, with the note, in one transaction. Mostly nothing is there: it is looked up
    where an insert says so. Buckets in whose way another document is are left out."""
    places: list[tuple[str, Docs, list[int]]] = [(to, piece.main, list(range(len(piece))))]
    blocked: set[int] = set()
    if policy.overflow is not None:
        # A live bucket may have changed in its overflow alone: none of the old one must join that.
        blocked |= set(compare(database, policy, piece).changed)
        places.append((policy.overflow.collection, piece.extra, piece.owner.tolist()))

    def put(absent: list[list[int]]) -> None:
        def step(session: ClientSession) -> None:
            for (collection, documents, owner), missing in zip(places, absent, strict=True):
                new = documents.take([i for i in missing if owner[i] not in blocked])
                insert_raw(database, collection, new, session)
            note(here[[i for i in range(len(piece)) if i not in blocked]], session)

        transaction(database, guard, step)

    try:
        put([list(range(len(documents))) for _, documents, _ in places])
    except BulkWriteError as error:
        if not _is_there(error):
            raise
        there = [_standing(database, collection, documents) for collection, documents, _ in places]
        for (_, documents, owner), standing in zip(places, there, strict=True):
            blocked |= {owner[i] for i, it in enumerate(standing) if it not in (None, documents[i])}
        put([[i for i, it in enumerate(standing) if it is None] for standing in there])
    return _Put(places, blocked)


def _see(database: Database[Document], put: _Put) -> None:
    """Read back what was put, and compare."""
    for collection, documents, owner in put.places:
        if not put.blocked and _stands(database, collection, documents):
            continue
        for i, it in enumerate(_standing(database, collection, documents)):
            if it != documents[i] and owner[i] not in put.blocked:
                raise HaltedError(
                    f"a restored document is not in {collection} as it was: "
                    f"_id {extended_json(documents.decode_id(i))}"
                )


def _stands(database: Database[Document], collection: str, documents: Docs) -> bool:
    """Whether all are there. They are read in the order of the index, so that one comparison tells."""
    target = database.get_collection(collection, codec_options=LOSSLESS)
    found = Docs.concat([Docs.none(), *find_by_ids(target, documents.raw_ids)])
    return found.data == documents.take(documents.id_order()).data


def _standing(database: Database[Document], collection: str, documents: Docs) -> list[bytes | None]:
    """Of each document: what has its `_id` there. 1 and 1.0 are one `_id` to MongoDB."""
    target = database.get_collection(collection, codec_options=LOSSLESS)
    there: dict[bytes, bytes] = {}
    for at in range(0, len(documents), MAX_BUCKETS):
        for found in find_by_ids(target, documents.raw_ids[at : at + MAX_BUCKETS]):
            there.update((same_id(found.raw_id(i)), found[i]) for i in range(len(found)))
    return [there.get(same_id(documents.raw_id(i))) for i in range(len(documents))]


def _is_there(error: BulkWriteError) -> bool:
    """Whether a write failed since another document has the `_id`."""
    return any(it.get("code") == _DUPLICATE_KEY for it in (error.details or {}).get("writeErrors", ()))


def _put_measurements(database: Database[Document], policy: Policy, collection: str, documents: Docs) -> None:
    """Into a native time-series collection, which has no unique `_id`: what is there is looked up first."""
    decoded = decode(Batch.of(documents), policy)
    span = int(decoded.columns.time.min()), int(decoded.columns.time.max()) + 1

    def there() -> set[bytes]:
        found = Source(database, policy, collection).batches(*span)
        return {measurement(document) for batch in found for document in batch.main}

    present = there()
    missing = [document for document in documents if measurement(document) not in present]
    insert_raw(database, collection, Docs.of(missing))
    present = there()
    if not all(measurement(document) in present for document in documents):
        raise HaltedError(f"a restored measurement is not in {collection} as it was; nothing was deleted")
