"""Keeps versions of an offline archive that no longer count, each as it was.

A copy leaves its commit when its bucket, still or again live, has changed. Where the bucket lacks readings of
the copy, somebody may have removed them; or deleted the bucket, and a late upsert made it again. Nothing
shows which. So the live one counts, and the copy stays restorable: in a file of its own, which no reader of
the archive sees, and whose name has the SHA-256 of its bytes.

Each copy that leaves is kept: until the live bucket is archived, it may change again, or be deleted. Readers
of versions leave out those that a later one contains.

    <policy>/meta/versions/<commit>.<fence>.<sha256>.bson     of the commit that they left

The fence is that of the run which wrote the file: one that has lost its lease may leave a file that nothing
comes to refer to. A document of the file holds a bucket's own document, those of its overflow, and its
position in the commit.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence, Set
from typing import Any, NamedTuple

import numpy as np

from bucketwise.archivers import decisions
from bucketwise.archivers.format.archive import OfflineArchive, foreign_file
from bucketwise.archivers.format.chain import VersionFiles
from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.format.manifest import DamagedError, Manifest, read_link
from bucketwise.archivers.format.names import (
    CommitName,
    commit_at,
    commit_of_superseded,
    links,
    parse_commit,
    superseded_prefix,
)
from bucketwise.archivers.format.writing import damage_at
from bucketwise.archivers.records.heads import link_of
from bucketwise.archivers.records.receipt_checks import unrecorded
from bucketwise.archivers.records.receipt_files import LAST
from bucketwise.archivers.records.receipts import HELD, REPLACED, Receipts, commit_of, record_fault
from bucketwise.archivers.records.registry import KnownFences, ended, unregistered
from bucketwise.archivers.stores.base import Corrupt, NotFound, check_read_back
from bucketwise.archivers.writes import chunks, same_id
from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.bson.types import ARRAY, DOCUMENT, INT32, elements, first_at
from bucketwise.buckets.fields.times import TimeRange, as_ms
from bucketwise.buckets.source import Source
from bucketwise.buckets.versions.readings import array_of, document_of, number

#: Earlier versions gave no fence.
_NAME = re.compile(r"(?P<commit>[^.]+)\.(?:f(?P<fence>\d{6,})\.)?(?P<sha256>[0-9a-f]{64})\.bson")


def still_live(source: Source, copies: Batch) -> list[int]:
    """Returns the copies whose buckets are live, whatever they hold by now."""
    found, at = [], 0
    for piece in chunks(copies):
        named = {same_id(raw_id) for raw_id in source.present(piece.main.ids)}
        found += [at + i for i, raw_id in enumerate(piece.main.raw_ids) if same_id(raw_id) in named]
        at += len(piece)
    return found


class SupersededFile(NamedTuple):
    """A file of superseded versions, by its name."""

    key: str
    commit: CommitName
    sha256: str
    fence: int | None  # None: an earlier version wrote it


class RemovedBuckets(NamedTuple):
    """Buckets that have left a commit."""

    batch: Batch
    positions: Sequence[int]  # in the commit


class Superseded:
    """The superseded versions of one policy."""

    def __init__(self, archive: OfflineArchive) -> None:
        self._archive = archive
        self._store, self._policy = archive.store, archive.policy.identity
        self._dropped: dict[str, list[Manifest]] = {}
        self._files: dict[str, VersionFiles | None] = {}  # of each commit, as `CommitIndex.versions`

    @property
    def _prefix(self) -> str:
        return f"{self._policy}/meta/versions/"

    def put(self, commit: str, batch: Batch, positions: Sequence[int], fence: int) -> str:
        """Writes a file of these buckets, which are about to leave their positions in a commit. Returns its
        SHA-256. `fence`: the run's. Raises DamagedError where it is not read back as written."""
        data = b"".join(_document(batch.slice(i, i + 1), at) for i, at in enumerate(positions))
        sha256 = hashlib.sha256(data).hexdigest()
        key = f"{self._prefix}{commit}.f{fence:06d}.{sha256}.bson"
        self._store.put_bytes(key, data)
        self._bytes(key, sha256)
        with damage_at(f"{self._store.url}/{key}"):
            check_read_back(self._store, key)
        return sha256

    def clear(self, commit: str) -> None:
        """Removes all that was kept of a commit."""
        self._store.delete(list(self._keys(commit)))

    def holds_any(self, commits: Iterable[str]) -> bool:
        """Returns whether anything was kept of some of these commits."""
        return any(True for commit in commits for _ in self._keys(commit))

    def _keys(self, commit: str) -> Iterator[str]:
        yield from (it.key for it in self._store.list(f"{self._prefix}{commit}."))
        for found in self._store.list(f"{superseded_prefix(self._policy)}{commit}."):
            if commit_of_superseded(self._policy, found.key) is not None:
                yield found.key

    def files(self, of: str = "") -> Iterator[SupersededFile]:
        """Yields all files of the policy, or those of one commit."""
        for found in self._store.list(f"{self._prefix}{of}{'.' if of else ''}"):
            if (file := self.file_of(found.key)) is not None:
                yield file

    def file_of(self, key: str) -> SupersededFile | None:
        """Returns the file that a key is of; None where no run has put such a file there."""
        match = _NAME.fullmatch(key.removeprefix(self._prefix))
        commit = parse_commit(match["commit"]) if match else None
        if match is None or commit is None:
            return None
        fence = match["fence"]
        return SupersededFile(key, commit, match["sha256"], int(fence) if fence else None)

    def read(self, file: SupersededFile) -> RemovedBuckets:
        """Returns its buckets. Raises DamagedError where it is not as it was written, unless the archive
        leaves damage out."""
        mains: list[bytes] = []
        positions: list[int] = []
        extra: list[bytes] = []
        owner: list[int] = []
        try:
            data = self._bytes(file.key, file.sha256)
        except DamagedError as error:
            self._archive.on_damage(error, file.commit.name, None)
            data = b""
        for document in Docs.split(data):
            array = first_at(document, ("overflow",))[1:]
            more = [array[value:end] for _, value, end in elements(array)]
            owner += [len(mains)] * len(more)
            mains.append(first_at(document, ("bucket",))[1:])
            positions.append(int.from_bytes(first_at(document, ("position",))[1:], "little"))
            extra += more
        return RemovedBuckets(
            Batch(Docs.of(mains), Docs.of(extra), np.array(owner, dtype=np.int32)), positions
        )

    def check(self, file: SupersededFile) -> None:
        """Checks that a file is as it was written; reads it only where the store can't tell. Raises
        DamagedError as `read` does."""
        try:
            with damage_at(f"{self._store.url}/{file.key}"):
                self._store.check(file.key, None, file.sha256)
        except DamagedError as error:
            if not self._is_readable(file):
                self._archive.on_damage(error, file.commit.name, None)

    def _is_readable(self, file: SupersededFile) -> bool:
        """Returns whether a copy of the store has a file as it was written."""
        try:
            self._bytes(file.key, file.sha256)
        except DamagedError:
            return False
        return True

    def around(self, start_ms: int, end_ms: int) -> Iterator[tuple[SupersededFile, Manifest]]:
        """Yields the files of versions that have left commits of [start, end), with the manifests of these
        commits, which have been dropped. Files of a commit that is still there are left out, since nothing
        has left it yet. Of files of the same buckets, which a run without its lease or an erasure that died
        may have left, one is given."""
        seen = set[tuple[str, str]]()
        for file in self.files():
            if file.commit.may_hold(start_ms, end_ms):
                manifest = self._ours(file.commit.name)
                if manifest is None or self._archive.is_there(manifest.name):
                    continue
                if self._is_kept(file, manifest) and (file.commit.name, file.sha256) not in seen:
                    seen.add((file.commit.name, file.sha256))
                    yield file, manifest

    def dropped(self, commit: str) -> Manifest | None:
        """Returns the manifest that is left of a commit that was dropped; None where none is."""
        return max(self._left(commit), key=lambda it: it.sequence, default=None)

    def _left(self, commit: str) -> list[Manifest]:
        if commit not in self._dropped:
            found = links(self._store, self._policy, commit)
            try:
                read = [read_link(self._store, self._policy, *link) for link in found]
            except DamagedError as error:
                self._archive.on_damage(error, commit, None)
                read = []
            self._dropped[commit] = read
        return self._dropped[commit]

    def clear_unfinished(
        self,
        fence: int,
        current: Callable[[Sequence[str]], Set[str]],
        own: Callable[[set[int]], Collection[int]],
    ) -> None:
        """Removes the files of commits that nothing has left, since a run under an older lease died that was
        about to take buckets out of them; and what runs have written that had lost their lease. `fence`: the
        run's. `current`: which commits must be there. `own`: see `foreign`."""
        files = list(self.files())
        there = current(sorted({it.commit.name for it in files}))
        unused = [it for it in files if it.commit.name in there and self.dropped(it.commit.name) is None]
        left = decisions.left_over([(it.key, it.fence or 0) for it in unused], fence)
        lost = self._of_lost_leases([it for it in files if it.commit.name not in there], own)
        self._store.delete([*left, *(it.key for it in lost)])

    def is_unused(self, file: SupersededFile, *, is_current: bool) -> bool:
        """Returns whether nothing refers to a file, as far as anything tells: nothing has left its commit
        (`is_current`: which must be there), or other files keep what has."""
        if self.dropped(file.commit.name) is None:
            return is_current
        return bool(self._of_lost_leases([file], lambda fences: fences))

    def _of_lost_leases(
        self, files: Iterable[SupersededFile], own: Callable[[set[int]], Collection[int]]
    ) -> list[SupersededFile]:
        """Returns those of these files that runs of this database wrote without their lease: a newer run has
        taken the buckets out of the commit. Only that one, and erasures after it, keep files."""
        found = []
        for file in files:
            manifest = self._ours(file.commit.name)
            known = None if manifest is None else self._files_of(manifest)
            if known is None or known.fence is None or file.fence is None:
                continue
            if file.fence < known.fence and file.sha256 not in known.kept:
                found.append(file)
        fences = own({it.fence for it in found if it.fence is not None}) if found else ()
        return [it for it in found if it.fence in fences]

    def foreign(
        self,
        known: Callable[[Iterable[str]], Container[str]],
        own: Callable[[set[int]], Collection[int]],
    ) -> Iterator[DamagedError]:
        """Yields an error for each file that nothing refers to, and nobody reads: of no commit that is
        registered, or was. `known`: those of these commits that are registered. `own`: those of some fences
        under which runs of this database were; what these have left is not foreign."""
        files = {it.key: it for it in self.files()}
        registered = known({it.commit.name for it in files.values()})
        unknown = []
        for found in self._store.list(self._prefix):
            try:
                if not self._is_known(files.get(found.key), registered):
                    unknown.append(found.key)
            except DamagedError as error:
                yield error
        left = self._of_lost_leases([files[it] for it in unknown if it in files], own)
        for key in sorted(set(unknown) - {it.key for it in left}):
            yield foreign_file(f"{self._store.url}/{key}")

    def _is_known(self, file: SupersededFile | None, registered: Container[str]) -> bool:
        if file is None or file.commit.name in registered:
            return file is not None
        manifest = self._ours(file.commit.name)
        return manifest is not None and self._is_kept(file, manifest)

    def may_change(self, file: SupersededFile) -> bool:
        """Returns whether a run may rewrite a file, and so vouch for the rest of it: no other has planted
        it."""
        manifest = self._ours(file.commit.name)
        return manifest is None or self._is_kept(file, manifest)

    def has_made_way(self, file: SupersededFile) -> bool:
        """Returns whether a run has recorded that a file makes way for what it has written of it: it died
        before it removed it."""
        manifest = self._ours(file.commit.name)
        files = None if manifest is None else self._files_of(manifest)
        return files is not None and file.sha256 in files.gone

    def _is_kept(self, file: SupersededFile, manifest: Manifest) -> bool:
        """Returns whether a run has kept this file of a dropped commit, as far as anything tells."""
        files = self._files_of(manifest)
        return files is None or file.sha256 in files.kept

    def _files_of(self, manifest: Manifest) -> VersionFiles | None:
        if manifest.commit not in self._files:
            archive = self._archive
            self._files[manifest.commit] = archive.index.versions(manifest, archive.chain)
        return self._files[manifest.commit]

    def _ours(self, commit: str) -> Manifest | None:
        """Returns what `dropped` does, without manifests that no run of this database has made."""
        archive = self._archive
        made = (it for it in self._left(commit) if archive.index.was_made(it, archive.chain))
        return max(made, key=lambda it: it.sequence, default=None)

    def damaged(self) -> Iterator[DamagedError]:
        """Yields an error for each file that is not as it was written."""
        for file in self.files():
            try:
                self._bytes(file.key, file.sha256)
            except DamagedError as error:
                yield error

    def _bytes(self, key: str, sha256: str) -> bytes:
        place = f"{self._store.url}/{key}"
        try:
            data = self._store.get_sound(key, lambda it: hashlib.sha256(it).hexdigest() == sha256)
        except Corrupt as error:
            raise DamagedError("version-differs", place, error.reason) from None
        except NotFound:
            raise DamagedError("version-differs", place, "the file was there, and is missing") from None
        if hashlib.sha256(data).hexdigest() != sha256:
            what = "it was changed: its SHA-256 is not the one in its name"
            raise DamagedError("version-differs", place, what)
        return data


