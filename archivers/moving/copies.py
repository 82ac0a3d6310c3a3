"""Copies of buckets: those in the making, by threads of this process or by tasks in others, and known ones.

Nothing here writes to MongoDB, and no copy is part of the archive before the run that asked for it commits
it. The files of a copy that was given up are cleared by a later run. With `delete = false`, during a grace,
and with native time series, each run meets buckets again that are copied already. MongoDB has a fingerprint
of each copy, so that no file is read to see that nothing has changed. Nothing is ever deleted on the strength
of a fingerprint.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from datetime import timedelta
from functools import partial
from itertools import chain
from tempfile import SpooledTemporaryFile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pymongo import ReplaceOne, UpdateOne
from xxhash import xxh3_64_intdigest, xxh3_128_digest

from bucketwise.archivers import decisions
from bucketwise.archivers.context import Connections, Executor, offline_archive
from bucketwise.archivers.format.archive import Copied, OfflineArchive, Positions, SectionBuckets
from bucketwise.archivers.format.manifest import First, Manifest, origin_at
from bucketwise.archivers.format.writing import Maker
from bucketwise.archivers.records.receipts import Document, commit_of, live_of
from bucketwise.archivers.run import ArchiveRun
from bucketwise.archivers.writes import same_id, units
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import BucketSet
from bucketwise.buckets.source import Source
from bucketwise.config.errors import BucketwiseError, HaltedError
from bucketwise.config.policies import Policy
from bucketwise.rollups.context import result_of

#: Bytes of the fingerprint of a bucket.
_SIZE = 16
#: Fingerprints in one document.
_IN_ONE = 200_000
#: How long nothing becomes of originals that were looked at, and that no run meets.
_LOOK_AGAIN = timedelta(days=30)


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
        self.not_met = dict[str, Positions]()  # of copies whose originals no run has deleted, by commit
        self._looked = dict[str, Document]()  # which of these an earlier run has looked at, and when

    @property
    def _may_stay(self) -> bool:
        """Returns whether originals may stay after they are copied: for good, or for a grace."""
        return bool(self._work.kept or self._work.archive.grace)

    def held(self, batch: Batch, commits: Sequence[str]) -> KnownBuckets:
        """Returns which buckets of a batch these commits are known to hold. Only commits of which nothing in
        the batch has changed are used. Reports the buckets as staying. Notes which copies were not met."""
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
            live = live_of(receipt, receipt["buckets"])
            if self._is_as_it_was(copies, same, live, mine):
                missed = np.flatnonzero(live & ~same)
                self.not_met[name] = np.intersect1d(missed, self.not_met.get(name, missed))
                self._work.report.leave(int(same.sum()), waits)
                held.buckets[:] |= np.isin(mine.buckets, copies.buckets[same])
                held.commits.add(name)
        return held

    def not_met_anew(self) -> Iterator[tuple[str, Positions]]:
        """Yields the copies that were not met, by commit: not those of which a run has found lately that
        nothing has become of their originals. They may be under a rule that keeps them."""
        for name, missed in self.not_met.items():
            looked = self._looked.get(name, {})
            since = self._work.now - looked["at"] if looked.get("of") == _digest(missed) else _LOOK_AGAIN
            if len(missed) and not timedelta(0) <= since < _LOOK_AGAIN:
                yield name, missed

    def note_looked(self, commit: str, missed: Positions) -> None:
        """Records that nothing has become of the originals of these copies."""
        looked = {"of": _digest(missed), "at": self._work.now}
        identity, _ = next(self._places(commit, 1))
        self._receipts.collection.update_one({"_id": identity}, {"$set": {"looked": looked}})

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
        self._looked[commit] = found[0].get("looked", {}) if found else {}
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


def _digest(missed: Positions) -> bytes:
    return xxh3_128_digest(missed.astype("<i8").tobytes())


def _hash_of_id(raw_id: bytes) -> int:
    return int(xxh3_64_intdigest(same_id(raw_id)))


#: Bytes of names that are kept in memory, without a file.
MOST_IN_MEMORY = 1 << 20


class _Unsettled(NamedTuple):
    """The buckets of a commit that is being copied, or whose delete has not been decided."""

    first: int  # the span of its buckets, milliseconds
    last: int
    names: NDArray[np.uint64]  # sorted


class _NamesInFile(NamedTuple):
    """The place of the names of a commit's buckets in the file."""

    first: int
    last: int
    at: int
    bytes: int
    are_gone: bool


