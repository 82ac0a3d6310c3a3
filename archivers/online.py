"""The online archive: buckets move to another collection, with the same `_id` and the same bytes.

The order: the copies and the receipt that names them are written in one transaction (w: majority); the
copies are read back and compared; then originals that still equal them are deleted, in another one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from bson.raw_bson import RawBSONDocument
from numpy.typing import NDArray
from pymongo import ASCENDING
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import CollectionInvalid

from archivers.delete import MAX_BUCKETS, Outcome, chunks, guarded_delete, same_id, units
from archivers.deletions import packed_ids
from archivers.work import Work
from buckets.asked import extended_json
from buckets.columns import Quarantined, Series
from buckets.covered import first_and_last, sample_index
from buckets.decode import Lot, decode
from buckets.raw import LOSSLESS, Batch, Docs
from buckets.source import Source
from config.errors import HaltedError
from config.policies import Policy
from config.targets import overflow_archive
from rollups.guarded import majority, transaction

Document = dict[str, Any]


def archive_collections(policy: Policy) -> tuple[str, str | None]:
    """Where an online policy's buckets go, and where their overflow goes."""
    assert policy.archive is not None and policy.archive.collection is not None
    target = policy.archive.collection
    return target, overflow_archive(target) if policy.overflow else None


def archived_source(
    database: Database[Document], policy: Policy, session: ClientSession | None = None
) -> Source:
    target, overflow = archive_collections(policy)
    return Source(database, policy, target, overflow, session)


def insert_raw(
    database: Database[Document], collection: str, documents: Docs, session: ClientSession | None = None
) -> None:
    """Insert documents as they are; outside a transaction w: majority. Raises pymongo's errors."""
    concern = None if session else majority(database)
    target = database.get_collection(collection, codec_options=LOSSLESS, write_concern=concern)
    if len(documents):
        raw = [RawBSONDocument(document, LOSSLESS) for document in documents]
        target.insert_many(raw, ordered=False, session=session)


