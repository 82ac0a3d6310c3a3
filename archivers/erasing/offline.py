"""The series of an offline archive: in commits, in files beside them, in what a killed run has left."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import bson
import numpy as np
from pymongo.client_session import ClientSession

from bucketwise.archivers.erasing.buckets import Selected
from bucketwise.archivers.erasing.erasure import BucketNames, Erasure, ErasureWork, UnreadCommits
from bucketwise.archivers.erasing.kind import PlaceHolding, Remaining, TextSearch, decoded_from, unpacked
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.format.names import commit_of_superseded, superseded_prefix
from bucketwise.archivers.format.writing import ColdCommit, Maker
from bucketwise.archivers.moving.copies import KnownCopies
from bucketwise.archivers.records.receipt_files import decoded
from bucketwise.archivers.records.registry import record_rekept
from bucketwise.archivers.recovering.commits import CommitRegistry
from bucketwise.archivers.run import ArchiveRun
from bucketwise.archivers.stores.base import ObjectStore
from bucketwise.archivers.versions.superseded import RemovedBuckets, Superseded, SupersededFile
from bucketwise.archivers.writes import same_id
from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.bson.types import first_at
from bucketwise.buckets.fields.times import as_text
from bucketwise.buckets.models.shape import split


class AffectedCommit(NamedTuple):
    """A commit that holds something of the series. `unread`: why it can't be told what it holds; empty where
    it can."""

    manifest: Manifest
    found: Selected  # by positions in the commit
    names: BucketNames
    unread: str = ""


def commits_of(
    archive: OfflineArchive,
    erasure: Erasure,
    visit: Callable[[Batch, Selected], None] = lambda _batch, _found: None,
) -> Iterator[AffectedCommit]:
    """Yields the commits that hold something of the series in the range, or across its edges. `visit` is
    called with the buckets of each section, and what becomes of them, since they may not fit into memory
    together. Of a commit that has to be thawed, nothing is found."""
    within = erasure.within
    for manifest in archive.manifests(within.start_ms, within.end_ms):
        which = manifest.sections_with(erasure.policy, [erasure.series])
        if any(which):
            parts, names = list[Selected](), BucketNames()
            try:
                for held in archive.sections(manifest, which):
                    found = erasure.sort(held.batch)
                    parts.append(Selected(*(held.positions[it] for it in found)))
                    names |= BucketNames.of(held.batch, found)
                    visit(held.batch, found)
            except ColdCommit as error:
                yield AffectedCommit(manifest, Selected.joined([]), BucketNames(), _thaw_first(error))
                continue
            whole = Selected.joined(parts)
            if len(whole.affected) or len(whole.across):
                yield AffectedCommit(manifest, whole, names)


def _thaw_first(cold: ColdCommit) -> str:
    return f"it may hold the series, and has to be thawed before it can be read. {cold.remedy}"


class CommitEraser:
    """Rewrites commits, one after the other."""

    def __init__(self, work: ErasureWork, archive: OfflineArchive) -> None:
        self._work = work
        self._archive = archive
        self._run = ArchiveRun.of(work.context)

    def run(self) -> None:
        """Rewrites all commits that hold something of the series; drops those that hold nothing else. Notes
        those that can't be read: a summary that is made of them would bring back what was erased."""
        unread = UnreadCommits(self._work.context.receipts, self._work.erasure, self._work.context.now)
        for held in commits_of(self._archive, self._work.erasure, self._forget):
            if held.unread:
                unread.note(held.manifest.commit)
            if len(held.found.affected):
                self._rewrite(held)
        unread.end()

    def _forget(self, buckets: Batch, found: Selected) -> None:
        self._work.context.check()
        if len(found.affected):
            self._work.check_not_held()  # and in the transactions again: one may be placed meanwhile
            self._work.forget(buckets.take(found.erased))
            self._work.rewrite_restored(buckets.take(found.rewritten))

    def _rewrite(self, held: AffectedCommit) -> None:
        work, manifest, count = self._work, held.manifest, len(held.found.affected)
        noted = set[int]()

        def record(session: ClientSession) -> None:
            nonlocal noted
            noted = work.take(held.names, held.found, "archived", session)
            work.erasures.count({"commits_rewritten": 1}, session)

        maker = Maker(manifest.database, work.context.fence, work.context.now, manifest.timeseries)
        registry = CommitRegistry(self._run, self._archive, maker)
        rest = work.erasure.buckets.rest
        successor = registry.erase(manifest, held.found.erased.tolist(), rest, record)
        if successor is not None:
            KnownCopies(self._run).note_merged(self._archive, successor)
        work.counted.update(noted)
        work.context.progress("erased archived buckets", count)


