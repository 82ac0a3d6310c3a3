"""The history of a bucket, from manifests, receipts, pins and the quarantine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.evidence.copies import Copy, FoundBucket
from bucketwise.archivers.format.manifest import Manifest, Origin
from bucketwise.archivers.records.deletions import KEPT, unpacked_names
from bucketwise.archivers.records.heads import link_of
from bucketwise.archivers.records.pins import Pin
from bucketwise.archivers.records.receipt_files import numbered_for
from bucketwise.archivers.records.receipts import CODEC, commit_of
from bucketwise.archivers.writes.delete import same_id
from bucketwise.buckets.bson.raw import TOLERANT, as_queried, without_uuid
from bucketwise.buckets.fields.times import as_date, as_ms
from bucketwise.rollups.rolling import quarantine

What = Literal["quarantined", "copied", "merged", "rewritten", "deleted", "pinned"]


class Event(NamedTuple):
    """Something that happened to a bucket. `at`: None where no record has it. `fence`: of the lease of the
    run that did it, where that is known."""

    at: datetime | None
    event: What
    commit: str | None = None
    receipt: int | None = None
    fence: int | None = None
    detail: str | None = None


class BucketHistory:
    """Finds the history of buckets of one policy."""

    def __init__(self, context: ArchiveContext) -> None:
        self._context = context
        self._receipts = context.receipts
        self._offline = context.offline()

    def of(self, found: FoundBucket, span: tuple[int, int], pin: Pin | None) -> list[Event]:
        """Returns what has happened to a bucket, in the order of time; events without a time come last.
        `span`: its first and last time, milliseconds."""
        events = [*self._quarantined(found.raw_id)]
        for copy in found.copies:
            events += self._copied(copy)
        if any(copy.version.commit is None for copy in found.copies):
            events += self._deleted_online(found.raw_id, span)
        if pin is not None:
            events.append(Event(None, "pinned", detail=pin.reason))
        return sorted(dict.fromkeys(events), key=lambda it: (it.at is None, it.at and as_ms(it.at)))

    def _quarantined(self, raw_id: bytes) -> Iterator[Event]:
        name = {"policy": self._context.policy.identity, "id": without_uuid(as_queried(raw_id))}
        records = self._context.database.get_collection(quarantine.COLLECTION, codec_options=TOLERANT)
        for it in records.find({"_id": name}):
            yield Event(it["first_seen"], "quarantined", detail=f"{it['field']}: {it['reason']}")

    def _copied(self, copy: Copy) -> Iterator[Event]:
        """Yields the events of a version: when it was copied, which commits its commit replaced, and when its
        original was deleted."""
        manifest, position = copy.version.commit, copy.version.position
        detail = "superseded by a later version" if copy.version.is_superseded else None
        if manifest is None:
            if copy.copied is not None and as_ms(copy.copied) > 0:  # restored ones are noted without a time
                yield Event(copy.copied, "copied", detail=detail)
            return
        line = list(self._lineage(manifest, position))
        first, _ = line[-1]
        origin = _origin(manifest, position)
        name = None if first.replaces else first.commit
        yield Event(origin.created, "copied", name, fence=origin.fence, detail=detail)
        for one, _ in line:
            if one.replaces:
                what: What = "merged" if len(one.replaces) > 1 else "rewritten"
                yield Event(one.created, what, one.commit, fence=one.fence)
        if not copy.version.is_superseded:
            yield from self._deleted(line)

    def _lineage(self, manifest: Manifest, position: int) -> Iterator[tuple[Manifest, int]]:
        """Yields the commits that have held a bucket, the last one first, and its position in each, as far
        back as each replaced all of the one before."""
        yield manifest, position
        before = [self._replaced(name) for name in manifest.replaces]
        whole = [it for it in before if it is not None]
        if len(whole) != len(before) or sum(it.buckets for it in whole) != manifest.buckets:
            return
        for older in whole:
            if position < older.buckets:
                yield from self._lineage(older, position)
                return
            position -= older.buckets

    def _replaced(self, name: str) -> Manifest | None:
        """Returns the manifest of a replaced commit, which stays as a link of the chain."""
        receipt = self._receipts.get(name) or {}
        assert self._offline is not None
        commit = commit_of(receipt) if "seal" in receipt else None
        return None if commit is None else self._offline.chain.link(link_of(commit))

    def _deleted(self, line: Sequence[tuple[Manifest, int]]) -> Iterator[Event]:
        """Yields the deletes in receipts after the last one that the first of these commits names."""
        positions = {manifest.commit: position for manifest, position in line}
        known = min((it.receipt.sequence if it.receipt else 0 for it, _ in line), default=0)
        for it in numbered_for(self._receipts, self._context.receipt_files, known, list(positions)):
            commit = it["held_by"]["commit"]
            if any(first <= positions[commit] <= last for first, last in it["positions"]):
                yield Event(it["at"], "deleted", commit, int(it["sequence"]), it["fence"])

    def _deleted_online(self, raw_id: bytes, span: tuple[int, int]) -> Iterator[Event]:
        """Yields the deletes of an `_id` in receipts, of buckets of that time."""
        name = same_id(raw_id)
        around = {"first": {"$lte": as_date(span[1])}, "last": {"$gte": as_date(span[0])}}
        mine = {"_id.policy": self._receipts.policy, "kind": {"$in": ["delete", KEPT]}, **around}
        found = self._receipts.collection.with_options(codec_options=CODEC).find(mine).sort("_id")
        for it in found:
            if "ids" in it and name in unpacked_names(it["ids"]):
                sequence = it.get("sequence")
                yield Event(it.get("at"), "deleted", None, sequence and int(sequence), it.get("fence"))


def _origin(manifest: Manifest, position: int) -> Origin:
    """Returns where a bucket of a commit was archived first."""
    for origin in manifest.all_origins:
        if position < origin.buckets:
            return origin
        position -= origin.buckets
    raise AssertionError("unreachable")
