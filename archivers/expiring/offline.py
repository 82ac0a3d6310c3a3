"""Expiry of an offline archive: removes commits all of whose readings are past `retain.archive`, and were
archived long enough ago.

A tombstone is a part of the commit's receipt. When it is due, one transaction checks the holds and the
tombstone again, and records that the commit has ended. Then its files are deleted, and its manifest stays as
a link of the chain. After a crash in between, the next recovery removes the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.expiring.held import KINDS, CommitRules
from bucketwise.archivers.expiring.rule import ExpiryReport, RetentionRule, RetentionRules
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.format.manifest import DamagedError, Manifest
from bucketwise.archivers.format.writing import Maker
from bucketwise.archivers.records.deletions import Deletions
from bucketwise.archivers.records.receipt_checks import sealed_receipt
from bucketwise.archivers.records.receipts import (
    CODEC,
    EMPTIED,
    TOMBSTONE,
    Receipts,
    reading,
    record_fault,
)
from bucketwise.archivers.recovering.commits import CommitRegistry
from bucketwise.archivers.run import ArchiveRun
from bucketwise.archivers.versions.superseded import Superseded
from bucketwise.archivers.writes import may_cover
from bucketwise.buckets.fields.times import DAY_MS, as_date, as_ms
from bucketwise.rollups.context import transaction
from bucketwise.rollups.holds import Holds
from bucketwise.rollups.progress import note_ended

Document = dict[str, Any]
PLACED, LIFTED = "tombstones", "undelete"


def record_placed(
    deletions: Deletions, names: Sequence[str], tombstone: Document, session: ClientSession
) -> Document:
    """Writes the receipt for the tombstones of these records, in their transaction. Returns the tombstone as
    the records keep it."""
    facts = {"of": list(names), "due": tombstone["due"], "keep": tombstone["keep"]}
    return {**tombstone, "receipt": deletions.record_event(PLACED, facts, session)}


def record_lifted(
    deletions: Deletions, names: Sequence[str], lifted: Document, session: ClientSession
) -> Document:
    """Writes the receipt which says that these records have no tombstone until an instant, in their
    transaction. Returns what they keep in its place."""
    facts = {"of": list(names), "until": lifted["until"]}
    return {**lifted, "receipt": deletions.record_event(LIFTED, facts, session)}


def unfounded_tombstones(receipts: Receipts, keys: Keys) -> Iterator[DamagedError]:
    """Yields an error for each record whose tombstone is not what receipts say."""
    query = {"_id.policy": receipts.policy, "tombstone": {"$exists": True}}
    for record in receipts.collection.find(query, {"tombstone": 1}):
        try:
            with reading(record["_id"]["name"]):
                check_tombstone(receipts, record["_id"]["name"], record["tombstone"], keys)
        except DamagedError as error:
            yield error


def check_tombstone(
    receipts: Receipts,
    name: str,
    tombstone: Mapping[str, Any],
    keys: Keys,
    session: ClientSession | None = None,
) -> None:
    """Raises DamagedError where a tombstone, or what took its place when it was lifted, is not what receipts
    say."""
    if (number := tombstone.get("receipt")) is None:
        return
    is_lifted = "until" in tombstone
    there = receipts.collection.with_options(codec_options=CODEC)
    wanted = {"_id": receipts.identity(f"delete-{int(number):010d}")}
    found = there.find_one(wanted, session=session) or {}
    fields = ("until",) if is_lifted else ("due", "keep")
    # What took over a commit keeps that its tombstone was lifted.
    is_named = found.get("kind") == LIFTED if is_lifted else name in found.get("of", ())
    if not is_named or any(tombstone.get(it) != found.get(it) for it in fields):
        raise record_fault(name, "its tombstone is not what the receipt says that it names")
    sealed_receipt(found, keys)
    later = {"kind": {"$in": [PLACED, LIFTED]}, "of": name}
    if next(receipts.numbered(number, later, most=1), None) is not None:
        raise record_fault(name, "its tombstone is an earlier one than the last that receipts tell of")


#: Commits that get tombstones in one transaction; and the most commits with live originals that are counted.
_AT_ONCE = 1000
_PROJECTED = ("days", "buckets", "bytes", "first", "last", "tombstone", "state", "sequence", "seal")


def expire_offline(context: ArchiveContext, archive: OfflineArchive, *, writes: bool) -> ExpiryReport:
    """Puts tombstones on commits that are past their time by the longest rule of what they hold, and removes
    those whose tombstones are due. Returns the report."""
    rules, report = RetentionRules(context.policy, context.now), ExpiryReport()
    commits = CommitRules(context, archive, rules, writes=writes)
    commits.find()
    if writes:
        void_tombstones(context, rules)
    for number, rule in enumerate(rules.rules):
        if rule is not None:
            OfflineExpiry(context, archive, rule, number, commits, writes, report).run()
    return report


def void_tombstones(context: ArchiveContext, rules: RetentionRules) -> None:
    """Removes tombstones of rules and lengths that are no more, so that they stay void if those come back."""
    receipts, named = context.receipts, {"_id.policy": context.receipts.policy, **rules.void}
    if receipts.collection.find_one(named, {"_id": 1}) is None:
        return

    def step(session: ClientSession) -> None:
        receipts.collection.delete_many({**named, "kind": TOMBSTONE}, session=session)
        receipts.collection.update_many(named, {"$unset": {"tombstone": ""}}, session=session)

    transaction(context.database, context.guard, step)


@dataclass
class OfflineExpiry:
    """One run of one policy, for the commits that one rule keeps longest."""

    context: ArchiveContext
    archive: OfflineArchive
    rule: RetentionRule
    number: int  # of the rule
    commits: CommitRules
    writes: bool
    report: ExpiryReport

    def run(self) -> None:
        """Puts tombstones on commits that are past their time, and removes those whose tombstones are due."""
        new, due, nothing_left = [], [], []
        for receipt in list(self._past()):
            amount = receipt["days"], receipt["buckets"], receipt["bytes"]
            tombstone = receipt.get("tombstone")
            stage = self.rule.stage(tombstone)
            if receipt["state"] == "open" and not self.context.kept:
                self.report.live += receipt["buckets"]
            elif stage == "none" and self._is_over(receipt):
                nothing_left.append(receipt["_id"]["name"])
            elif stage == "none":
                self.report.tombstoned.add(*amount)
                new.append(receipt)
            elif stage != "due":
                (self.report.standing if stage == "standing" else self.report.lifted).add(*amount)
            elif tombstone and (held := tombstone.get("held")):
                self.report.held.update(dict.fromkeys(held, receipt["buckets"]))
            else:
                due.append(receipt)
        if self.writes:
            if new or due:
                self.context.binding.claim()
            for at in range(0, len(new), _AT_ONCE):
                self._place_tombstones(new[at : at + _AT_ONCE])
            for name in nothing_left:
                self.context.receipts.mark_over(name)
        for receipt in due:
            self.context.check()
            self._end(receipt)

    def _is_over(self, receipt: Document) -> bool:
        """Returns whether nothing lies beside the archive of a commit in which nothing was left."""
        if receipt["state"] != EMPTIED:
            return False
        names = [it.commit for it in self.commits.manifests(receipt)]
        return not Superseded(self.archive).holds_any(names)

    def _past(self) -> Sequence[Document]:
        """Returns the receipts of commits that are past their time, the oldest first, and some of those whose
        originals may be live; and of those in which nothing was left, but that left something. Where
        originals are never deleted, only commits before the first live bucket are past their time."""
        receipts, end, states = self.context.receipts, self.rule.end, ["closed", EMPTIED]
        if self.context.kept:
            live = self.context.source.earliest()
            end, states = min(end, end if live is None else live // DAY_MS * DAY_MS), [*states, "open"]
        whole: Document = {"_id.policy": receipts.policy, "kind": {"$in": list(KINDS)}}
        whole |= {
            "last": {"$lt": as_date(end)},
            "copied": {"$lte": self.rule.archived_by},
            **self.commits.query(self.number),
        }
        projection = {"$project": dict.fromkeys(_PROJECTED, 1)}
        pipeline: list[Document] = [
            {"$match": {**whole, "state": {"$in": states}, "seal": {"$exists": True}}},
            {"$sort": {"last": 1}},
            projection,
        ]
        if not self.context.kept:
            live_ones = [{"$match": {**whole, "state": "open"}}, {"$limit": _AT_ONCE}, projection]
            pipeline.append({"$unionWith": {"coll": receipts.collection.name, "pipeline": live_ones}})
        return list(receipts.collection.aggregate(pipeline))

    def _place_tombstones(self, new: Sequence[Document]) -> None:
        named = {"_id": {"$in": [it["_id"] for it in new]}}
        names, deletions = [it["_id"]["name"] for it in new], self.context.deletions

        def step(session: ClientSession) -> None:
            tombstone = record_placed(deletions, names, self.rule.tombstone, session)
            update = {"$set": {"tombstone": tombstone}}
            self.context.receipts.collection.update_many(named, update, session=session)

        transaction(self.context.database, self.context.guard, step)
        self.context.progress("tombstones", len(new))

    def _end(self, receipt: Document) -> None:
        before = self.commits.manifests(receipt)
        manifest, name = before[0], before[0].commit
        if as_ms(manifest.last) >= self.rule.end:
            raise record_fault(name, "it says that the commit ends earlier than its manifest does")
        if manifest.newest.created > self.rule.archived_by:
            what = "it says that its buckets were archived earlier than its manifest does"
            raise record_fault(name, what)
        check_tombstone(self.context.receipts, name, receipt["tombstone"], self.context.keys)
        if not self.commits.is_under(receipt, before, self.number):
            return
        amount = receipt["days"], receipt["buckets"], receipt["bytes"]
        if not self.writes:
            holds = self._holding(before, None)
            if holds:
                self.report.held.update(dict.fromkeys(holds, receipt["buckets"]))
            else:
                self.report.expired.add(*amount)
            return
        if receipt["state"] != EMPTIED:  # else nothing goes that any summary counts
            end = (as_ms(manifest.last) // DAY_MS + 1) * DAY_MS
            ending = self.commits.rules.up_to(self.number)
            note_ended(self.context.database, self.context.policy, end, ending, self.context.guard)
        maker = Maker(self.context.database.name, self.context.fence, self.context.now)
        registry = CommitRegistry(ArchiveRun.of(self.context), self.archive, maker)
        step = partial(self._decide, registry, before)
        outcome = transaction(self.context.database, self.context.guard, step)
        if outcome == "gone":
            registry.drop_ended(before)
            self.report.expired.add(*amount)
            self.context.progress("expired buckets", receipt["buckets"])
        elif outcome != "stays":
            self.report.held.update(dict.fromkeys(outcome, receipt["buckets"]))

    def _holding(self, manifests: Sequence[Manifest], session: ClientSession | None) -> list[str]:
        """Returns the names of the holds that cover some of these."""
        policy = self.context.policy
        holds = Holds(self.context.database, policy.identity).active(session)
        return [hold.name for hold in holds if any(may_cover(hold, it, policy) for it in manifests)]

    def _decide(
        self,
        registry: CommitRegistry,
        before: Sequence[Manifest],
        session: ClientSession,
    ) -> Literal["gone", "stays"] | list[str]:
        """Decides, in the transaction, what happens to the first of these commits, and records it. Returns
        the names of the holds that keep it, if any do."""
        manifest, name = before[0], before[0].commit
        now = self.context.receipts.get(name, session) or {}
        states = ("closed", EMPTIED, *(["open"] if self.context.kept else []))
        if now.get("state") not in states or self.rule.stage(now.get("tombstone")) != "due":
            return "stays"
        check_tombstone(self.context.receipts, name, now["tombstone"], self.context.keys, session)
        if holds := self._holding(before, session):
            self.context.receipts.update(name, {"$set": {"tombstone.held": holds}}, session)
            return holds
        registry.end(before, as_date(self.rule.end), session)
        facts = {
            "commit": name,
            "manifest_sha256": manifest.sha256,
            "first": manifest.first,
            "last": manifest.last,
            "tombstone_at": now["tombstone"]["at"],
        }
        if now["state"] != EMPTIED:  # else they had left the commit before
            counts = {"buckets": manifest.buckets, "readings": manifest.readings}
            facts |= {**counts, "documents_sha256": manifest.documents_sha256}
        self.context.deletions.record_end(facts, session)
        return "gone"