def superseded_files_of(
    kept: Superseded, erasure: Erasure
) -> Iterator[tuple[SupersededFile, RemovedBuckets, Selected]]:
    """Yields the files of superseded versions in the range, with what is in them."""
    within = erasure.within
    for file in kept.files():
        if file.commit.may_hold(within.start_ms, within.end_ms):
            left = kept.read(file)
            yield file, left, erasure.sort(left.batch)


def erase_versions(work: ErasureWork, archive: OfflineArchive) -> None:
    """Rewrites the files of superseded versions. The new file is written before the old one is deleted. One
    that somebody has planted stays, and the search reports it."""
    kept = Superseded(archive)
    for file, left, found in list(superseded_files_of(kept, work.erasure)):
        if len(found.affected) and kept.has_made_way(file):
            work.check_not_held()
            archive.store.delete([file.key])
            work.count(versions=len(found.affected))
        elif len(found.affected) and kept.may_change(file):
            work.context.check()
            work.check_not_held()
            staying = np.setdiff1d(np.arange(len(left.batch)), found.erased)
            added = list[str]()
            if len(staying):
                places = [left.positions[i] for i in staying]
                batch = work.erasure.buckets.rest(left.batch.take(staying))
                added.append(kept.put(file.commit.name, batch, places, work.context.fence))
            facts = file.commit.name, file.sha256, added
            work.transaction(partial(record_rekept, work.context.deletions, *facts))
            archive.store.delete([file.key])
            work.count(versions=len(found.affected))


class RemovedFile(NamedTuple):
    """A file of what was taken out of a commit: how many of its documents go or are rewritten, and the
    documents that stay, as they are then. None: it can't be read."""

    key: str
    affected: int
    staying: Docs | None


def removed_files_of(store: ObjectStore, erasure: Erasure) -> Iterator[RemovedFile]:
    """Yields the files under `superseded/` of commits in the range that hold something of the series.
    Overflow goes with the bucket that it refers to."""
    prefix, within = superseded_prefix(erasure.policy.identity), erasure.within
    for found in store.list(prefix):
        commit = commit_of_superseded(erasure.policy.identity, found.key)
        if commit is None or not commit.may_hold(within.start_ms, within.end_ms):
            continue
        try:
            documents = Docs.split(store.get_bytes(found.key))
        except ValueError:
            yield RemovedFile(found.key, 0, None)
            continue
        staying = _without(documents, erasure)
        if affected := sum(staying.get(i) != it for i, it in enumerate(documents)):
            yield RemovedFile(found.key, affected, Docs.of(list(staying.values())))


def _without(documents: Docs, erasure: Erasure) -> dict[int, bytes]:
    """Returns the documents that stay, as they are then, by their places."""
    main, extra = np.arange(len(documents)), list[tuple[int, int]]()
    if (overflow := erasure.policy.overflow) is not None:
        names = {same_id(raw_id): i for i, raw_id in enumerate(documents.raw_ids)}
        refers_to = [same_id(first_at(it, split(overflow.ref_field))) for it in documents]
        extra = sorted((names[it], i) for i, it in enumerate(refers_to) if it in names)
        main = np.setdiff1d(main, [i for _, i in extra])
    owner = np.searchsorted(main, [i for i, _ in extra]).astype(np.int32)
    more = [i for _, i in extra]
    buckets = Batch(documents.take(main), documents.take(more), owner)
    erased, rest = erasure.sort(buckets).erased, erasure.buckets.rest(buckets)
    gone = {*main[erased].tolist(), *(i for i, of in zip(more, owner, strict=True) if of in erased)}
    whole = {**dict(zip(main.tolist(), rest.main, strict=True)), **dict(zip(more, rest.extra, strict=True))}
    return {i: whole[i] for i in sorted(whole.keys() - gone)}


def erase_removed(work: ErasureWork, archive: OfflineArchive) -> None:
    """Rewrites the files under `superseded/`, or deletes them where nothing stays."""
    for file in list(removed_files_of(archive.store, work.erasure)):
        if file.staying is not None:
            work.context.check()
            work.check_not_held()
            if len(file.staying):
                archive.chain.put(file.key, file.staying.data)
            else:
                archive.store.delete([file.key])
            work.count(set_aside=file.affected)


_NO_COMMIT = "the file belongs to no commit, and may hold the series: look at it, and delete it"


_UNFINISHED = (
    "a write was broken off there, and may hold the series: a run removes it once it is a day old; or delete "
    "it, if no run is at work"
)


