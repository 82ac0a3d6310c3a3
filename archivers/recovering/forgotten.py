"""Adopts merges that this database has forgotten, since it was restored to an older state.

The commits that were merged are gone from the store, and receipts may still name them as current. All that
they held is in the commit that replaced them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.format.names import Commit
from bucketwise.archivers.recovering.commits import CommitRegistry
from bucketwise.archivers.run import ArchiveRun
from bucketwise.archivers.versions.superseded import Superseded
from bucketwise.archivers.writes.delete import compare_all
from bucketwise.buckets.bson.raw import Batch


class _MergedCommit(NamedTuple):
    """A commit that was merged."""

    manifest: Manifest
    is_registered: bool


class ForgottenMerges:
    """Registers them."""

    def __init__(self, work: ArchiveRun, archive: OfflineArchive, registry: CommitRegistry) -> None:
        self._work = work
        self._archive = archive
        self._registry = registry
        self._dropped = Superseded(archive)

    def finish(self, unknown: Sequence[Manifest], listed: dict[str, Commit]) -> None:
        """Drops the rest of the merged commits where some are gone that this database has not dropped: a run
        that it has forgotten was cut off while it dropped them."""
        ours = self._dropped_by_us() if any(it.replaces for it in unknown) else set()
        for manifest in unknown:
            gone = [name for name in manifest.replaces if name not in listed and name not in ours]
            if any(self._dropped.dropped(name) for name in gone):
                self._work.check()
                for name in listed.keys() & set(manifest.replaces):
                    self._archive.drop(self._archive.manifest(listed.pop(name)))

    def _dropped_by_us(self) -> set[str]:
        """Returns the commits that this database knows to be dropped, or to be dropped next."""
        receipts = self._registry.receipts
        return {*receipts.dropped(), *(it["_id"]["name"] for it in receipts.replaced())}

    def adopt(self, unknown: Sequence[Manifest], listed: set[str]) -> None:
        """Registers merged commits in place of the commits that they were merged from."""
        for manifest in sorted(unknown, key=lambda it: it.sequence):
            if not listed & set(manifest.replaces):
                roots = self._roots(manifest)
                if any(it.is_registered for it in roots):
                    self._adopt(manifest, roots)

    def _roots(self, manifest: Manifest) -> list[_MergedCommit]:
        """Returns the commits that were merged into one, in the order of its buckets; none where it was no
        merge."""
        known = self._registry.receipts.registered(manifest.replaces)
        found: list[_MergedCommit] = []
        for name in manifest.replaces:
            dropped = self._dropped.dropped(name)
            if dropped is None:
                return []
            is_known = name in known and known[name].seal == dropped.sha256
            deeper = [] if is_known else self._roots(dropped)
            found += deeper or [_MergedCommit(dropped, is_known)]
        return found if sum(it.manifest.buckets for it in found) == manifest.buckets else []

    def _adopt(self, manifest: Manifest, roots: Sequence[_MergedCommit]) -> None:
        self._work.check()
        live, at = [], 0
        for root in roots:
            end = at + root.manifest.buckets
            live.append(self._live(manifest, root, at, end))
            at = end
        self._registry.register(manifest, np.concatenate(live), is_new=True)
        for root in roots:
            if root.is_registered:
                self._registry.receipts.mark_dropped(root.manifest.commit)

    def _live(self, manifest: Manifest, root: _MergedCommit, start: int, end: int) -> NDArray[np.bool_]:
        """Returns which buckets of a root may be live."""
        if root.is_registered:
            return self._registry.receipts.live(root.manifest.commit, root.manifest.buckets)
        found = self._archive.buckets_at(manifest, np.arange(start, end))
        return np.concatenate([may_be_live(self._work, it.batch, is_forgotten=True) for it in found])


def may_be_live(work: ArchiveRun, copied: Batch, *, is_forgotten: bool) -> NDArray[np.bool_]:
    """Returns which buckets of a commit without a receipt may be live. With a forgotten commit, a live bucket
    that differs from its copy is an older one or another bucket, never a newer version."""
    live = np.ones(len(copied), dtype=np.bool_)
    if not work.measured:
        found = compare_all(work.database, work.policy, copied)
        live[[*found.gone, *found.changed] if is_forgotten else found.gone] = False
    return live
