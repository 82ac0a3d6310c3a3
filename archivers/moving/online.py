"""The online archive: buckets move to another collection, with the same `_id` and the same bytes.

The copies and the receipt that names them are written in one transaction (w: majority). The copies are read
back and compared. Then originals that still equal them are deleted, in another transaction."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymongo import ASCENDING, IndexModel
from pymongo.client_session import ClientSession

from bucketwise.archivers.decisions import Outcome
from bucketwise.archivers.records.copies import CopyReceipts, packed_marks, record_gone
from bucketwise.archivers.records.deletions import KEPT, RESTORED, facts_of_archived
from bucketwise.archivers.records.online_heads import ArchivedDays, OnlineHeads
from bucketwise.archivers.records.receipts import MERGED, MERGING, Document
from bucketwise.archivers.run import ArchiveRun, DryRun
from bucketwise.archivers.versions.kept import MAX_BYTES
from bucketwise.archivers.versions.merging import Merging
from bucketwise.archivers.versions.superseded import still_live
from bucketwise.archivers.writes import (
    MAX_BUCKETS,
    archive_collections,
    archived_source,
    chunks,
    in_order,
    make_packed,
    put_copies,
    same_id,
    take_back,
    units,
)
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.columns import Quarantined, Series
from bucketwise.buckets.decoding.decode import BucketSet, decode
from bucketwise.buckets.fields.selectors import extended_json
from bucketwise.buckets.models import model_of
from bucketwise.buckets.phases import phase
from bucketwise.buckets.source import Source
from bucketwise.buckets.versions.readings import lacks
from bucketwise.config.errors import HaltedError
from bucketwise.rollups.context import transaction


class OnlineRun:
    """The `Archiver` of an online archive."""

    def __init__(self, work: ArchiveRun) -> None:
        self._work = work
        self._receipts = work.receipts
        self._target, self._overflow = archive_collections(work.policy)
        self._archived = partial(archived_source, work.database, work.policy)
        self._ready: set[bytes] = set()  # the `_id`s of late buckets that may be merged
        self._stale: set[bytes] = set()  # buckets whose copies are out of date
        self._heads = OnlineHeads(work.database, work.policy, work.keys)
        self._merging = Merging(work)

    def _make_collections(self, present: Container[str]) -> None:
        """Creates collections with zstd blocks, and the index for range queries by series and time."""
        policy, database = self._work.policy, self._work.database
        model = model_of(policy)
        time_fields = list(reversed(model.own_times))
        series = policy.stored_series.values()
        by_series = [(field, ASCENDING) for field in dict.fromkeys((*series, *time_fields))]
        by_time = [(field, ASCENDING) for field in time_fields]
        indexes = {self._target: [it for it in (by_series, by_time) if it]}
        if field := model.sample_index:
            indexes[self._target].append([(field, ASCENDING)])
        if self._overflow and policy.overflow:
            indexes[self._overflow] = [[(policy.overflow.ref_field, ASCENDING)]]
        for name, keys in indexes.items():
            if name not in present:
                make_packed(database, name)
            database[name].create_indexes([IndexModel(list(key)) for key in dict.fromkeys(map(tuple, keys))])

    def misfit(self, series: Series) -> tuple[str, object] | None:
        """Returns None: the archive takes any series."""
        del series  # a collection holds any
        return None

    def recover(self) -> None:
        """Checks, once a run, that the archive is there, and makes what is absent."""
        work = self._work
        work.binding.check()
        if work.state.is_recovered:
            return
        found = self._heads.check(work.state.record)
        self._make_collections(found.present)
        self._receipts.prepare()
        if not found.is_recorded:
            self._heads.record(work.deletions, work.guard)
        if found.must_stay:
            work.note_deleting()
        work.state.heads, work.state.is_recovered = [], True

    def settle(self, start_ms: int, end_ms: int) -> None:
        """Deletes copied buckets that end within [start, end), milliseconds, and whose grace is over."""
        waiting: dict[str, list[Document]] = {"copied": [], MERGING: [], MERGED: []}
        for receipt in self._receipts.in_state({"$in": list(waiting)}, "online"):
            waiting[receipt["state"]].append(receipt)
        self._merging.roll_up_merged(waiting[MERGED])
        if self._work.kept:
            return
        self._merging.settle(waiting[MERGING], start_ms, end_ms)
        for receipt in waiting["copied"]:
            if self._work.in_grace(receipt["copied"]):
                continue
            for at in range(0, len(receipt["ids"]), MAX_BUCKETS):
                for copies in self._archived().by_ids(receipt["ids"][at : at + MAX_BUCKETS]):
                    deletable, spans = self._work.deletable(copies, start_ms, end_ms)
                    for piece in chunks(deletable):  # this run finds the newer ones
                        self._delete(receipt["_id"]["name"], piece, spans)

    def not_copied(self, buckets: BucketSet, first_ms: int, last_ms: int) -> NDArray[np.int64]:
        """Returns the buckets without an equal copy. Another document with the `_id` may be an outdated copy
        or an earlier version; any other is in the way, and is reported."""
        del first_ms, last_ms  # copies are found by `_id`
        batch = buckets.batch
        out: set[int] = set()
        self._ready.clear()
        self._stale.clear()
        for at in range(0, len(batch), MAX_BUCKETS):
            piece = batch.slice(at, min(at + MAX_BUCKETS, len(batch)))
            out |= {at + i for i in self._to_skip(piece)}
        return np.array([i for i in range(len(batch)) if i not in out], dtype=np.int64)

    def _to_skip(self, batch: Batch) -> set[int]:
        """Returns the buckets that need no copy, or can have none."""
        work, measured = self._work, self._work.measured
        ids = batch.main.ids
        copied = self._receipts.copied(ids)
        mine = units(work.policy, batch)
        there = dict(self._named_in_archive(ids))
        waiting, due, stale, late = list[int](), list[int](), list[int](), list[int]()
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
                elif when:
                    due.append(i)
            elif when and not measured:
                stale.append(i)
            else:
                late.append(i)
        large = [i for i in stale if len(there[same_id(batch.main.raw_id(i))]) > MAX_BYTES]
        not_keepable = self._merging.not_keepable(batch, large) if large else {}
        self._stale |= {batch.main.raw_id(i) for i in stale if i not in not_keepable}
        conflicts, copied_late = self._sort(batch, late)
        conflicts |= not_keepable
        waiting += copied_late
        work.report.leave(len(waiting), work.kept or work.grace)
        found = [Quarantined(batch.main.legible_id(i), "_id", reason) for i, reason in conflicts.items()]
        work.report.quarantine(found)
        return {*waiting, *conflicts, *self._skip_due(due)}

    def _skip_due(self, due: list[int]) -> list[int]:
        """Returns which buckets, of those that equal copies of earlier runs and may go, are not to be moved:
        none, since `move` deletes them."""
        return []

    def _sort(self, batch: Batch, late: list[int]) -> tuple[dict[int, str], list[int]]:
        """Sorts buckets whose `_id` the archive has: why some can't go, and which are copied already."""
        if self._work.measured:
            return dict.fromkeys(late, f"another document with this _id is in {self._target}"), []
        if not late:
            return {}, []
        found = self._merging.sort(batch.take(late))
        stay = found.faults.keys() | found.waiting
        self._ready |= {batch.main.raw_id(i) for place, i in enumerate(late) if place not in stay}
        return {late[i]: reason for i, reason in found.faults.items()}, [late[i] for i in found.waiting]

    def _named(self, batch: Batch) -> Iterator[tuple[bytes, bytes]]:
        for i, unit in enumerate(units(self._work.policy, batch)):
            yield same_id(batch.main.raw_id(i)), unit

    def _replace_copies(self, name: str, newer: Batch, session: ClientSession) -> None:
        """Removes old copies, for new ones of the same buckets. Keeps an old one that the new one does not
        contain, as a version: the bucket may have been deleted, and written again by a late upsert."""
        ids = newer.main.ids
        older = in_order(newer, self._archived(session).by_ids(ids))
        lacking = np.flatnonzero(lacks(self._work.policy, older, newer))
        self._merging.retire(newer, session)
        self._merging.supersede(name, older.take(lacking), session)
        take_back(self._work.database, self._work.policy, ids, session)
        self._receipts.pull(ids, session)

    def _forget(self, changed: Batch, session: ClientSession) -> None:
        """Removes the copies of buckets that were restored and have changed since."""
        take_back(self._work.database, self._work.policy, changed.main.ids, session)
        record_gone(self._work.deletions, self._target, changed.main.raw_ids, session)
        self._merging.retire(changed, session)

    def finish(self) -> None:
        """Does nothing: no copy is left to finish."""

    def close(self) -> None:
        """Does nothing: nothing is open."""

    def move(self, buckets: BucketSet) -> None:
        """Copies buckets, and deletes those that may go."""
        self._work.binding.claim()
        order, decoded = np.argsort(buckets.decoded.units), buckets.decoded
        spans, readings = decoded.spans()[order], decoded.columns.lengths[order]
        at = 0
        for piece in chunks(buckets.batch):
            self._work.check()
            there = dict(self._named_in_archive(piece.main.ids))
            late = [] if self._work.measured else self._late(piece, there)
            others = piece.take(np.setdiff1d(np.arange(len(piece)), late))
            self._move(others, set(there.values()), spans[at : at + len(piece)])
            self._move_late(piece.take(late))
            self._work.report.archived(len(piece), int(readings[at : at + len(piece)].sum()))
            self._work.report.bytes += piece.size
            at += len(piece)

    def _move_late(self, late: Batch) -> None:
        """Moves late buckets. If another document has come into the way since, a later run decides."""
        ready = [i for i, raw_id in enumerate(late.main.raw_ids) if raw_id in self._ready]
        self._work.report.change(len(late) - len(ready))
        late = late.take(ready)
        self._merging.move(self._name(late), late)

    def _name(self, piece: Batch) -> str:
        return f"{self._work.now:%Y%m%dT%H%M%S}-f{self._work.fence:06d}-{piece.digest[:16]}"

    def _late(self, piece: Batch, there: dict[bytes, bytes]) -> list[int]:
        """Returns the buckets of which the archive holds another version, and not an old copy."""
        late = [i for i, (name, unit) in enumerate(self._named(piece)) if there.get(name, unit) != unit]
        return [i for i in late if piece.main.raw_id(i) not in self._stale]

    def _move(self, piece: Batch, held: set[bytes], spans: NDArray[np.int64]) -> None:
        piece = self._without_changed(piece)
        if not len(piece):
            return
        name = self._name(piece)
        self._copy(name, piece, held)
        if waits := self._work.waits(self._work.now):
            self._work.report.leave(len(piece), waits)
        else:
            self._work.report.change(self._delete(name, piece, spans))

    def _copy(self, name: str, piece: Batch, held: set[bytes]) -> None:
        """Writes the copies that aren't there yet, and compares all with the originals as read. One that is
        there need not stay while its original is live again, as where somebody has put it back."""
        ids = piece.main.ids
        is_there = np.array([unit in held for unit in units(self._work.policy, piece)], dtype=np.bool_)
        missing = piece.take(np.flatnonzero(~is_there))
        back = self._back(piece.take(np.flatnonzero(is_there)))
        stale = [i for i, raw_id in enumerate(piece.main.raw_ids) if raw_id in self._stale]
        newer = piece.take(stale)
        if stale:
            self._merging.make_collection()
        receipt = {
            "kind": "online",
            "state": "copied",
            "collection": self._work.policy.collection,
            "into": self._target,
            "ids": ids,
            "copied": self._work.now,
            "documents_sha256": piece.digest,
            "fingerprints": packed_marks(self._work.policy, piece),
        }

        def step(session: ClientSession) -> None:
            if stale:
                self._replace_copies(name, newer, session)
            put_copies(self._work.database, self._work.policy, missing, session)
            if len(missing):
                ArchivedDays(self._receipts, self._work.policy).note(missing, self._work.now, session)
            if len(back) and (live := self._heads.subtracted(back, session)):
                self._work.deletions.record_of_copies(RESTORED, {"buckets": len(back), **live}, session)
            self._receipts.update(name, {"$set": receipt}, session)

        with phase("put"):
            transaction(self._work.database, self._work.guard, step)
        with phase("compare"):
            self._verify_copies(piece)

    def _without_changed(self, piece: Batch) -> Batch:
        """Returns these buckets, but for those with an old copy that change while the windows of that are
        rolled up. The next run finds them again."""
        stale = [i for i, raw_id in enumerate(piece.main.raw_ids) if raw_id in self._stale]
        if not stale:
            return piece
        newer = piece.take(stale)
        older = Batch.concat(list(self._archived().by_ids(newer.main.ids)))
        found = self._work.roll_up_left(older, self._work.policy, newer)
        changed = [i for i in stale if same_id(piece.main.raw_id(i)) not in found]
        self._work.report.change(len(changed))
        return piece.take(np.setdiff1d(np.arange(len(piece)), changed))

    def _back(self, there: Batch) -> Batch:
        """Returns those of these buckets, which the archive has as they are, that had gone from here: not
        those that wait, or that somebody has copied there."""
        copied = self._receipts.copied(there.main.ids)
        found = there.take([i for i, raw_id in enumerate(there.main.raw_ids) if raw_id not in copied])
        if not len(found):
            return found
        unknown = CopyReceipts(self._work.database, self._work.policy, None).mismatches(found)
        return found.take(np.setdiff1d(np.arange(len(found)), list(unknown)))

    def _verify_copies(self, piece: Batch, session: ClientSession | None = None) -> None:
        """Raises HaltedError unless each bucket has an equal copy in the archive."""
        ids = piece.main.ids
        held = {unit for _, unit in self._named_in_archive(ids, session)}
        wrong = [ids[i] for i, unit in enumerate(units(self._work.policy, piece)) if unit not in held]
        if wrong:
            raise HaltedError(
                f"policy {self._work.policy.name}: {len(wrong)} copies in {self._target} are not there, or "
                f"not equal to their originals, the first with _id {extended_json(wrong[0])}; "
                "these were not deleted"
            )

    def _named_in_archive(
        self, ids: Sequence[Any], session: ClientSession | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        return (it for copies in self._archived(session).by_ids(ids) for it in self._named(copies))

    def _delete(self, name: str, verified: Batch, spans: NDArray[np.int64]) -> int:
        """Returns how many had changed. `spans`: of these buckets, or more of them."""
        outcome = self._work.delete(
            verified, lambda session, outcome: self._record(session, name, verified, outcome, spans)
        )
        if outcome.gone:
            self._keep_copies(verified.take(outcome.gone))
        return len(outcome.changed)

    def _keep_copies(self, gone: Batch) -> None:
        """Records that somebody else has deleted the originals of these copies, once windows are rolled up:
        an original may have moved before. Until then the next run finds these copies again. One that another
        receipt named as well is known to be deleted by now."""
        spans = decode(gone, self._work.policy).spans()
        if not self._work.rolled_up(int(spans.min()), int(spans.max()) + 1, force=True):
            return

        def step(session: ClientSession) -> None:
            waiting = self._receipts.copied(gone.main.ids, session)
            source = Source(self._work.database, self._work.policy, session=session)
            back = set(still_live(source, gone))  # summaries count what is there by now, not these copies
            raw_ids = enumerate(gone.main.raw_ids)
            kept = gone.take([i for i, raw_id in raw_ids if raw_id in waiting and i not in back])
            if not len(kept):
                return
            ids = kept.main.ids
            self._receipts.pull(ids, session)
            facts = {**facts_of_archived(ids, kept, spans), **self._heads.added(kept, session)}
            self._work.deletions.record_of_copies(KEPT, {"buckets": len(kept), **facts}, session)

        transaction(self._work.database, self._work.guard, step)

    def _record(
        self, session: ClientSession, name: str, verified: Batch, outcome: Outcome, spans: NDArray[np.int64]
    ) -> None:
        """Records what was deleted, in its transaction. Removes copies that a changed bucket contains."""
        self._work.check_limit(len(outcome.deleted))
        deleted = verified.take(outcome.deleted)
        self._verify_copies(deleted, session)
        heads = self._heads.added(deleted, session)
        old, changed = self._merging.containing(verified, outcome.changed, session)
        self._forget(changed, session)
        update = {"$set": {"at": self._work.now}, "$inc": {"deleted": len(outcome.deleted)}}
        self._receipts.update(name, update, session)
        self._work.deletions.record(
            session,
            deleted,
            {**facts_of_archived(deleted.main.ids, deleted, spans), **heads},
            {"collection": self._target, "overflow": self._overflow},
        )
        settled = sorted({*outcome.deleted, *old})
        self._receipts.pull([verified.main.decode_id(i) for i in settled], session)


class OnlineDryRun(DryRun, OnlineRun):
    """A dry run with an online archive: also counts what earlier runs have copied and this one deletes."""

    def _skip_due(self, due: list[int]) -> list[int]:
        self._count(len(due), None)
        return due