_NO_DOCUMENTS = "the file can't be read as documents: look at it, and delete it"


_NOT_SEARCHED = "it has to be thawed before it can be searched for values of the series as text"


_UNREADABLE = "the file can't be read, so whether it holds a value of the series is unknown"


_DIGESTS = (
    "manifests and receipts keep digests of what was erased, and filters that tell which series a commit "
    "held: whoever knows nearly all of a document can find the rest by trial"
)


@dataclass(frozen=True)
class OfflineSeries:
    """The `ArchivedSeries` of an offline archive."""

    archive: OfflineArchive

    @property
    def _name(self) -> str:
        return self.archive.policy.identity

    def holdings(self, erasure: Erasure) -> Iterator[PlaceHolding]:
        """Yields what commits hold, and the files beside them."""
        archive, url = self.archive, self.archive.store.url
        for it in commits_of(archive, erasure):
            place, found = archive.place(it.manifest.name), it.found
            counts = len(found.affected), len(found.across)
            yield PlaceHolding("archived", place, *counts, it.names, it.unread)
        for file, _, found in superseded_files_of(Superseded(archive), erasure):
            yield PlaceHolding("versions", f"{url}/{file.key}", len(found.affected))
        for aside in removed_files_of(archive.store, erasure):
            unread = _NO_DOCUMENTS if aside.staying is None else ""
            yield PlaceHolding("set_aside", f"{url}/{aside.key}", aside.affected, unread=unread)

    def erase(self, work: ErasureWork) -> None:
        """Rewrites commits without the series, and files beside them."""
        self.archive.store.clean_temporaries(None, self._name)
        CommitEraser(work, self.archive).run()
        erase_versions(work, self.archive)
        erase_removed(work, self.archive)

    def leftovers(self, erasure: Erasure) -> Iterator[Remaining]:
        """Yields what runs that were killed have left of writes: nobody reads it."""
        within, store = erasure.within, self.archive.store
        for key, commit in self.archive.unlisted():
            if commit is None or commit.may_hold(within.start_ms, within.end_ms):
                yield Remaining(f"{store.url}/{key}", _NO_COMMIT, True)
        for place in store.unfinished(self._name):
            yield Remaining(place, _UNFINISHED, True)

    def texts(self, search: TextSearch) -> Iterator[Remaining]:
        """Searches the documents that each commit gives, since all that its Parquet files hold comes from
        these; and the files beside them."""
        archive = self.archive
        for commit in archive.commits():
            held = (it.batch for it in archive.sections(archive.manifest(commit)))
            try:
                yield from search.documents(
                    archive.place(commit), (it for b in held for it in (b.main, b.extra))
                )
            except ColdCommit:
                yield Remaining(archive.place(commit), _NOT_SEARCHED, False)
        for found in archive.store.list(f"{self._name}/meta/"):
            place = f"{archive.store.url}/{found.key}"
            try:
                entries = list(_entries(found.key, archive.store.get_bytes(found.key)))
            except (ValueError, OSError, EOFError, zlib.error, bson.errors.InvalidBSON):
                yield Remaining(place, _UNREADABLE, True)
            else:
                yield from search.entries(place, entries)

    def unreached(self, erasure: Erasure) -> Iterator[Remaining]:
        """Yields older versions of files, which count as found, and the digests in manifests."""
        yield from self._older_versions()
        yield Remaining(f"{self.archive.store.url}/{self._name}/meta", _DIGESTS, False)

    def _older_versions(self) -> Iterator[Remaining]:
        for older in self.archive.store.older_versions(f"{self._name}/"):
            if older.unknown:
                why = f"cannot find out whether older versions of files are kept: {older.unknown}"
                yield Remaining(older.place, why, False)
            elif older.count:
                until = older.locked_until
                lock = "" if until is None else f", and locks some of them until {as_text(until)}"
                soft = (
                    f" ({older.soft_deleted:,} are soft-deleted, and go later)" if older.soft_deleted else ""
                )
                why = f"the store keeps {older.count:,} older versions of files{soft}{lock}"
                yield Remaining(older.place, f"{why}. Delete them by their version ids", True)


def _entries(key: str, data: bytes) -> Iterator[object]:
    """Yields what a file beside the parts holds: JSON, documents one after the other, or compressed
    receipts."""
    if key.endswith(".json"):
        yield json.loads(data)
    elif key.endswith(".bson.gz"):
        yield from map(unpacked, decoded(data))
    elif key.endswith(".bson"):
        yield from decoded_from(Docs.split(data))