def _document(bucket: Batch, position: int) -> bytes:
    extra = array_of([bytes([DOCUMENT]) + it for it in bucket.extra])
    return document_of(
        {
            "bucket": bytes([DOCUMENT]) + bucket.main[0],
            "overflow": bytes([ARRAY]) + extra,
            "position": number(INT32, float(position)),
        }
    )


def lies_elsewhere(receipts: Receipts, archive: OfflineArchive, manifest: Manifest) -> bool:
    """Returns whether nothing is lost with a commit that an earlier version has emptied."""
    aside = Superseded(archive)
    kept = [aside.read(it) for it in aside.files(manifest.commit)]
    missing = _missing(archive, manifest, kept)
    return missing == 0 or missing <= _erased(receipts, manifest)


def _missing(archive: OfflineArchive, manifest: Manifest, kept: list[RemovedBuckets]) -> int:
    """Returns how many buckets of a commit lie neither in these files nor in a current commit. Where its own
    files are gone by now, those in the files count by their positions."""
    if not archive.is_there(manifest.name):
        return len(set(range(manifest.buckets)).difference(*(it.positions for it in kept)))
    there = {unit for it in kept for unit in it.batch.units}
    missing = [unit for it in archive.sections(manifest) for unit in it.batch.units if unit not in there]
    for other in archive.manifests(as_ms(manifest.first), as_ms(manifest.last) + 1) if missing else ():
        for held in archive.sections(other):
            missing = list(set(missing).difference(held.batch.units))
    return len(missing)