class OnlineRun:
    """Satisfies `Archiver`."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._receipts = work.receipts
        self._target, self._overflow = archive_collections(work.policy)
        if not work.dry_run:
            self._make_collections()

    def _make_collections(self) -> None:
        """With zstd blocks, and the index that range queries by series and time need."""
        policy, database = self._work.policy, self._work.database
        first, last = first_and_last(policy)
        time_fields = list(dict.fromkeys((last, first)))
        series = [path.replace(".*.", ".") for path in policy.series_fields]
        by_series = [(field, ASCENDING) for field in dict.fromkeys((*series, *time_fields))]
        by_time = [(field, ASCENDING) for field in time_fields]
        indexes = {self._target: [by_series, by_time]}
        if field := sample_index(policy):
            indexes[self._target].append([(field, ASCENDING)])
        if self._overflow and policy.overflow:
            indexes[self._overflow] = [[(policy.overflow.ref_field, ASCENDING)]]
        present = set(database.list_collection_names())
        for name, keys in indexes.items():
            if name not in present:
                engine = {"wiredTiger": {"configString": "block_compressor=zstd"}}
                with contextlib.suppress(CollectionInvalid):  # another run has just made it
                    database.create_collection(name, storageEngine=engine)
            for key in keys:
                database[name].create_index(key)

    def misfit(self, series: Series) -> tuple[str, object] | None:
        del series  # a collection holds any
        return None

    def recover(self) -> None:
        """A crash leaves nothing half done; `settle` deletes what is left to delete."""
        self._receipts.prepare()

    def settle(self, start_ms: int, end_ms: int) -> None:
        if self._work.kept:
            return
        for receipt in list(self._receipts.in_state("copied", "online")):
            if self._work.in_grace(receipt["copied"]):
                continue
            for at in range(0, len(receipt["ids"]), MAX_BUCKETS):
                for copies in self._archived.by_ids(receipt["ids"][at : at + MAX_BUCKETS]):
                    decoded = decode(copies, self._work.policy)
                    due = decoded.units[(decoded.last >= start_ms) & (decoded.last < end_ms)]
                    going = copies.take(np.sort(due))
                    going = going.take(self._work.without_pinned(going))
                    spans = decoded.spans()  # what was equal all along may have been another one in between
                    if not len(going) or not self._work.rolled_up(int(spans.min()), int(spans.max()) + 1):
                        continue
                    for piece in chunks(going):
                        self._delete(receipt["_id"]["name"], piece)  # this run finds the newer ones

    def fresh(self, batch: Batch, first_ms: int, last_ms: int) -> NDArray[np.int64]:
        """Equal copies stay out. Another document of the same `_id` is in the way: that is reported, unless
        it is a copy of our own that has become old."""
        del first_ms, last_ms  # copies are found by `_id`
        out: set[int] = set()
        for at in range(0, len(batch), MAX_BUCKETS):
            piece = batch.slice(at, min(at + MAX_BUCKETS, len(batch)))
            out |= {at + i for i in self._standing(piece)}
        return np.array([i for i in range(len(batch)) if i not in out], dtype=np.int64)

    def _standing(self, batch: Batch) -> set[int]:
        """Those that need no copy, or can have none."""
        work, measured = self._work, self._work.measured
        ids = [batch.main.decode_id(i) for i in range(len(batch))]
        copied = self._receipts.copied(ids)
        mine = units(work.policy, batch)
        there = {name: unit for copies in self._archived.by_ids(ids) for name, unit in self._named(copies)}
        waiting, stale, conflicts = [], [], []
        for i, unit in enumerate(mine):
            name = same_id(batch.main.raw_id(i))
            copy, when = there.get(name), copied.get(batch.main.raw_id(i))
            if measured:  # its `_id` need not be unique
                there.setdefault(name, unit)
            if copy is None:
                continue
            if copy == unit:
                if work.kept or (when and work.in_grace(when)):
                    waiting.append(i)
            elif when and not measured:
                stale.append(i)
            else:
                conflicts.append(i)
        work.report.leave(len(waiting), work.kept or self._grace)
        reason = f"another document with this _id is in {self._target}: it was archived before, or put there"
        work.report.quarantine([Quarantined(batch.main.legible_id(i), "_id", reason) for i in conflicts])
        if stale and not work.dry_run:
            self._renew([ids[i] for i in stale])
        return {*waiting, *conflicts}

    def _named(self, batch: Batch) -> Iterator[tuple[bytes, bytes]]:
        for i, unit in enumerate(units(self._work.policy, batch)):
            yield same_id(batch.main.raw_id(i)), unit

    def _renew(self, ids: list[Any]) -> None:
        def step(session: ClientSession) -> None:
            self._take_back(ids, session)
            self._receipts.pull(ids, session)

        transaction(self._work.database, self._work.guard, step)

    def _take_back(self, ids: Sequence[Any], session: ClientSession) -> None:
        if self._overflow and self._work.policy.overflow:
            reference = {self._work.policy.overflow.ref_field: {"$in": list(ids)}}
            overflow = self._work.database.get_collection(self._overflow, codec_options=LOSSLESS)
            overflow.delete_many(reference, session=session)
        target = self._work.database.get_collection(self._target, codec_options=LOSSLESS)
        target.delete_many({"_id": {"$in": list(ids)}}, session=session)

    def finish(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is open."""

    def move(self, lot: Lot) -> None:
        for piece in chunks(lot.batch):
            self._work.check()
            name = f"{self._work.now:%Y%m%dT%H%M%S}-f{self._work.fence:06d}-{piece.digest[:16]}"
            self._copy(name, piece)
            self._work.report.bytes += piece.size
            if self._work.kept:
                self._work.report.leave(len(piece), self._work.kept)
            elif self._work.in_grace(self._work.now):
                self._work.report.leave(len(piece), self._grace)
            else:
                self._work.report.change(self._delete(name, piece))

    def _copy(self, name: str, piece: Batch) -> None:
        """Write the copies that aren't there yet, and compare all with the originals as read."""
        ids = [piece.main.decode_id(i) for i in range(len(piece))]
        held = self._held(ids)
        mine = units(self._work.policy, piece)
        missing = piece.take(np.array([i for i, unit in enumerate(mine) if unit not in held], dtype=np.int64))
        receipt = {
            "kind": "online",
            "state": "copied",
            "collection": self._work.policy.collection,
            "into": self._target,
            "ids": ids,
            "copied": self._work.now,
            "documents_sha256": piece.digest,
        }

        def step(session: ClientSession) -> None:
            insert_raw(self._work.database, self._target, missing.main, session)
            if self._overflow:
                insert_raw(self._work.database, self._overflow, missing.extra, session)
            self._receipts.update(name, {"$set": receipt}, session)

        transaction(self._work.database, self._work.guard, step)
        self._see_copies(piece)

    def _see_copies(self, piece: Batch, session: ClientSession | None = None) -> None:
        """Raises HaltedError unless each bucket has an equal copy in the archive."""
        ids = [piece.main.decode_id(i) for i in range(len(piece))]
        held = self._held(ids, session)
        wrong = [ids[i] for i, unit in enumerate(units(self._work.policy, piece)) if unit not in held]
        if wrong:
            raise HaltedError(
                f"policy {self._work.policy.name}: {len(wrong)} copies in {self._target} are not there, or "
                f"not equal to their originals, the first with _id {extended_json(wrong[0])}; "
                "these were not deleted"
            )

    def _held(self, ids: Sequence[Any], session: ClientSession | None = None) -> set[bytes]:
        source = archived_source(self._work.database, self._work.policy, session)
        return {unit for copies in source.by_ids(ids) for unit in units(self._work.policy, copies)}

    @property
    def _archived(self) -> Source:
        return archived_source(self._work.database, self._work.policy)

    @property
    def _grace(self) -> str:
        return f"copied, and waits for the grace of {self._work.archive.grace}"

    def _delete(self, name: str, verified: Batch) -> int:
        """Returns how many had changed."""
        self._work.check()
        outcome = guarded_delete(
            self._work.database,
            self._work.policy,
            verified,
            self._work.guard,
            lambda session, outcome: self._record(session, name, verified, outcome),
        )
        self._work.report.deleted += len(outcome.deleted)
        if outcome.gone:
            self._keep(verified.take(np.array(outcome.gone, dtype=np.int64)))
        return len(outcome.changed)

    def _keep(self, gone: Batch) -> None:
        """Copies whose originals somebody else has deleted count from now on. Where they lie nothing may
        tell: an original may have moved before. Until that is rolled up, the next run finds them again."""
        spans = decode(gone, self._work.policy).spans()
        if not self._work.rolled_up(int(spans.min()), int(spans.max()) + 1, anew=True):
            return
        ids = [gone.main.decode_id(i) for i in range(len(gone))]
        transaction(self._work.database, self._work.guard, partial(self._receipts.pull, ids))

    def _record(self, session: ClientSession, name: str, verified: Batch, outcome: Outcome) -> None:
        """In the delete's transaction: the copies are there still; those that have become old go, and the
        receipts name none of these any more."""
        self._see_copies(verified.take(np.array(outcome.deleted, dtype=np.int64)), session)
        self._take_back([verified.main.decode_id(i) for i in outcome.changed], session)
        update = {"$set": {"at": self._work.now}, "$inc": {"deleted": len(outcome.deleted)}}
        self._receipts.update(name, update, session)
        self._work.deletions.record(
            session,
            [verified.unit(i) for i in outcome.deleted],
            {"ids": packed_ids([verified.main.decode_id(i) for i in outcome.deleted])},
            {"collection": self._target, "overflow": self._overflow},
        )
        settled = sorted({*outcome.deleted, *outcome.changed})
        self._receipts.pull([verified.main.decode_id(i) for i in settled], session)
