"""Which rule keeps a commit longest, of those that its series are under: found once, by reading its
documents, and recorded in its receipt."""

from __future__ import annotations

from typing import Any

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.expiring.rule import RetentionRules
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.manifest import DamagedError, Manifest
from bucketwise.archivers.format.writing import ColdCommit
from bucketwise.archivers.records.receipts import commit_of
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.times import as_date

Document = dict[str, Any]


def rules_held(archive: OfflineArchive, manifest: Manifest, rules: RetentionRules) -> set[int]:
    """Returns the numbers of the rules that the series of a commit are under: all of them where that can't be
    told, as of a cold one. Raises DamagedError where the commit can't be read."""
    policy, found = manifest.archived_policy, set[int]()
    everything = set(range(len(rules.rules)))
    try:
        for held in archive.sections(manifest):
            decoded = decode(held.batch, policy)
            columns = decoded.columns
            has_unknown = columns.reading_series is not None and not columns.lengths.all()
            if has_unknown or len(decoded.units) < len(held.batch):
                return everything
            for series in columns.series:
                found.update(rules.series.of(series, policy.series_names))
            if found == everything:
                break
    except ColdCommit:
        return everything
    return found or everything


def longest_held(archive: OfflineArchive, manifest: Manifest, rules: RetentionRules) -> int | None:
    """Returns the number of the rule that keeps a commit longest; None where the commit can't be read."""
    if rules.is_single:
        return 0
    try:
        return rules.longest(rules_held(archive, manifest, rules))
    except DamagedError:
        return None


def known_longest(receipt: Document, rules: RetentionRules) -> int | None:
    """Returns the number of the rule that keeps a commit longest, as its receipt tells; None where it does
    not."""
    known = receipt.get("rules") or {}
    if rules.is_single:
        return 0
    return int(known["longest"]) if known.get("of") == rules.digest else None


class CommitRules:
    """Finds the rule of each commit that may be past its time. `writes`: records it in the receipt."""

    def __init__(
        self, context: ArchiveContext, archive: OfflineArchive, rules: RetentionRules, *, writes: bool
    ) -> None:
        self._context, self._archive, self.rules, self._writes = context, archive, rules, writes
        self._unrecorded: dict[str, int] = {}  # in a dry run

    def find(self) -> None:
        """Looks at the commits of which no receipt tells, and that the shortest rule may be for."""
        receipts, digest = self._context.receipts, self.rules.digest
        end = max((it.end for it in self.rules.rules if it is not None), default=None)
        if self.rules.is_single or end is None:
            return
        if self._writes:
            receipts.prepare_rules()
        past = {"_id.policy": receipts.policy, "kind": "offline", "last": {"$lt": as_date(end)}}
        new = {"rules.of": {"$ne": digest}, "state": {"$in": ["closed", "open"]}}
        for receipt in list(receipts.collection.find({**past, **new})):
            self._context.check()
            commit = commit_of(receipt)
            if commit is None:
                continue
            number = longest_held(self._archive, self._archive.manifest(commit), self.rules)
            if number is None:
                continue
            if self._writes:
                known = {"of": digest, "longest": number}
                receipts.collection.update_one({"_id": receipt["_id"]}, {"$set": {"rules": known}})
            else:
                self._unrecorded[commit.name] = number

    def is_under(self, manifest: Manifest, number: int) -> bool:
        """Returns whether this rule keeps a commit longest, by its documents: receipts are not trusted."""
        if self.rules.is_single:
            return True
        held = rules_held(self._archive, manifest, self.rules)
        lengths = (self.rules.rules[it] for it in held)
        by = min((it.archived_by for it in lengths if it is not None), default=None)
        return self.rules.longest(held) == number and by is not None and manifest.newest.created <= by

    def query(self, number: int) -> Document:
        """Returns the query for the receipts of commits that this rule keeps longest."""
        if self.rules.is_single:
            return {}
        known = {"rules.of": self.rules.digest, "rules.longest": number}
        names = [name for name, it in self._unrecorded.items() if it == number]
        identities = [self._context.receipts.identity(name) for name in names]
        return {"$or": [known, {"_id": {"$in": identities}}]} if names else known
