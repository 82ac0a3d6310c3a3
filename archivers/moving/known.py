"""Copies whose originals stay, recognized without reading the archive.

With `delete = false`, during a grace, and with native time series, each run meets buckets again that are
copied already. MongoDB has a fingerprint of each copy, so that no file is read to see that nothing has
changed. Nothing is ever deleted on the strength of a fingerprint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pymongo import ReplaceOne, UpdateOne
from xxhash import xxh3_64_intdigest, xxh3_128_digest

from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.records.receipts import Document, live_of
from bucketwise.archivers.run import ArchiveRun
from bucketwise.archivers.writes import same_id, units
from bucketwise.buckets.bson.raw import Batch

#: Bytes of the fingerprint of a bucket.
_SIZE = 16
#: Fingerprints in one document.
_IN_ONE = 200_000


class KnownBuckets(NamedTuple):
    """The buckets of a batch that are known to be archived as they are."""

    buckets: NDArray[np.bool_]  # n
    commits: set[str]  # nothing else of the batch is in these


class _Fingerprints(NamedTuple):
    """Fingerprints of some buckets, and of their `_id`s."""

    buckets: NDArray[np.bytes_]
    ids: NDArray[np.uint64]

    @classmethod
    def of(cls, work: ArchiveRun, batch: Batch) -> _Fingerprints:
        is_plain = not work.measured and not len(batch.extra)
        buckets = batch.main.views() if is_plain else units(work.policy, batch)
        return cls(_hashes(buckets), batch.main.hashed_ids(_hash_of_id))


class KnownCopies:
    """The copies that one run knows of without reading the archive."""

    def __init__(self, work: ArchiveRun) -> None:
        self._work = work
        self._receipts = work.receipts

    @property
    def _may_stay(self) -> bool:
        """Returns whether originals may stay after they are copied: for good, or for a grace."""
        return bool(self._work.kept or self._work.archive.grace)

    def held(self, batch: Batch, commits: Sequence[str]) -> KnownBuckets:
        """Returns which buckets of a batch these commits are known to hold. Only commits of which nothing in
        the batch has changed are used. Reports the buckets as staying."""
        held = KnownBuckets(np.zeros(len(batch), dtype=np.bool_), set())
        if not self._may_stay or not commits:
            return held
        receipts = self._receipts.get_all(commits)
        mine: _Fingerprints | None = None
        for name, receipt in receipts.items():
            waits = self._work.waits(receipt["copied"]) if receipt.get("known") else None
            if waits is None or (copies := self._read(name, receipt["buckets"])) is None:
                continue
            mine = mine or _Fingerprints.of(self._work, batch)
            same = np.isin(copies.buckets, mine.buckets)
            if self._is_as_it_was(copies, same, live_of(receipt, receipt["buckets"]), mine):
                self._work.report.leave(int(same.sum()), waits)
                held.buckets[:] |= np.isin(mine.buckets, copies.buckets[same])
                held.commits.add(name)
        return held

    def _is_as_it_was(
        self, copies: _Fingerprints, same: NDArray[np.bool_], live: NDArray[np.bool_], mine: _Fingerprints
    ) -> bool:
        """Returns whether no deleted bucket is there again, and no live one has changed."""
        if self._work.measured:
            return True
        others = live & ~same
        return bool(live[same].all() and not np.isin(copies.ids[others], mine.ids).any())

    def may_hold(self, receipt: Document, batch: Batch) -> bool:
        """Returns whether a commit may hold buckets with an `_id` of these."""
        copies = self._read(receipt["_id"]["name"], receipt["buckets"]) if receipt.get("known") else None
        return copies is None or bool(np.isin(batch.main.hashed_ids(_hash_of_id), copies.ids).any())

    def note(self, archive: OfflineArchive, manifest: Manifest) -> None:
        """Records fingerprints of the copies of a commit, for later runs."""
        if not self._may_stay:
            return
        found = [_Fingerprints.of(self._work, held.batch) for held in archive.sections(manifest)]
        prints = _Fingerprints(*map(np.concatenate, zip(*found, strict=True)))
        writes: list[ReplaceOne[Document] | UpdateOne] = []
        for identity, at in self._places(manifest.commit, manifest.buckets):
            some = slice(at, at + _IN_ONE)
            fields = {"xxh3": prints.buckets[some].tobytes(), "ids": prints.ids[some].tobytes()}
            writes.append(ReplaceOne({"_id": identity}, {"kind": "copies", **fields}, upsert=True))
        writes.append(self._receipts.update_of(manifest.commit, {"$set": {"known": True}}))
        self._receipts.collection.bulk_write(writes)

    def note_merged(self, archive: OfflineArchive, manifest: Manifest) -> None:
        """Records fingerprints of the copies of a commit that has replaced others, if any original is
        live."""
        if self._may_stay and self._receipts.live(manifest.commit, manifest.buckets).any():
            self.note(archive, manifest)

    def forget(self, manifest: Manifest) -> None:
        """Removes the fingerprints of a commit's copies once none of its originals is live."""
        if self._may_stay:
            receipt = self._receipts.get(manifest.commit) or {}
            if receipt.get("known") and receipt.get("state") == "closed":
                self._receipts.drop_fingerprints(manifest.commit)
                self._receipts.update(manifest.commit, {"$unset": {"known": ""}})

    def _read(self, commit: str, buckets: int) -> _Fingerprints | None:
        """Returns the fingerprints of a commit; None where they are not all there."""
        found: list[Document] = []
        for identity, _ in self._places(commit, buckets):
            document = self._receipts.collection.find_one({"_id": identity})
            if document is None or "xxh3" not in document:  # it may be of another hash, which matches nothing
                return None
            found.append(document)
        prints = _Fingerprints(
            np.concatenate([np.frombuffer(it["xxh3"], f"S{_SIZE}") for it in found]),
            np.concatenate([np.frombuffer(it["ids"], "<u8") for it in found]),
        )
        return prints if len(prints.buckets) == len(prints.ids) == buckets else None

    def _places(self, commit: str, buckets: int) -> Iterator[tuple[Document, int]]:
        for number, at in enumerate(range(0, buckets, _IN_ONE)):
            yield self._receipts.identity(f"copies-{commit}-{number:04d}"), at


def _hashes(items: Iterable[bytes | memoryview]) -> NDArray[np.bytes_]:
    """Returns the XXH3 (https://xxhash.com) of each. It is made for speed, and tells accidental changes."""
    return np.frombuffer(b"".join(map(xxh3_128_digest, items)), f"S{_SIZE}")


def _hash_of_id(raw_id: bytes) -> int:
    return int(xxh3_64_intdigest(same_id(raw_id)))
