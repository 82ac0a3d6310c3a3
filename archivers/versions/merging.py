"""Merges later versions of buckets into those that an online archive holds, and keeps each version.

Both versions are written to the collection of versions and read back. Then, in one transaction, the late
bucket is deleted if it still equals its copy, and the archived document becomes the merged one. Until then
the archive is what it was, and both count.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from bson.binary import Binary
from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.decisions import Outcome
from bucketwise.archivers.records.deletions import KEPT, SUPERSEDED, archived_before, facts_of_archived
from bucketwise.archivers.records.online_heads import ArchivedDays, OnlineHeads
from bucketwise.archivers.records.pins import fingerprint
from bucketwise.archivers.records.receipts import MERGED, MERGING
from bucketwise.archivers.run import ArchiveRun
from bucketwise.archivers.versions.history import History, Version, folds, one_of
from bucketwise.archivers.versions.kept import KeptVersion, KeptVersions, counting, is_too_large
from bucketwise.archivers.writes import (
    MAX_BUCKETS,
    archive_collections,
    archived_source,
    chunks,
    in_order,
    name_of,
    put_copies,
    same_id,
    take_back,
)
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS
from bucketwise.buckets.source import Source
from bucketwise.buckets.versions.merge import Merged, merge
from bucketwise.buckets.versions.readings import lacks
from bucketwise.config.errors import HaltedError
from bucketwise.config.policies import Policy
from bucketwise.rollups.context import transaction


def record_superseded(context: ArchiveContext, found: Sequence[Batch], session: ClientSession) -> None:
    """Records, in the transaction that keeps them, what versions are that count no more."""
    if found:
        versions = Batch.concat(found)
        decoded = decode(versions, context.policy)
        spans = decoded.spans() if len(decoded.units) == len(versions) else np.array([[FIRST_MS, LAST_MS]])
        facts = {"buckets": len(versions), **facts_of_archived(versions.main.ids, versions, spans)}
        context.deletions.record_of_copies(SUPERSEDED, facts, session)


Document = dict[str, Any]


class Staying(NamedTuple):
    """Late buckets that stay, by index."""

    waiting: list[int]  # copied, and not due yet
    faults: dict[int, str]  # can't be merged, and why


class Merging:
    """The late buckets of one archive run."""

    def __init__(self, work: ArchiveRun) -> None:
        self._work = work
        self._target, _ = archive_collections(work.policy)
        self._archived = partial(archived_source, work.database, work.policy)
        self.kept = KeptVersions(work.database, work.policy)
        self._is_made = False

    def make_collection(self) -> None:
        """Creates the collection of versions, once a run, and records it among those of the archive: the next
        run then has nothing to write."""
        if self._is_made:
            return
        work = self._work
        self.kept.make()
        heads = OnlineHeads(work.database, work.policy)
        if "versions" not in heads.read().heads:
            heads.record(work.deletions, work.guard)
        self._is_made = True

    def sort(self, late: Batch) -> Staying:
        """Decides which late buckets go, and which stay. Changes nothing."""
        work, ids = self._work, late.main.ids
        archived, versions = self._of_archive(late), self.kept.of(ids)
        given = zip(archived.main.raw_ids, self._are_known(archived, versions), strict=True)
        ours = {same_id(raw_id) for raw_id, is_given in given if is_given} | self._in_receipts(archived)
        faults = self._faults(late, archived)
        copied = work.receipts.open(ids, MERGING)
        waiting = []
        for i, raw_id in enumerate(late.main.raw_ids):
            if same_id(raw_id) not in ours:
                faults[i] = (
                    f"another document with this _id is in {self._target}, and no receipt says that it was "
                    "archived from here"
                )
            elif i not in faults and raw_id in copied:
                name, when = copied[raw_id]
                copies = [it for it in versions.get(same_id(raw_id), []) if it.by == name]
                is_equal = bool(copies) and copies[-1].bucket.unit(0) == late.unit(i)
                if is_equal and work.waits(when):
                    waiting.append(i)
        return Staying(waiting, faults)

    def _faults(self, late: Batch, archived: Batch) -> dict[int, str]:
        """Returns why some can't be merged with what is archived."""
        faults = dict(merge(self._work.policy, archived, late).faults)
        for i in range(len(late)):
            if is_too_large(one_of(late, i)) or is_too_large(one_of(archived, i)):
                faults[i] = "one of them is too large to be kept beside"
        reason = f"an earlier version of this bucket is in {self._target}, and they can't be merged"
        return {i: f"{reason}: {fault}" for i, fault in faults.items()}

    def _of_archive(self, late: Batch, session: ClientSession | None = None) -> Batch:
        """Returns the archived buckets with their `_id`s, in their order. Raises HaltedError where one is
        gone."""
        try:
            return in_order(late, self._archived(session).by_ids(late.main.ids))
        except KeyError:
            raise HaltedError(
                f"policy {self._work.policy.name}: buckets have gone from {self._target} while later "
                "versions of them were to be merged into them. Nothing was deleted. Run again"
            ) from None

    def _in_receipts(self, archived: Batch) -> set[bytes]:
        """Returns those archived buckets that receipts name, as they are."""
        wanted = {same_id(raw_id): fingerprint(archived, i) for i, raw_id in enumerate(archived.main.raw_ids)}
        decoded = decode(archived, self._work.policy)
        if not len(decoded.units):
            return set()
        spans = decoded.spans()
        return archived_before(self._work.receipts, wanted, int(spans.min()), int(spans.max()))

    def move(self, name: str, late: Batch) -> None:
        """Copies, verifies and merges what may go."""
        if not len(late):
            return
        work = self._work
        self._copy(name, late)
        if waits := work.waits(work.now):
            work.report.leave(len(late), waits)
        else:
            self._merge(name, self._copies(name, late.main.ids))

    def _copy(self, name: str, late: Batch) -> None:
        """Copies the archived and the late version to the collection of versions, and removes copies of
        earlier states of the late one."""
        work, ids = self._work, late.main.ids
        self.make_collection()
        archived, before = self._of_archive(late), work.receipts.open(ids, MERGING)
        old = {same_id(raw_id): receipt for raw_id, (receipt, _) in before.items()}
        versions = {
            key: [it for it in found if it.by != old.get(key)] for key, found in self.kept.of(ids).items()
        }
        entries = self._entries(late, archived, versions)
        facts = {
            "kind": "online",
            "state": MERGING,
            "collection": work.policy.collection,
            "into": self.kept.name,
            "ids": ids,
            "copied": work.now,
            "documents_sha256": late.digest,
            "fingerprints": _marks(late),
        }

        def step(session: ClientSession) -> None:
            for receipt in set(old.values()):
                self._drop_late(receipt, late, session)
            work.receipts.pull(ids, session, MERGING)
            self.kept.put(name, entries, session)
            work.receipts.update(name, {"$set": facts}, session)

        transaction(work.database, work.guard, step)

    def _entries(
        self, late: Batch, archived: Batch, versions: dict[bytes, list[KeptVersion]]
    ) -> list[tuple[int, Batch]]:
        """Returns the versions to write, with their numbers: the late ones, and archived ones that are not
        kept yet."""
        held = self._are_known(archived, versions)
        entries: list[tuple[int, Batch]] = []
        for i, raw_id in enumerate(late.main.raw_ids):
            found = versions.get(same_id(raw_id), [])
            number = found[-1].version if found else 0
            new = [one_of(late, i)] if held[i] else [one_of(archived, i), one_of(late, i)]
            entries += [(number + 1 + place, bucket) for place, bucket in enumerate(new)]
        return entries

    def retire(self, newer: Batch, session: ClientSession) -> None:
        """Replaces archived buckets by these: no version of the archived ones counts any more, and none waits
        to be merged with them."""
        if len(newer):
            record_superseded(self._work, self.kept.retire(newer, session), session)
            self._work.receipts.pull(newer.main.ids, session, MERGING)

    def supersede(self, name: str, copies: Batch, session: ClientSession) -> None:
        """Keeps archived buckets as versions, since they are about to be replaced by buckets that don't
        contain all of them."""
        versions = self.kept.of(copies.main.ids, session)
        found = [versions.get(same_id(raw_id), []) for raw_id in copies.main.raw_ids]
        numbers = [held[-1].version + 1 if held else 1 for held in found]
        self._put_superseded(name, copies, numbers, session)

    def _put_superseded(
        self, name: str, copies: Batch, numbers: Sequence[int], session: ClientSession
    ) -> None:
        entries = [(number, one_of(copies, i)) for i, number in enumerate(numbers)]
        self.kept.put(name, entries, session, is_superseded=True)
        record_superseded(self._work, [bucket for _, bucket in entries], session)

    def _drop_late(self, name: str, newer: Batch, session: ClientSession) -> None:
        """Drops the copies, under one receipt, of late buckets that have changed since. One that its bucket
        does not contain stays restorable, before all versions that count."""
        versions = self.kept.of(newer.main.ids, session)
        found = [versions.get(same_id(raw_id), []) for raw_id in newer.main.raw_ids]
        mine = [i for i, held in enumerate(found) if held and held[-1].by == name]
        if mine:
            self.kept.drop([newer.main.decode_id(i) for i in mine], session, name)
            copies = Batch.concat([found[i][-1].bucket for i in mine])
            lacking = np.flatnonzero(lacks(self._work.policy, copies, newer.take(mine)))
            numbers = [found[mine[i]][0].version - 1 for i in lacking]
            self._put_superseded(name, copies.take(lacking), numbers, session)

    def not_keepable(self, newer: Batch, stale: Sequence[int]) -> dict[int, str]:
        """Returns which old copies of these buckets can't be replaced by them, and why."""
        live = newer.take(stale)
        copies = self._of_archive(live)
        lacking = lacks(self._work.policy, copies, live)
        reason = (
            f"the copy in {self._target} is too large to be kept beside, and the bucket, which has changed "
            "since, does not contain all of it: correct the bucket, or delete the copy there"
        )
        found = [i for i, held in enumerate(lacking) if held and is_too_large(one_of(copies, i))]
        return {stale[i]: reason for i in found}

    def containing(
        self, verified: Batch, changed: list[int], session: ClientSession
    ) -> tuple[list[int], Batch]:
        """Returns the indices of changed buckets that contain their copies, and these buckets as they are
        now."""
        copies = verified.take(changed)
        source = Source(self._work.database, self._work.policy, session=session)
        live = in_order(copies, source.by_raw_ids(copies.main.raw_ids) if changed else [])
        lacking = np.array(lacks(self._work.policy, copies, live), dtype=np.bool_)
        plain = np.flatnonzero(~lacking)
        return [changed[i] for i in plain], live.take(plain)

    def _are_known(self, archived: Batch, versions: dict[bytes, list[KeptVersion]]) -> list[bool]:
        """Returns for each archived bucket whether it equals one of its kept versions that count, or all of
        these merged."""
        found = [counting(versions.get(same_id(raw_id), [])) for raw_id in archived.main.raw_ids]
        several = [i for i, held in enumerate(found) if held]
        policy = self._work.policy
        histories = [History([Version(it.bucket, policy) for it in found[i]]) for i in several]
        given: list[set[bytes]] = [{it.bucket.unit(0) for it in held} for held in found]
        for i, fold in zip(several, folds(histories), strict=True):
            given[i].add(fold.stages[-1].unit(0))
        return [unit in equal for unit, equal in zip(archived.units, given, strict=True)]

    def _copies(self, name: str, ids: Sequence[Any]) -> Batch:
        """Returns the late buckets of a receipt, as their copies give them."""
        found = [[it for it in held if it.by == name] for held in self.kept.of(ids).values()]
        return Batch.concat([held[-1].bucket for held in found if held])

    def settle(self, receipts: Sequence[Document], start_ms: int, end_ms: int) -> None:
        """Merges what was copied by earlier runs, ends in [start, end) and may go now. `receipts`: those in
        the state `MERGING`."""
        work = self._work
        for receipt in receipts:
            if work.in_grace(receipt["copied"]):
                continue
            name = receipt["_id"]["name"]
            for at in range(0, len(receipt["ids"]), MAX_BUCKETS):
                ids = list(receipt["ids"][at : at + MAX_BUCKETS])
                copies = self._copies(name, ids)
                if len(copies) < len(ids):
                    self._drop_lost(ids, copies)
                deletable, _ = work.deletable(copies, start_ms, end_ms)
                for piece in chunks(deletable):
                    self._merge(name, piece)

    def _drop_lost(self, ids: Sequence[Any], copies: Batch) -> None:
        """Removes buckets from the receipts whose copies are gone."""
        there = {same_id(raw_id) for raw_id in copies.main.raw_ids}
        lost = [it for it in ids if name_of(it) not in there]
        pull = partial(self._work.receipts.pull, lost, state=MERGING)
        transaction(self._work.database, self._work.guard, pull)

    def _merge(self, name: str, verified: Batch) -> None:
        outcome = self._work.delete(
            verified, lambda session, outcome: self._record(session, name, verified, outcome)
        )
        self._work.report.change(len(outcome.changed))
        self.roll_up_merged(list(self._work.receipts.in_state(MERGED, "online")))

    def _record(self, session: ClientSession, name: str, verified: Batch, outcome: Outcome) -> None:
        """Replaces, in the delete's transaction, the archived buckets by the merged ones. Copies of what has
        changed are dropped; those of what somebody else has deleted since count as any others do, so that
        they are merged as well, and their windows are rolled up again."""
        work, ids = self._work, verified.main.ids
        work.check_limit(len(outcome.deleted))
        if outcome.changed:
            source = Source(work.database, work.policy, session=session)
            changed = verified.take(outcome.changed)
            now = in_order(changed, source.by_raw_ids(changed.main.raw_ids))
            self._drop_late(name, now, session)
        work.receipts.pull(ids, session, MERGING)
        late = verified.take(sorted((*outcome.deleted, *outcome.gone)))
        if not len(late):
            return
        merged, heads = self._replace(session, name, late)
        is_gone = np.isin(np.delete(np.arange(len(verified)), outcome.changed), outcome.gone)
        deleted, gone = np.flatnonzero(~is_gone), np.flatnonzero(is_gone)
        work.deletions.record(
            session,
            late.take(deleted),
            {**_facts(work.policy, late.take(deleted), merged.batch.take(deleted)), **heads},
            {"collection": self.kept.name, "merged_into": self._target},
        )
        if len(gone):
            facts = _facts(work.policy, late.take(gone), merged.batch.take(gone))
            moved = {} if len(deleted) else heads
            work.deletions.record_of_copies(KEPT, {"buckets": len(gone), **facts, **moved}, session)
        hidden = [late.main.decode_id(i) for i in np.flatnonzero(merged.hides | is_gone).tolist()]
        if hidden:
            facts = {"kind": "online", "state": MERGED, "ids": hidden, "copied": work.now}
            work.receipts.update(f"merged-{name}", {"$set": facts}, session)

    def _replace(self, session: ClientSession, name: str, late: Batch) -> tuple[Merged, Document]:
        """Returns what is archived now, and what `OnlineHeads` has the receipt tell."""
        work, ids = self._work, late.main.ids
        archived, versions = self._of_archive(late, session), self.kept.of(ids, session)
        before = {key: found[:-1] for key, found in versions.items()}
        merged = merge(work.policy, archived, late)
        copied = {found[-1].bucket.unit(0) for found in versions.values() if found[-1].by == name}
        if merged.faults or not copied.issuperset(late.units) or not all(self._are_known(archived, before)):
            raise HaltedError(
                f"policy {work.policy.name}: what {self._target} or {self.kept.name} holds of buckets has "
                "changed while later versions of them were merged into them. Nothing was deleted. Run again"
            )
        take_back(work.database, work.policy, ids, session)
        put_copies(work.database, work.policy, merged.batch, session)
        ArchivedDays(work.receipts, work.policy).note(merged.batch, work.now, session)
        more = len(merged.batch.extra) - len(archived.extra)
        return merged, OnlineHeads(work.database, work.policy).moved(session, 0, more)

    def roll_up_merged(self, receipts: Sequence[Document]) -> None:
        """Rolls windows up again where a merged bucket holds less than its versions did. `receipts`: those in
        the state `MERGED`."""
        work = self._work
        for receipt in receipts:
            for at in range(0, len(receipt["ids"]), MAX_BUCKETS):
                ids = list(receipt["ids"][at : at + MAX_BUCKETS])
                found = Batch.concat(list(self._archived().by_ids(ids)))
                spans = decode(found, work.policy).spans() if len(found) else np.zeros((0, 2))
                if not len(spans) or work.rolled_up(int(spans.min()), int(spans.max()) + 1, force=True):
                    pull = partial(work.receipts.pull, ids, state=MERGED)
                    transaction(work.database, work.guard, pull)


def _facts(policy: Policy, late: Batch, merged: Batch) -> Document:
    """Returns what a receipt says of late buckets and what they were merged into; nothing without any. It
    spans both: a late bucket that holds no reading may lie outside the readings of the other."""
    if not len(late):
        return {}
    spans = np.concatenate([decode(it, policy).spans() for it in (late, merged)])
    facts = facts_of_archived(late.main.ids, merged, spans)
    return {**facts, "versions": _marks(late)}


def _marks(late: Batch) -> Binary:
    """Returns the fingerprints of late buckets, by which their kept versions are known."""
    return Binary(b"".join(fingerprint(late, i) for i in range(len(late))))
