"""Expiry of an online archive: removes buckets whose last reading is past `retain.archive`, by UTC days of
which nothing was archived too short a time ago.

A day has one tombstone, a document among the receipts. When it is due, transactions of some buckets each
check the holds and the tombstone again, delete, and record what went. What comes into a day meanwhile keeps
it for as long as it has to stay itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pymongo import UpdateOne
from pymongo.client_session import ClientSession

from bucketwise.archivers import decisions
from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.expiring.offline import check_tombstone, record_placed, void_tombstones
from bucketwise.archivers.expiring.rule import ExpiryReport, RetentionRule, RetentionRules
from bucketwise.archivers.records.deletions import packed_ids
from bucketwise.archivers.records.online_heads import ArchivedDays, OnlineHeads, archived_name
from bucketwise.archivers.records.receipts import CODEC, MERGING, TOMBSTONE, Receipts
from bucketwise.archivers.versions.kept import KeptVersions
from bucketwise.archivers.writes import archive_collections, archived_source, chunks, covered, same_id
from bucketwise.buckets.bson.cursor import ids_query
from bucketwise.buckets.bson.raw import LOSSLESS, Batch
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.times import DAY_MS, FIRST_MS, as_date
from bucketwise.buckets.source import Source
from bucketwise.rollups.context import transaction
from bucketwise.rollups.holds import Hold, Holds
from bucketwise.rollups.progress import note_ended

Document = dict[str, Any]


class Holding(NamedTuple):
    """The hold that keeps a bucket. Another one may have its name later."""

    name: str
    digest: str


@dataclass(frozen=True)
class SortedBuckets:
    """Buckets that are past their time: those that go, those that a hold keeps (and which hold), and those
    that are live as well."""

    removable: NDArray[np.int64]
    held: Counter[Holding]
    live: int


def expire_online(context: ArchiveContext, *, writes: bool) -> ExpiryReport:
    """Puts tombstones on days that are past their time, rule by rule, and removes those whose tombstones are
    due. Returns the report."""
    rules, report = RetentionRules(context.policy, context.now), ExpiryReport()
    if writes:
        void_tombstones(context, rules)
    for number, rule in enumerate(rules.rules):
        if rule is not None:
            OnlineExpiry(context, rules, number, rule, writes, report).run()
    return report


@dataclass
class OnlineExpiry:
    """One run of one policy, for the buckets that one rule keeps longest."""

    context: ArchiveContext
    rules: RetentionRules
    number: int  # of the rule
    rule: RetentionRule
    writes: bool
    report: ExpiryReport

    def run(self) -> None:
        """Puts tombstones on days that are past their time, and removes those whose tombstones are due."""
        end = self._end
        if (first := self._archived.earliest_ending(FIRST_MS, self._also)) is None or first >= end:
            return
        recorded = list(tombstones_of(self.context.receipts))
        lifted = {it["day"] for it in recorded if self.rule.stage(it.get("tombstone")) == "lifted"}
        known = {it["day"]: it for it in recorded if it["_id"]["name"] == self._name(it["day"])}
        archived = self._archived_days.newest(end)
        new: dict[int, int] = {}
        unknown: list[int] = []
        for day in self._days(first, end, known.keys() | (archived.keys() if self.rules.is_single else ())):
            if (newest := archived.get(day)) is None:
                unknown.append(day)
                continue
            if newest > self.rule.archived_by:
                continue
            record = known.get(day, {})
            stage = self.rule.stage(record.get("tombstone"))
            if day in lifted and stage != "due":
                stage = "lifted"  # for whichever rule it was
            if stage == "due":
                self._expire_day(day, record["tombstone"])
            elif stage == "none":
                if buckets := self._archived.count_ending(*_span(day), self._also):
                    new[day] = buckets
                    self.report.tombstoned.add([day], buckets, 0)
            else:
                amount = self.report.standing if stage == "standing" else self.report.lifted
                amount.add([day], record.get("buckets", 0), 0)
        if self.writes and new:
            self._place_tombstones(new)
        if self.writes and unknown:  # since when is not known: from now on
            note = partial(self._archived_days.note_days, unknown, self.context.now)
            transaction(self.context.database, self.context.guard, note)

    @cached_property
    def _also(self) -> Document:
        """Returns a query that narrows buckets to those that may be under the rule."""
        return self.rules.series.query({self.number})

    def _name(self, day: int) -> str:
        return tombstone_name(day, self.rules, self.number)

    @cached_property
    def _archived(self) -> Source:
        return archived_source(self.context.database, self.context.policy)

    @property
    def _archived_days(self) -> ArchivedDays:
        return ArchivedDays(self.context.receipts, self.context.policy)

    @cached_property
    def _versions(self) -> KeptVersions:
        return KeptVersions(self.context.database, self.context.policy)

    @property
    def _heads(self) -> OnlineHeads:
        return OnlineHeads(self.context.database, self.context.policy)

    @property
    def _end(self) -> int:
        """Returns the instant (milliseconds) before which buckets are past their time. Where originals are
        never deleted, it is at most the day of the first live bucket."""
        live = self.context.source.earliest() if self.context.kept else None
        return self.rule.end if live is None else min(self.rule.end, live // DAY_MS * DAY_MS)

    def _days(self, first: int, end: int, known: Container[int]) -> Iterator[int]:
        """Yields the days on which archived buckets end. Those in a row that are `known` cost no query."""
        at: int | None = first
        while at is not None and at < end:
            yield (day := at // DAY_MS)
            day += 1
            while day in known and day * DAY_MS < end:
                yield day
                day += 1
            at = self._archived.earliest_ending(day * DAY_MS, self._also)
            at = None if at is None else max(at, day * DAY_MS)

    def _place_tombstones(self, new: dict[int, int]) -> None:
        names, deletions = list(map(self._name, new)), self.context.deletions

        def step(session: ClientSession) -> None:
            tombstone = record_placed(deletions, names, self.rule.tombstone, session)
            placed = {"kind": TOMBSTONE, "tombstone": tombstone}
            updates = [
                UpdateOne(
                    {"_id": self._identity(day)},
                    {"$set": {**placed, "day": day, "buckets": buckets}},
                    upsert=True,
                )
                for day, buckets in new.items()
            ]
            self.context.receipts.collection.bulk_write(updates, session=session)

        transaction(self.context.database, self.context.guard, step)
        self.context.progress("tombstones", len(new))

    def _identity(self, day: int) -> Document:
        return self.context.receipts.identity(self._name(day))

    def _expire_day(self, day: int, tombstone: Document) -> None:
        """Removes the buckets of a day, except those that a hold keeps or whose originals are live."""
        if held := tombstone.get("held"):
            self.report.held.update(dict(zip(held, tombstone["kept"], strict=True)))
            return
        kept, stays = Counter[Holding](), False
        for batch in self._archived.ending(*_span(day), self._also):
            mine, past = self._past(batch)
            stays |= len(past) < mine
            for piece in chunks(past):
                self.context.check()
                found = self._expire_piece(day, piece)
                kept += found.held
                self.report.live += found.live
                stays |= bool(found.live) or len(found.removable) + found.held.total() < len(piece)
                if len(found.removable):
                    self.report.expired.add([day], len(found.removable), piece.take(found.removable).size)
        for it, count in kept.items():
            self.report.held[it.name] += count
        if self.writes and not stays:
            self._settle(day, kept)

    def _past(self, batch: Batch) -> tuple[int, Batch]:
        """Returns how many of the buckets are under the rule, and those of them whose last reading is past
        its time: their fields may name an earlier one."""
        decoded = decode(batch, self.context.policy)
        others = np.array(self.rules.of_buckets(decoded), dtype=np.int64) != self.number
        past = ~others & (decoded.last < self._end)
        return len(batch) - int(others.sum()), batch.take(np.sort(decoded.units[past]))

    def _expire_piece(self, day: int, piece: Batch) -> SortedBuckets:
        if not self.writes:
            return self._sort(piece, None)
        self.context.binding.claim()
        ending = self.rules.up_to(self.number)
        note_ended(self.context.database, self.context.policy, (day + 1) * DAY_MS, ending, self.context.guard)
        step = partial(self._delete, day, piece, self._heads.uncounted(piece))
        found = transaction(self.context.database, self.context.guard, step)
        self.context.spend(len(piece), piece.size)
        self.context.progress("expired buckets", len(found.removable))
        return found

    def _holds(self, session: ClientSession | None) -> list[Hold]:
        return Holds(self.context.database, self.context.policy.identity).active(session)

    def _sort(self, piece: Batch, session: ClientSession | None) -> SortedBuckets:
        held = self._covered(piece, holds, session) if (holds := self._holds(session)) else {}
        live: set[bytes] = set()
        if not self.context.kept:
            for state in ("copied", MERGING):
                live |= self.context.receipts.open(piece.main.ids, state, session).keys()
        found = decisions.ending(piece.main.raw_ids, held, live)
        removable = np.array(found.removable, dtype=np.int64)
        by, counts = {it.name: it.digest for it in holds}, Counter(hold.name for hold in held.values())
        holding = Counter({Holding(name, by[name]): count for name, count in counts.items()})
        return SortedBuckets(removable, holding, len(found.live))

    def _covered(self, piece: Batch, holds: Sequence[Hold], session: ClientSession | None) -> dict[int, Hold]:
        """Returns the holds that cover buckets, or any of their versions, which go with them."""
        policy = self.context.policy
        held = covered(decode(piece, policy), policy, holds)
        versions = self._versions.of(piece.main.ids, session)
        for i, raw_id in enumerate(piece.main.raw_ids):
            for version in versions.get(same_id(raw_id), []):
                for hold in covered(decode(version.bucket, policy), policy, holds).values():
                    held.setdefault(i, hold)
        return held

    def _delete(self, day: int, piece: Batch, uncounted: Set[bytes], session: ClientSession) -> SortedBuckets:
        """Deletes buckets in the transaction. Nothing goes where the tombstone was lifted, or where the
        archived bucket has changed."""
        identity, nothing = self._identity(day), np.zeros(0, dtype=np.int64)
        record = self.context.receipts.collection.find_one({"_id": identity}, session=session) or {}
        tombstone: Document = record.get("tombstone", {})
        source = archived_source(self.context.database, self.context.policy, session)
        current = Batch.concat(list(source.by_raw_ids(piece.main.raw_ids)))
        has_changed = not set(piece.units) <= set(current.units)
        if has_changed or not tombstone or self.rule.stage(tombstone) != "due":
            return SortedBuckets(nothing, Counter(), 0)
        check_tombstone(self.context.receipts, identity["name"], tombstone, self.context.keys, session)
        found = self._sort(piece, session)
        if len(found.removable):
            self._remove(piece.take(found.removable), tombstone["at"], uncounted, session)
            # This conflicts with a transaction that lifts the tombstone meanwhile.
            counted = {"$inc": {"expired": len(found.removable)}}
            self.context.receipts.collection.update_one({"_id": identity}, counted, session=session)
        return found

    def _remove(
        self, removable: Batch, placed: datetime, uncounted: Set[bytes], session: ClientSession
    ) -> None:
        database, ids = self.context.database, removable.main.ids
        target, overflow = archive_collections(self.context.policy)
        for name, documents in ((target, removable.main), (overflow, removable.extra)):
            if name is not None and len(documents):
                collection = database.get_collection(name, codec_options=LOSSLESS)
                collection.delete_many(ids_query(documents.raw_ids), session=session)
        heads = self._heads.subtracted(removable, session, uncounted)
        self._versions.clear(ids, session)
        if self.context.kept:
            self.context.receipts.pull(ids, session)
        decoded = decode(removable, self.context.policy)
        spans = decoded.spans()
        facts = {
            "into": target,
            "first": as_date(int(spans.min())),
            "last": as_date(int(spans.max())),
            "buckets": len(removable),
            "readings": len(decoded.columns.time),
            "ids": packed_ids(ids),
            "documents_sha256": sha256(b"".join(removable.units)).hexdigest(),
            "tombstone_at": placed,
            **heads,
        }
        self.context.deletions.record_end(facts, session)

    def _settle(self, day: int, held: Counter[Holding]) -> None:
        """Updates the tombstone of a day. An empty day needs none; one whose rest is held is not read until a
        hold on it is released. Where one was released meanwhile, the next run reads it again."""
        identity = {"_id": self._identity(day)}
        is_empty = self.rules.is_single or not self._archived.count_ending(*_span(day))

        def step(session: ClientSession) -> None:
            if held:
                if not held.keys() <= {(it.name, it.digest) for it in self._holds(session)}:
                    return
                names = [it.name for it in held]
                update = {"tombstone.held": names, "tombstone.kept": list(held.values())}
                self.context.receipts.collection.update_one(identity, {"$set": update}, session=session)
            else:
                self.context.receipts.collection.delete_one(identity, session=session)
                if is_empty:
                    archived = self.context.receipts.identity(archived_name(day))
                    self.context.receipts.remove([archived], session)

        transaction(self.context.database, self.context.guard, step)


def tombstone_name(day: int, rules: RetentionRules, number: int) -> str:
    """Returns the name of the record of a UTC day, since 1970, for what is under a rule."""
    return f"tombstone-{day}" if number == rules.series.own else f"tombstone-{day}-{number + 1}"


def tombstones_of(receipts: Receipts, session: ClientSession | None = None) -> Iterator[Document]:
    """Yields the tombstones of days, also the records of lifted ones."""
    query = {"_id.policy": receipts.policy, "kind": TOMBSTONE}
    yield from receipts.collection.with_options(codec_options=CODEC).find(query, session=session)


def _span(day: int) -> tuple[int, int]:
    return day * DAY_MS, (day + 1) * DAY_MS