def _erased(receipts: Receipts, manifest: Manifest) -> int:
    """Returns how many archived buckets an erasure of that time has taken that earlier versions have begun; 0
    once this version has written a receipt, since it records which commits it empties."""
    mine = {"_id.policy": receipts.policy}
    is_older = receipts.collection.find_one({**mine, "done_at": {"$exists": True}}, {"_id": 1}) is None
    if not is_older or "latest" in (receipts.get(LAST) or {}):
        return 0
    span = as_ms(manifest.first), as_ms(manifest.last)
    found = receipts.collection.find({**mine, "kind": {"$in": ["erase", "erasing"]}})
    erased = [
        int((it.get("erased") or it.get("counts") or {}).get("archived", 0))
        for it in found
        for within in [TimeRange(it["since"], it["until"])]
        if within.start_ms <= span[1] and within.end_ms > span[0]
    ]
    return max(erased, default=0)


Document = dict[str, Any]


def check_replaced(receipts: Receipts, archive: OfflineArchive, record: Document, keys: Keys) -> None:
    """Raises DamagedError where a commit is recorded as replaced, or ended, and nothing that is sealed says
    so."""
    name, by = record["_id"]["name"], record.get("replaced_by")
    successor = commit_of(found) if by and "seal" in (found := receipts.get(by) or {}) else None
    if successor is not None and name in archive.chain.link(link_of(successor)).replaces:
        return
    if by is not None:
        what = f"it says that the commit was replaced by {by}, and the manifest of that one does not"
        raise record_fault(name, what)
    if ended(receipts, record, keys) is None and not _is_emptied(receipts, archive, record):
        raise record_fault(name, "it says that the commit has ended, and no receipt does")


