"""Writes that are never half-done: guarded deletes, raw inserts, copies in an online archive."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import bson
import numpy as np
from bson.raw_bson import RawBSONDocument
from numpy.typing import NDArray
from pymongo import ReplaceOne, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import CollectionInvalid

from bucketwise.archivers import decisions
from bucketwise.archivers.decisions import Outcome
from bucketwise.archivers.format.manifest import Manifest
from bucketwise.buckets.bson.cursor import SIMPLE, ids_query
from bucketwise.buckets.bson.raw import LOSSLESS, Batch, Docs
from bucketwise.buckets.bson.types import TIMESTAMP, elements
from bucketwise.buckets.decoding.decode import Decoded, decode
from bucketwise.buckets.fields.ids import sort_key
from bucketwise.buckets.fields.selectors import selected, selector_query
from bucketwise.buckets.fields.times import as_ms
from bucketwise.buckets.models import model_of
from bucketwise.buckets.source import Source
from bucketwise.config.errors import BucketwiseError, HaltedError
from bucketwise.config.policies import Policy
from bucketwise.rollups.context import Guard, majority, transaction
from bucketwise.rollups.holds import Hold, Holds


def covered(decoded: Decoded, policy: Policy, holds: Iterable[Hold]) -> dict[int, Hold]:
    """Returns which buckets of a batch these holds cover: index in the batch -> the first such hold.

    A bucket is covered where it holds a reading in the range, and a reading of the series. A series field of
    the hold that the policy no longer has matches any value. Buckets that break their model are left out,
    since nothing moves or deletes them."""
    found: dict[int, Hold] = {}
    for hold in holds:
        selectors = hold.selectors(policy.series_names)
        chosen = [selected(decoded.columns.series, policy, it) for it in selectors]
        of_series = decoded.columns.holds(np.logical_or.reduce(chosen))
        mine = of_series & decoded.touching(hold.within.start_ms, hold.within.end_ms)
        for i in decoded.units[np.flatnonzero(mine)].tolist():
            found.setdefault(i, hold)
    return found


def may_cover(hold: Hold, manifest: Manifest, policy: Policy) -> bool:
    """Returns whether a hold may cover a bucket of a commit."""
    return hold.touches(as_ms(manifest.first), as_ms(manifest.last) + 1) and manifest.may_hold(
        policy, *hold.selectors(policy.series_names)
    )


def holds_any(source: Source, hold: Hold) -> bool:
    """Returns whether a query for what a hold covers finds a bucket in a collection."""
    selectors = hold.selectors(source.policy.series_names)
    query = selector_query(source.policy, *selectors) or None
    return any(len(it) > 0 for it in source.batches(hold.within.start_ms, hold.within.end_ms, query))


def check_none_frozen(decoded: Decoded, policy: Policy, holds: Iterable[Hold]) -> None:
    """Raises BucketwiseError where one of these holds covers a bucket, since it was placed during the run."""
    if frozen := covered(decoded, policy, holds):
        name = next(iter(frozen.values())).name
        raise BucketwiseError(
            f"policy {policy.name}: hold {name} was placed while the run worked, and freezes {len(frozen)} "
            "buckets that it was about to delete. They were left as they are. Run again"
        )


#: Buckets, and bytes of them, in one transaction at most.
MAX_BUCKETS = 1000
MAX_BYTES = 8 << 20

Document = dict[str, Any]
Record = Callable[[ClientSession, Outcome], None]


def same_id(raw_id: bytes) -> bytes:
    """Returns bytes that are equal for `_id`s that MongoDB takes for the same, such as 1 and 1.0. `raw_id`:
    of `Docs.raw_id`."""
    return sort_key(raw_id[0], raw_id[1:]) if raw_id else raw_id


def name_of(identity: Any) -> bytes:
    """Returns the `same_id` of an `_id`."""
    return same_id(Docs.of([bson.encode({"_id": identity}, codec_options=LOSSLESS)]).raw_id(0))


def id_names(batch: Batch) -> NDArray[np.int64]:
    """Returns a hash of each bucket's `_id`, equal within one process for those that MongoDB takes for the
    same."""
    return np.array([hash(same_id(raw_id)) for raw_id in batch.main.raw_ids], dtype=np.int64)


def units(policy: Policy, batch: Batch) -> list[bytes]:
    """Returns bytes for each bucket that are equal for equal buckets alone."""
    return model_of(policy).units(batch)


def measured(policy: Policy, batch: Batch, source: Source, start_ms: int, end_ms: int) -> NDArray[np.int64]:
    """Returns the indices of the measurements of a native time-series collection, all in [start, end), that
    are live. They have no index on `_id`, and it need not be unique."""
    mine = units(policy, batch)
    wanted = set(mine)
    there = {
        unit for live in source.batches(start_ms, end_ms) for unit in units(policy, live) if unit in wanted
    }
    return np.array([i for i, unit in enumerate(mine) if unit in there], dtype=np.int64)


def chunks(batch: Batch) -> Iterator[Batch]:
    """Yields the batch in pieces small enough for one transaction."""
    start, held = 0, 0
    for i, size in enumerate(batch.sizes.tolist()):
        if i > start and (i - start == MAX_BUCKETS or held + size > MAX_BYTES):
            yield batch.slice(start, i)
            start, held = i, 0
        held += size
    if len(batch) > start:
        yield batch.slice(start, len(batch))


def in_order(wanted: Batch, found: Iterable[Batch]) -> Batch:
    """Returns documents in the order of the buckets that were asked for, all of which are there."""
    there = Batch.concat([Batch.of(wanted.main.take([])), *found])
    place = {same_id(raw_id): i for i, raw_id in enumerate(there.main.raw_ids)}
    return there.take([place[same_id(it)] for it in wanted.main.raw_ids])


def guarded_delete(
    database: Database[Document], policy: Policy, verified: Batch, guard: Guard, record: Record
) -> Outcome:
    """Deletes from the source the buckets that equal `verified`: what the copy was proven to give, as it was
    read back.

    `verified` is one piece of `chunks`. `record` writes the receipt inside the transaction. Raises
    BucketwiseError where a hold freezes any of it."""
    holds = Holds(database, policy.identity)

    def step(session: ClientSession) -> Outcome:
        if frozen := holds.active(session, frozen=True):
            check_none_frozen(decode(verified, policy), policy, frozen)
        outcome = compare(database, policy, verified, session)
        _delete(database, policy, verified, outcome.deleted, session)
        record(session, outcome)
        return outcome

    return transaction(database, guard, step)


def compare(
    database: Database[Document], policy: Policy, verified: Batch, session: ClientSession | None = None
) -> Outcome:
    """Returns which buckets of the batch are live as verified, live but changed, or gone. Deletes nothing."""
    source = Source(database, policy, session=session)
    found = Batch.concat(list(source.by_raw_ids(verified.main.raw_ids)))
    place = {raw_id: i for i, raw_id in enumerate(found.main.raw_ids)}
    order = [place[raw_id] for raw_id in verified.main.raw_ids if raw_id in place]
    if len(order) == len(verified) and found.take(order).equals(verified):
        return Outcome(list(range(len(verified))), [], [])
    live = {raw_id: found.unit(i) for raw_id, i in place.items()}
    copies = ((verified.main.raw_id(i), verified.unit(i)) for i in range(len(verified)))
    return decisions.compared(copies, live)


def compare_all(database: Database[Document], policy: Policy, batch: Batch) -> Outcome:
    """Compares a batch of any size, piece by piece, as `compare` does."""
    whole, at = Outcome([], [], []), 0
    for piece in chunks(batch):
        for every, some in zip(whole, compare(database, policy, piece), strict=True):
            every += [at + i for i in some]
        at += len(piece)
    return whole


def _delete(
    database: Database[Document], policy: Policy, batch: Batch, indices: list[int], session: ClientSession
) -> None:
    if not indices:
        return
    chosen = batch.take(indices)
    source = database.get_collection(policy.collection, codec_options=LOSSLESS)
    gone = source.delete_many(ids_query(chosen.main.raw_ids), session=session)
    _check_all_gone(policy, gone.deleted_count, len(chosen), "buckets")
    if len(chosen.extra) and policy.overflow is not None:
        overflow = database.get_collection(policy.overflow.collection, codec_options=LOSSLESS)
        gone = overflow.delete_many(ids_query(chosen.extra.raw_ids), session=session)
        _check_all_gone(policy, gone.deleted_count, len(chosen.extra), "overflow documents")


def _check_all_gone(policy: Policy, gone: int, verified: int, what: str) -> None:
    if gone != verified:
        raise HaltedError(
            f"policy {policy.name}: a delete took {gone} {what} where {verified} were verified; the "
            "transaction was aborted and nothing was deleted"
        )


def make_packed(database: Database[Document], collection: str) -> None:
    """Creates a collection with zstd blocks, unless there is one of the name."""
    engine = {"wiredTiger": {"configString": "block_compressor=zstd"}}
    with contextlib.suppress(CollectionInvalid):  # it is there, or another run has just made it
        database.create_collection(collection, storageEngine=engine)


def insert_raw(
    database: Database[Document], collection: str, documents: Docs, session: ClientSession | None = None
) -> None:
    """Inserts documents as they are; outside a transaction, with majority concern. Raises pymongo's
    errors."""
    concern = None if session else majority(database)
    target = database.get_collection(collection, codec_options=LOSSLESS, write_concern=concern)
    filled = set(_filled_in(documents))
    if raw := [_raw(it) for i, it in enumerate(documents) if i not in filled]:
        target.insert_many(raw, ordered=False, session=session)
    if filled:
        absent: Document = {"$nor": [{}]}  # an upsert that matches nothing is an insert
        named = ({"$and": [ids_query([documents.raw_id(i)]), absent]} for i in filled)
        made = [
            UpdateOne(it, _set_to(documents[i]), upsert=True) for it, i in zip(named, filled, strict=True)
        ]
        target.bulk_write(made, ordered=False, session=session)


def replace_raw(
    database: Database[Document], collection: str, documents: Docs, session: ClientSession
) -> None:
    """Replaces those of these documents that are there, by their `_id`s, in a transaction."""
    target = database.get_collection(collection, codec_options=LOSSLESS)
    named = map(ids_query, ([raw_id] for raw_id in documents.raw_ids))
    filled = set(_filled_in(documents))
    writes: list[ReplaceOne[Any] | UpdateOne] = [
        UpdateOne(it, _set_to(documents[i])) if i in filled else ReplaceOne(it, _raw(documents[i]))
        for i, it in enumerate(named)
    ]
    if writes:
        target.bulk_write(writes, ordered=False, session=session)


#: What looks like a Timestamp of 0: its type, a name, eight zeros.
_ZERO = re.compile(rb"\x11[^\0]*\0\0{8}")


def _filled_in(documents: Docs) -> list[int]:
    """Returns the indices of the documents that an insert or a replacement would change: the server takes a
    Timestamp of 0 that is a top-level field, other than `_id`, for one that it is to fill in."""
    if _ZERO.search(documents.data) is None:
        return []
    return [i for i, it in enumerate(documents) if _ZERO.search(it) and _has_zero(it)]


def _has_zero(document: bytes) -> bool:
    return any(
        document[start] == TIMESTAMP
        and document[start + 1 : value] != b"_id\0"
        and not any(document[value:end])
        for start, value, end in elements(document)
    )


def _set_to(document: bytes) -> list[Document]:
    """Returns the update that makes a document this one: nothing in it is filled in."""
    return [{"$replaceWith": {"$literal": _raw(document)}}]


def _raw(document: bytes) -> RawBSONDocument:
    return RawBSONDocument(document, LOSSLESS)


def archive_collections(policy: Policy) -> tuple[str, str | None]:
    """Returns the collections of an online archive: of buckets, and of their overflow (None without any)."""
    archived = policy.archive_collections
    assert archived is not None
    return archived.buckets, archived.overflow


def archived_source(
    database: Database[Document], policy: Policy, session: ClientSession | None = None
) -> Source:
    """Returns the source that reads the policy's online archive, within a session if one is given."""
    target, overflow = archive_collections(policy)
    return Source(database, policy, target, overflow, session)


def put_copies(database: Database[Document], policy: Policy, copies: Batch, session: ClientSession) -> None:
    """Inserts buckets with their overflow into the archive, in a transaction."""
    target, overflow = archive_collections(policy)
    insert_raw(database, target, copies.main, session)
    if overflow is not None:
        insert_raw(database, overflow, copies.extra, session)


def take_back(
    database: Database[Document], policy: Policy, ids: Sequence[Any], session: ClientSession
) -> None:
    """Deletes the buckets with these `_id`s, and their overflow, from the archive, in a transaction."""
    target, overflow = archive_collections(policy)
    if overflow is not None and policy.overflow is not None:
        extra = database.get_collection(overflow, codec_options=LOSSLESS)
        named = {policy.overflow.ref_field: {"$in": list(ids)}}
        extra.delete_many(named, session=session, collation=SIMPLE)
    main = database.get_collection(target, codec_options=LOSSLESS)
    main.delete_many({"_id": {"$in": list(ids)}}, session=session)