class CopiedBuckets:
    """Buckets that this run has copied and not deleted: not yet, or not at all, or somebody else has. There
    may be as many as the collection has, so their names, eight bytes each, are kept in a file, and only those
    of commits of the same time are read back."""

    def __init__(self) -> None:
        self._unsettled: deque[_Unsettled] = deque()
        self._settled: list[_NamesInFile] = []
        self._file = SpooledTemporaryFile(MOST_IN_MEMORY, prefix="bucketwise-")  # noqa: SIM115 - see `close`

    def begin(self, batch: Batch, first_ms: int, last_ms: int) -> None:
        """Notes the buckets of a commit whose copy begins. They span first to last, milliseconds."""
        self._unsettled.append(_Unsettled(first_ms, last_ms, np.sort(batch.main.id_hashes)))

    def settle(self, *, stay: bool) -> None:
        """Settles the commit that was begun first. `stay`: its buckets stay in the source."""
        commit = self._unsettled.popleft()
        if stay:
            self._write(commit, are_gone=False)

    def miss(self, gone: Batch, first_ms: int, last_ms: int) -> None:
        """Notes that somebody else has deleted these buckets, of a commit that spans first to last."""
        self._write(_Unsettled(first_ms, last_ms, np.sort(gone.main.id_hashes)), are_gone=True)

    def _write(self, commit: _Unsettled, *, are_gone: bool) -> None:
        self._file.seek(0, os.SEEK_END)
        self._settled.append(
            _NamesInFile(commit.first, commit.last, self._file.tell(), commit.names.nbytes, are_gone)
        )
        self._file.write(commit.names.tobytes())

    def unsettled(self, batch: Batch, first_ms: int, last_ms: int) -> NDArray[np.bool_]:
        """Returns which of these buckets, which span first to last, are in a commit that is not settled,
        (n,)."""
        return _among(
            batch, [commit.names for commit in self._unsettled if _touches(commit, first_ms, last_ms)]
        )

    def staying(self, batch: Batch, first_ms: int, last_ms: int) -> NDArray[np.bool_]:
        """Returns which of these buckets are in a settled commit, and stayed, (n,)."""
        return self._found(batch, first_ms, last_ms, are_gone=False)

    def deleted_by_others(self, batch: Batch, first_ms: int, last_ms: int) -> NDArray[np.bool_]:
        """Returns which of these buckets somebody else has deleted, (n,)."""
        return self._found(batch, first_ms, last_ms, are_gone=True)

    def _found(self, batch: Batch, first_ms: int, last_ms: int, *, are_gone: bool) -> NDArray[np.bool_]:
        near = (it for it in self._settled if it.are_gone == are_gone and _touches(it, first_ms, last_ms))
        return _among(batch, map(self._read, near))

    def _read(self, commit: _NamesInFile) -> NDArray[np.uint64]:
        self._file.seek(commit.at)
        return np.frombuffer(self._file.read(commit.bytes), np.uint64)

    def close(self) -> None:
        """Removes the file. Holds no names from then on."""
        with suppress(OSError):  # a full disk: the names are no longer needed
            self._file.close()


def _touches(commit: _Unsettled | _NamesInFile, first_ms: int, last_ms: int) -> bool:
    return commit.first <= last_ms and commit.last >= first_ms


def _among(batch: Batch, names: Iterable[NDArray[np.uint64]]) -> NDArray[np.bool_]:
    found = np.zeros(len(batch), dtype=np.bool_)
    for there in names:
        order = np.argsort(batch.main.id_hashes)
        mine = batch.main.id_hashes[order]  # these find their places one after another
        at = np.searchsorted(there, mine)
        found[order] |= there[np.minimum(at, len(there) - 1)] == mine
    return found


OLDER = "moved in time: a commit that is held back has an older copy, which would count as well"


class OlderCopies:
    """Finds older copies of buckets that are about to be deleted."""

    def __init__(self, work: ArchiveRun, archive: OfflineArchive, known: KnownCopies) -> None:
        self._work, self._archive, self._known = work, archive, known

    def without(self, manifest: Manifest, due: Positions) -> Positions:
        """Returns those of these positions in a commit of which no other open commit has an older copy."""
        if self._work.measured or not len(due):
            return due
        others = list(self._others(manifest))
        moved: list[int] = []
        for held in self._archive.buckets_at(manifest, due) if others else ():
            places = dict(_places(held))
            mine = {name: origin_at(manifest, place) for name, place in places.items()}
            may_hold = (it for it in others if self._known.may_hold(it, held.batch))
            older = chain.from_iterable(map(self._live_of, may_hold))
            moved += [places[name] for name in decisions.with_older_copy(mine, older)]
        return np.setdiff1d(due, moved)

    def _others(self, manifest: Manifest) -> Iterator[Document]:
        """Yields the receipts of the open commits that may have older copies: those before it in the chain,
        and merged ones."""
        earlier = {"$or": [{"sequence": {"$lt": manifest.sequence}}, {"compacted": True}]}
        for receipt in self._work.receipts.in_state("open", "offline", earlier):
            if receipt["_id"]["name"] != manifest.commit:
                yield receipt

    def _live_of(self, receipt: Document) -> Iterator[tuple[bytes, First]]:
        """Yields the `_id`s of a commit's copies of live buckets, each with where it was archived first."""
        commit = commit_of(receipt)
        assert commit is not None
        other = self._archive.current(commit)
        live = np.flatnonzero(self._work.receipts.live(other.commit, other.buckets))
        for held in self._archive.buckets_at(other, live):
            yield from ((name, origin_at(other, position)) for name, position in _places(held))


def _places(held: SectionBuckets) -> Iterator[tuple[bytes, int]]:
    return zip(map(same_id, held.batch.main.raw_ids), held.positions.tolist(), strict=True)


