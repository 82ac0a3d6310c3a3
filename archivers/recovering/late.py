"""Takes away what runs have left in copies of the store alone, after others had taken their lease.

A run that is stopped in the middle of a write, and goes on once another one has brought the copies up to the
store and cleared it, puts its object into a copy, and no journal says so. What the store would be cleared of
goes from the copy as well. What the store may have lost stays there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass

from bucketwise.archivers import decisions
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.names import commit_of_file, commit_of_manifest, link_of
from bucketwise.archivers.markers import step_of
from bucketwise.archivers.mirroring.changes import catch_up
from bucketwise.archivers.mirroring.places import copied, marker_fault
from bucketwise.archivers.records.changes import CopyRecords
from bucketwise.archivers.records.heads import read_heads
from bucketwise.archivers.recovering.checkpoints import outdated
from bucketwise.archivers.run import ArchiveRun
from bucketwise.archivers.stores.base import StoreError
from bucketwise.archivers.stores.copied import CopiedStore, Copy, naming
from bucketwise.archivers.versions.superseded import Superseded
from bucketwise.config.errors import HaltedError


def clear_copies(work: ArchiveRun, archive: OfflineArchive) -> bool:
    """Clears each copy that has been filled, or is being filled, once the store is settled. Returns whether
    all could be looked at. Raises StoreError, or HaltedError, where one that is required can't be."""
    if (store := copied(work)) is None:
        return True
    known, folder, is_all = CopyRecords(work.receipts).known(), f"{work.policy.identity}/", True
    named = {it.name: it for it in store.copies if it.name in known and known[it.name].url == it.store.url}
    listed: dict[str, set[str]] = {}

    @contextmanager
    def looking(copy: Copy) -> Iterator[None]:
        nonlocal is_all
        try:
            with naming(copy):
                yield
        except (StoreError, HaltedError) as error:
            if copy.required:
                raise
            work.progress(f"copy {copy.name} is left out: {error}", 0)
            is_all = False

    for copy in named.values():  # before the store: what is put meanwhile is in both
        with looking(copy):
            listed[copy.name] = {it.key for it in copy.store.list(folder)}
    there = {it.key for it in store.first.list(folder)} if listed else set()
    for name, found in listed.items():
        with looking(named[name]):
            late = _LateObjects(work, archive, store, named[name], found, there)
            is_all &= late.clear(is_filled=known[name].filled is not None)
    return is_all


@dataclass
class _LateObjects:
    """The objects that runs without their lease have left in one copy."""

    work: ArchiveRun
    archive: OfflineArchive
    store: CopiedStore
    copy: Copy
    found: Set[str]  # the keys of the copy
    there: Set[str]  # the keys of the first store

    def clear(self, *, is_filled: bool) -> bool:
        """Removes them; from a copy that is not required when the run ends. Returns whether the copy is
        there: one that is not mounted has nothing."""
        if not self.found:
            return not self.there
        if fault := marker_fault(self.work, self.copy, is_new=not is_filled):
            raise fault
        _, going = decisions.outstanding(list(CopyRecords(self.work.receipts).changes(self.copy.name)))
        if late := sorted(set(self._late(self.found - self.there - going))):
            self.work.check()
            self.store.journal.begin([self.copy.name], late, deleted=True)
            if self.copy.required:
                catch_up(self.work, self.store, self.copy)
        return True

    def _late(self, alone: Set[str]) -> Iterator[str]:
        """Yields their keys, some of them twice. `alone`: what the copy has alone, and does not lose
        anyway."""
        if not alone:
            return
        policy, heads = self.work.policy.identity, read_heads(self.work.receipts)
        yield from self._of_commits(alone)
        yield from self._of_versions(alone)
        yield from outdated(policy, heads.checkpoint if heads else None, alone)
        newest = max((it.number for key in self.there if (it := step_of(policy, key))), default=0)
        yield from (key for key in alone if (it := step_of(policy, key)) and it.number < newest)

    def _of_commits(self, alone: Set[str]) -> Iterator[str]:
        """Yields those of files and manifests. A manifest goes that was moved in the store, or of whose
        commit no file is left; another one the store may have lost, with the files of its commit."""
        policy, receipts = self.work.policy.identity, self.work.receipts
        anywhere = self.found | self.there
        moved = {link[0] for link in (link_of(policy, key) for key in self.there) if link}
        filed = {it.name for it in (commit_of_file(policy, key) for key in anywhere) if it}
        manifests = (commit_of_manifest(policy, key) for key in self.found)
        standing = {it.name for it in manifests if it and it.name in filed - moved}
        named = ((key, commit_of_file(policy, key) or commit_of_manifest(policy, key)) for key in alone)
        objects = [(key, it.name, it.fence) for key, it in named if it is not None]
        late = self._left(objects, standing | receipts.registered({it[1] for it in objects}).keys())
        if late and set(receipts.parts()) <= anywhere:  # else one may be a part, renamed
            yield from late

    def _of_versions(self, alone: Set[str]) -> Iterator[str]:
        """Yields those of files of versions that nothing refers to, or that the store has by another name."""
        aside = Superseded(self.archive)
        files = {it.key: it for key in alone if (it := aside.file_of(key)) is not None}
        same = {
            (it.commit.name, it.sha256)
            for it in map(aside.file_of, self.there & self.found)
            if it is not None
        }
        current = self.work.receipts.current([it.commit.name for it in files.values()])
        objects = [(key, it.commit.name, it.fence) for key, it in files.items() if it.fence is not None]
        for it in map(files.__getitem__, self._left(objects, frozenset())):
            is_current = it.commit.name in current
            if (it.commit.name, it.sha256) in same or aside.is_unused(it, is_current=is_current):
                yield it.key

    def _left(self, objects: Sequence[tuple[str, str, int]], staying: Set[str]) -> list[str]:
        """Returns the keys of those of these objects (key, commit, fence) that may be cleared."""
        own = self.work.known_fences({fence for _, _, fence in objects})
        return decisions.left_in_copy(objects, self.work.fence, staying=staying, own=own)
