"""Tells apart the commits that lie in the store and have no receipt.

Some are a run's own, which died before it wrote their receipts: the database knows their seals. Others go on
from what the database has recorded, and it has forgotten them, since it was restored from a backup: `adopt`
registers them. Whatever else lies there is foreign. No reader uses any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from pymongo import UpdateOne

from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.chain import Chain
from bucketwise.archivers.format.manifest import DamagedError, Link, Manifest
from bucketwise.archivers.format.names import Commit
from bucketwise.archivers.records.heads import commit_of_link, read_heads
from bucketwise.archivers.records.receipts import Receipts
from bucketwise.archivers.stores.base import NotFound

#: The document, and how many seals it keeps at most.
NAME, MOST = "begun", 100


def begin(receipts: Receipts, manifest: Manifest) -> None:
    """Records that a manifest is about to be written."""
    seals = {"$each": [manifest.sha256], "$slice": -MOST}
    receipts.update(NAME, {"$set": {"kind": NAME}, "$push": {"seals": seals}})


def end_update(receipts: Receipts, manifest: Manifest) -> UpdateOne:
    """Returns the update by which a manifest that gets its receipt is no longer one that was only begun."""
    return UpdateOne({"_id": receipts.identity(NAME)}, {"$pull": {"seals": manifest.sha256}})


def begun(receipts: Receipts) -> frozenset[str] | None:
    """Returns the seals of manifests that were begun, and have no receipt; None where no run has recorded any
    yet."""
    found = receipts.get(NAME)
    return None if found is None else frozenset(found.get("seals", ()))


KnownFences = Callable[[Collection[int]], Collection[int]]
_ADOPT = (
    "Where this database was restored from a backup on purpose, `bucketwise adopt` verifies and registers "
    "it; else find out who wrote it"
)
_FOREIGN = "It is not used. Find out who put it there, and move its files away"


@dataclass
class Unregistered:
    """Commits without a receipt. `own`: of runs that died; `newer`: that the database has forgotten;
    `faults`: an error for each of the others."""

    own: list[Manifest] = field(default_factory=list)
    newer: list[Manifest] = field(default_factory=list)
    faults: list[DamagedError] = field(default_factory=list)

    def errors(self, archive: OfflineArchive) -> Iterator[DamagedError]:
        """Yields an error for each that is not a run's own."""
        for manifest in self.newer:
            what = "this database has no receipt of the commit, which was made after what it has recorded"
            yield DamagedError("commit-unregistered", archive.place(manifest.name), what, _ADOPT)
        yield from self.faults


def unregistered(
    receipts: Receipts, archive: OfflineArchive, listed: Iterable[Commit], known_fences: KnownFences
) -> Unregistered:
    """Returns those of these commits that have no receipt. `known_fences` tell whose they are where no run
    has recorded yet which manifests it was about to write."""
    there = {it.name: it for it in listed}
    seals = begun(receipts)  # before the receipts: a concurrent run may write one meanwhile
    known, found = receipts.registered(there), Unregistered()
    read: list[Manifest] = []
    for name in sorted(there.keys() - known.keys()):
        try:
            read.append(archive.manifest(there[name]))
        except NotFound:
            continue  # a concurrent run has dropped it since it was listed
        except DamagedError as error:
            found.faults.append(error)
    if not read:
        return found
    heads = read_heads(receipts)
    lineage = _Lineage(receipts, archive.chain, None if heads is None else heads.links)
    if seals is None:
        fences = known_fences({it.fence for it in read})
        seals = frozenset(it.sha256 for it in read if it.fence in fences)
    for manifest in read:
        if manifest.sha256 in seals:
            found.own.append(manifest)
        elif lineage.holds(manifest):
            found.newer.append(manifest)
        else:
            what = "no run of this database has made this commit, nor does it go on from what those made"
            found.faults.append(DamagedError("commit-foreign", archive.place(manifest.name), what, _FOREIGN))
    return found


def check_own(receipts: Receipts, archive: OfflineArchive, known_fences: KnownFences) -> None:
    """Raises DamagedError where the store holds a commit, or a file named for one, that no run of this
    database has left there."""
    for error in unregistered(receipts, archive, archive.commits(), known_fences).errors(archive):
        raise error
    files = [key for key, commit in archive.unlisted() if commit is not None]
    for error in archive.foreign(files, known_fences).values():
        raise error


@dataclass
class _Lineage:
    """What goes on from the heads that are recorded; where none are, from nothing."""

    receipts: Receipts
    chain: Chain
    heads: Collection[Link] | None
    holding: dict[Link, bool] = field(default_factory=dict)

    def holds(self, manifest: Manifest) -> bool:
        """Returns whether all that a manifest goes on from leads to what is recorded."""
        waiting = [manifest]
        while waiting:
            here = waiting[-1]
            unknown = [it for it in here.previous if it not in self.holding]
            deeper = [it for it in map(self._step, unknown) if it is not None]
            waiting += deeper
            if not deeper:
                waiting.pop()
                self.holding[here.link] = self._leads(here)
        return self.holding[manifest.link]

    def _leads(self, manifest: Manifest) -> bool:
        """Returns whether it goes on from what is recorded. An adoption that died may have recorded heads and
        not yet their receipts."""
        if self.heads is not None and manifest.link in self.heads:
            return True
        if not manifest.previous:
            return self.heads is None
        return all(self.holding[it] for it in manifest.previous)

    def _step(self, link: Link) -> Manifest | None:
        """Returns the manifest that has to be looked at before a link can be judged; None once it is."""
        if self._is_recorded(link):
            self.holding[link] = True
            return None
        try:
            return self.chain.link(link)
        except DamagedError:
            self.holding[link] = False
            return None

    def _is_recorded(self, link: Link) -> bool:
        if self.heads is not None and link in self.heads:
            return True
        commit = commit_of_link(link)
        found = self.receipts.get(commit.name) or {}
        return found.get("seal") == link.sha256
