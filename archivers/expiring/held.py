"""Which rule keeps a commit longest, of those that its series are under: found once, by reading its
documents, and recorded in its receipt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.expiring.rule import RetentionRules
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.manifest import DamagedError, Manifest
from bucketwise.archivers.format.writing import ColdCommit
from bucketwise.archivers.records.heads import link_of, with_replaced
from bucketwise.archivers.records.receipts import EMPTIED, commit_of
from bucketwise.archivers.versions.superseded import Superseded
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.times import as_date
from bucketwise.config.policies import Policy

Document = dict[str, Any]
#: Kinds of the records of commits that may be past their time; those of a dropped one are in state EMPTIED.
KINDS = ("offline", "dropped")


class Held(NamedTuple):
    """Buckets that a commit holds, or that have left it, and the policy as which they were archived."""

    policy: Policy
    batch: Batch


def held_by(archive: OfflineArchive, manifest: Manifest) -> Iterator[Held]:
    """Yields what a commit holds."""
    return (Held(manifest.archived_policy, it.batch) for it in archive.sections(manifest))


def left(archive: OfflineArchive, manifests: Iterable[Manifest]) -> Iterator[Held]:
    """Yields the versions that have left these commits, and lie beside the archive."""
    aside = Superseded(archive)
    for manifest in manifests:
        for file in aside.files(manifest.commit):
            yield Held(manifest.archived_policy, aside.read(file).batch)


def rules_held(found_in: Iterable[Held], rules: RetentionRules) -> set[int]:
    """Returns the numbers of the rules that the series of buckets are under: all of them where that can't be
    told, as of cold ones. Raises DamagedError where they can't be read."""
    found = set[int]()
    everything = set(range(len(rules.rules)))
    try:
        for policy, batch in found_in:
            decoded = decode(batch, policy)
            columns = decoded.columns
            has_unknown = columns.reading_series is not None and not columns.lengths.all()
            if has_unknown or len(decoded.units) < len(batch):
                return everything
            for series in columns.series:
                found.update(rules.series.of(series, policy.series_names))
            if found == everything:
                break
    except ColdCommit:
        return everything
    return found or everything


def longest_held(found_in: Iterable[Held], rules: RetentionRules) -> int | None:
    """Returns the number of the rule that keeps buckets longest; None where they can't be read."""
    if rules.is_single:
        return 0
    try:
        return rules.longest(rules_held(found_in, rules))
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
        past = {"_id.policy": receipts.policy, "kind": {"$in": list(KINDS)}, "last": {"$lt": as_date(end)}}
        new = {"rules.of": {"$ne": digest}, "state": {"$in": ["closed", "open", EMPTIED]}}
        for receipt in list(receipts.collection.find({**past, **new})):
            self._context.check()
            commit = commit_of(receipt)
            if commit is None:
                continue
            number = longest_held(self._held(receipt, self.manifests(receipt)), self.rules)
            if number is None:
                continue
            if self._writes:
                known = {"of": digest, "longest": number}
                receipts.collection.update_one({"_id": receipt["_id"]}, {"$set": {"rules": known}})
            else:
                self._unrecorded[commit.name] = number

    def manifests(self, receipt: Document) -> list[Manifest]:
        """Returns the manifest of a commit, or of what is left of it, and those of all that it took over."""
        commit = commit_of(receipt)
        assert commit is not None
        is_emptied = receipt["state"] == EMPTIED
        manifest = self._archive.chain.link(link_of(commit)) if is_emptied else self._archive.manifest(commit)
        return with_replaced(self._context.receipts, self._archive, manifest)

    def _held(self, receipt: Document, manifests: Sequence[Manifest]) -> Iterator[Held]:
        is_emptied = receipt["state"] == EMPTIED
        return left(self._archive, manifests) if is_emptied else held_by(self._archive, manifests[0])

    def is_under(self, receipt: Document, manifests: Sequence[Manifest], number: int) -> bool:
        """Returns whether this rule keeps a commit longest, by its documents: receipts are not trusted.
        `manifests`: see the method."""
        if self.rules.is_single:
            return True
        held = rules_held(self._held(receipt, manifests), self.rules)
        lengths = (self.rules.rules[it] for it in held)
        by = min((it.archived_by for it in lengths if it is not None), default=None)
        return self.rules.longest(held) == number and by is not None and manifests[0].newest.created <= by

    def query(self, number: int) -> Document:
        """Returns the query for the receipts of commits that this rule keeps longest."""
        if self.rules.is_single:
            return {}
        known = {"rules.of": self.rules.digest, "rules.longest": number}
        names = [name for name, it in self._unrecorded.items() if it == number]
        identities = [self._context.receipts.identity(name) for name in names]
        return {"$or": [known, {"_id": {"$in": identities}}]} if names else known