#: Copies that this process makes while the one before is committed and its buckets are deleted; and one more
#: once the next is ready. Two at once keep two cores busy; each takes memory.
MAX_PENDING = 1


class _PendingCopy(NamedTuple):
    copy: Future[Any]
    accept: Callable[[Any], Copied]  # of what it gives


class Copies:
    """The copies of one run."""

    def __init__(
        self, archive: OfflineArchive, maker: Maker, executor: Executor, check: Callable[[], None]
    ) -> None:
        """`check` raises where the run must stop. It is called from threads too."""
        self._archive = archive
        self._maker = maker
        self._executor = executor
        self._check = check
        # Measurements of a native time-series collection can't be queried by `_id`.
        self._uses_workers = executor.workers > 1 and maker.timeseries is None
        self._threads = ThreadPoolExecutor(MAX_PENDING + 1, "bucketwise-copier")
        self._pending: deque[_PendingCopy] = deque()
        self._largest = 1  # bytes of the buckets of one copy

    @property
    def max_pending(self) -> int:
        """Returns how many copies may be pending while others are committed. Buckets that workers copy are
        held here as well, to be compared with what was written."""
        if not self._uses_workers:
            return MAX_PENDING
        return max(1, min(self._executor.workers, self._executor.memory // (2 * self._largest)))

    def begin(self, buckets: BucketSet) -> None:
        """Begins to copy buckets, and takes them over: a thread frees what was decoded of them."""
        types = self._archive.types_for(buckets.decoded.columns.series)
        self._largest = max(self._largest, buckets.batch.size)
        if self._uses_workers:
            buckets.forget()
            given = buckets.batch.main.raw_ids, buckets.batch.digest, types, self._maker
            copy = self._executor.submit(copy_buckets, buckets.policy, *given)
            self._pending.append(_PendingCopy(copy, partial(self._accept, buckets, types)))
        else:  # no longer needs the buckets once they are copied
            copied = self._threads.submit(copy_context().run, self._copy, buckets, types)
            self._pending.append(_PendingCopy(copied, lambda it: it))

    def completed(self, pending: int) -> Iterator[Copied]:
        """Waits until at most `pending` copies are left, and yields the others in the order in which they
        were begun. Raises what copying raised."""
        while len(self._pending) > pending:
            copy, accept = self._pending.popleft()
            yield accept(result_of(copy, self._check))

    def close(self) -> None:
        """Gives up pending copies. Raises HaltedError where one of them was not equal to its originals, since
        the run may be ending for another reason and would not report it."""
        for begun in self._pending:
            begun.copy.cancel()
        self._threads.shutdown(cancel_futures=True)
        for begun in self._pending:
            done = begun.copy.done() and not begun.copy.cancelled()
            if done and isinstance(error := begun.copy.exception(), HaltedError):
                raise error

    def _copy(self, buckets: BucketSet, types: dict[str, str]) -> Copied:
        return self._archive.copy([buckets], types, self._maker, self._check)

    def _accept(self, buckets: BucketSet, types: dict[str, str], draft: Manifest | None) -> Copied:
        """Reads a worker's copy back in this process, without trusting the worker's own check."""
        if draft is None:  # a bucket has changed since it was read here
            return self._copy(buckets, types)
        for file in draft.files:
            found = self._archive.store.head(file.key)
            if found is None or found.size != file.bytes:
                raise BucketwiseError(
                    f"{self._archive.store.url}/{file.key}: a worker wrote it, and it is not there. "
                    "Name the store so that it is the same from every machine that works (no folder that is "
                    "not shared). Nothing was deleted; it is safe to run again"
                )
        if not self._archive.holds(draft, buckets):
            raise HaltedError(
                f"policy {buckets.policy.name}: commit {draft.commit}, copied by a worker to "
                f"{self._archive.store.url}, does not contain the documents that were read. Nothing was "
                "deleted. Look at the worker and the store, then run again"
            )
        return Copied(draft, buckets.batch)


def copy_buckets(
    connections: Connections,
    policy: Policy,
    raw_ids: Sequence[bytes],
    digest: str,
    types: dict[str, str],
    maker: Maker,
) -> Manifest | None:
    """Reads the buckets with these `_id`s, copies them, and verifies the copy, as a task. Returns None, and
    writes nothing, where they are no longer as the run has read them. `digest`: of the run's batch."""
    found = Batch.concat(list(Source(connections.database, policy).by_raw_ids(raw_ids)))
    place = {raw_id: i for i, raw_id in enumerate(found.main.raw_ids)}
    if any(raw_id not in place for raw_id in raw_ids):
        return None
    batch = found.take([place[raw_id] for raw_id in raw_ids])
    if batch.digest != digest:
        return None

    def check() -> None:
        if (connections.fence_of(policy.identity) or 0) > maker.fence:
            raise BucketwiseError(
                f"policy {policy.name}: another run holds the lease by now, and what a worker was asked to "
                "copy is that run's. It is safe to run again"
            )

    archive = offline_archive(connections, policy)
    assert archive is not None
    return archive.copy([BucketSet(batch, policy)], types, maker, check).draft