def _is_emptied(receipts: Receipts, archive: OfflineArchive, record: Document) -> bool:
    commit = commit_of(record)
    return commit is not None and lies_elsewhere(receipts, archive, archive.chain.link(link_of(commit)))


def incomplete(
    receipts: Receipts, archive: OfflineArchive, span: tuple[int, int], known_fences: KnownFences
) -> Iterator[tuple[str, DamagedError]]:
    """Yields the name of each commit of the span, and an error, that the records lack or hide, or that is
    foreign: what is read by the records would lack it, or it is not of this archive."""
    known = {it.name for it in archive.within(*span)}
    others = {it.name: it for it in archive.commits() if it.may_hold(*span) and it.name not in known}
    records, keys = receipts.get_all(others), archive.keys or Keys(is_strict=False)
    for name, commit in others.items():
        record = records.get(name, {})
        if record.get("kind") != "offline":
            found = unregistered(receipts, archive, [commit], known_fences)
            yield from ((name, error) for error in found.errors(archive))
            continue
        try:
            _check_hidden(receipts, archive, record, span, keys)
        except DamagedError as hidden:
            yield name, hidden
    named = {
        name: seal for name, seal in receipts.deleted_from().items() if name not in known | others.keys()
    }
    for name, error in unrecorded(receipts, named):
        commit_named = commit_at(name, 0, named[name])
        if commit_named is None or commit_named.may_hold(*span):
            yield name, error


def _check_hidden(
    receipts: Receipts, archive: OfflineArchive, record: Document, span: tuple[int, int], keys: Keys
) -> None:
    """Raises DamagedError where a record keeps a commit of the span from being found, and nothing sealed says
    that it has ended, or has been replaced."""
    if record.get("state") in (REPLACED, HELD):
        check_replaced(receipts, archive, record, keys)
        return
    commit = commit_of(record)
    assert commit is not None  # the store has it under that name
    if archive.manifest(commit).is_of_days(*span):
        raise record_fault(commit.name, "it does not say which days the commit holds readings of")
