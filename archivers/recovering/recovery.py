"""Recovery of an offline archive after a crash: commits are finished, undone, or adopted.

Each commit gets its receipt right after its manifest. A manifest without one is from a run that was cut off
there, or from one that had lost its lease: nothing was deleted because of it, and the next run adopts it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial
from typing import Any

import numpy as np
from pymongo.client_session import ClientSession

from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.format.names import Commit, commits
from bucketwise.archivers.holds import are_known
from bucketwise.archivers.records.deletions import latest
from bucketwise.archivers.records.heads import (
    CheckedHeads,
    Heads,
    check_all_present,
    check_heads,
    check_none_reappeared,
    note_repaired,
    read_heads,
    write_heads,
)
from bucketwise.archivers.records.holding import note_held
from bucketwise.archivers.records.receipt_checks import receipts_rolled_back
from bucketwise.archivers.records.receipt_files import move_old
from bucketwise.archivers.records.receipts import REPLACED, commit_of
from bucketwise.archivers.records.unregistered import Unregistered, unregistered
from bucketwise.archivers.recovering.checkpointing import make_due_checkpoint
from bucketwise.archivers.recovering.commits import CommitRegistry
from bucketwise.archivers.recovering.forgotten import ForgottenMerges, may_be_live
from bucketwise.archivers.run import ArchiveRun
from bucketwise.archivers.versions.superseded import Superseded
from bucketwise.archivers.writes.delete import units
from bucketwise.archivers.writes.held import may_cover
from bucketwise.buckets.fields.times import as_date, as_ms
from bucketwise.rollups.holds import Hold, Holds

Document = dict[str, Any]
_logger = logging.getLogger(__name__)

#: Receipts are moved by spans of this many milliseconds, counted from 1970, so that there are few files.
MONTH_MS = 30 * 24 * 3_600_000


class Recovery:
    """The recovery of a run, before it reads anything."""

    def __init__(self, work: ArchiveRun, archive: OfflineArchive, registry: CommitRegistry) -> None:
        self._work = work
        self._archive = archive
        self._registry = registry
        self._receipts = registry.receipts

    def run(self) -> None:
        """Finishes, undoes or adopts what earlier runs have left. Raises HaltedError where the archive is
        incomplete."""
        self._work.binding.check()
        checked = check_heads(self._receipts, self._archive, goes_on=True)
        note_repaired(self._receipts, checked.repaired)
        heads, self._work.state.heads = checked.heads, checked.manifests
        self._receipts.prepare()
        if self._work.state.is_clean and self._is_tail_known(checked):
            self._drop_replaced()
        else:
            self._work.state.is_clean = self._search_all(checked.manifests)
            heads = read_heads(self._receipts)  # it may have registered some
        if heads is not None:
            make_due_checkpoint(self._work, self._archive, heads)
        self._move_receipts()

    def _move_receipts(self) -> None:
        """Moves receipts of deletes that are old enough, a month of them at a time."""
        age = self._work.archive.move_receipts
        if age is not None:
            edge = as_ms(self._work.now - age)
            before = as_date(edge - edge % MONTH_MS)
            files = self._work.receipt_files
            move_old(self._receipts, files, before, self._registry.transaction)

    def _is_tail_known(self, checked: CheckedHeads) -> bool:
        """Returns whether the store holds no unregistered commit after the last registered one."""
        last = checked.heads.sequence if checked.heads else 0
        tail = {it.name for it in commits(self._archive.store, self._archive.policy.identity, last)}
        unknown = tail - checked.registered.keys()
        return self._receipts.registered(unknown).keys() == unknown

    def _search_all(self, heads: list[Manifest]) -> bool:
        """Lists all of the store, and registers or removes what runs have left that died. Returns whether
        nothing is left: files may be of forgotten runs, whose fences this database has yet to reach again.
        Raises DamagedError for what is not theirs; where the run adopts, commits that the database has
        forgotten are registered as well."""
        self._work.binding.check_lineage()
        check_none_reappeared(self._receipts, self._archive)
        listed = self._listed()
        found = self._found(listed)
        unknown = [*found.own, *found.newer]
        if self._work.adopts:
            self._adopt_merges(unknown, listed)
        for forgotten in check_all_present(self._receipts, self._archive, adopts=self._work.adopts):
            self._receipts.mark_dropped(forgotten.name)
        self._drop_replaced()
        is_all = self._archive.clear(
            self._work.fence, self._receipts.registered, self._receipts.parts, self._own_fences
        )
        kept = Superseded(self._archive)
        kept.remove(kept.unfinished(self._receipts.current))
        self._adopt_unknown(self._listed(), [*heads, *unknown])
        return is_all

    def _found(self, listed: dict[str, Commit]) -> Unregistered:
        """Returns the commits without a receipt. Raises DamagedError where one is neither a run's own nor to
        be adopted."""
        found = unregistered(self._receipts, self._archive, listed.values(), self._work.known_fences)
        for error in found.faults if self._work.adopts else found.errors(self._archive):
            raise error
        return found

    def _own_fences(self, fences: set[int]) -> Collection[int]:
        """Returns those of these fences whose files a run may remove; where it adopts, all."""
        return fences if self._work.adopts else self._work.known_fences(fences)

    def _listed(self) -> dict[str, Commit]:
        return {commit.name: commit for commit in self._archive.commits()}

    def _adopt_merges(self, unknown: list[Manifest], listed: dict[str, Commit]) -> None:
        """Adopts forgotten merges, before anything is dropped or reported missing, since they tell where
        commits went."""
        merges, heads = ForgottenMerges(self._work, self._archive, self._registry), read_heads(self._receipts)
        later = [it for it in unknown if heads is None or it.sequence > heads.sequence]
        merges.finish(later, listed)
        if heads is not None:
            merges.adopt(later, set(listed))

    def _drop_replaced(self) -> None:
        """Finishes exchanges by dropping replaced commits, the oldest first: only the manifest of a later one
        says what it replaced."""
        for receipt in self._without_held(self._droppable()):
            self._work.check()
            self._check_successor(receipt["replaced_by"])
            self._registry.drop_replaced(receipt)

    def _droppable(self) -> list[Document]:
        """Returns the receipts of replaced commits that no query can be reading any more, in the order of the
        chain."""
        delay, staying, found = self._work.archive.compact.delay, set[str | None](), []
        for receipt in sorted(self._receipts.in_state(REPLACED, "offline"), key=lambda it: it["sequence"]):
            is_read = "replaced_at" in receipt and self._work.now < receipt["replaced_at"] + delay
            if is_read or receipt["_id"]["name"] in staying:
                staying.add(receipt["replaced_by"])
            else:
                found.append(receipt)
        return found

    def _without_held(self, receipts: list[Document]) -> list[Document]:
        """Returns the receipts that no hold covers. The others stay until it is released."""
        if receipts and not are_known(self._work):
            return []
        held: dict[str, Hold] = {}

        def step(session: ClientSession) -> None:
            held.clear()
            for hold in Holds(self._work.database, self._work.policy.identity).active(session):
                held.update((it["_id"]["name"], hold) for it in receipts if self._is_covered(it, hold))
            if held:
                note_held(self._receipts, held, session)

        if receipts:
            self._registry.transaction(step)
        for name, hold in held.items():
            _logger.info("policy %s: %s stays: held by %s", self._work.policy.name, name, hold.name)
        return [it for it in receipts if it["_id"]["name"] not in held]

    def _is_covered(self, receipt: Document, hold: Hold) -> bool:
        span = as_ms(receipt["first"]), as_ms(receipt["last"]) + 1
        if "replaced_at" not in receipt or not hold.touches(*span):
            return False
        commit = commit_of(receipt)
        if commit is None or not self._archive.is_there(commit):
            return False
        return may_cover(hold, self._archive.manifest(commit), self._work.policy)

    def _check_successor(self, name: str | None) -> None:
        """Raises DamagedError where the commit that replaced another is registered, and its manifest or a
        file is gone, or damaged."""
        for commit in self._receipts.registered([name] if name else []).values():
            if not self._archive.is_there(commit):
                self._archive.raise_missing(commit)
            self._archive.check_stored(self._archive.manifest(commit))

    def _adopt_unknown(self, listed: dict[str, Commit], last: list[Manifest]) -> None:
        """Registers the commits that have no receipt, each after those that came before it; `last` are those
        of the heads, and those that had none before. Where the archive names receipts that are missing,
        writes one that says so."""
        found = self._found(listed)
        manifests, own = [*found.own, *found.newer], {it.link for it in found.own}
        chain, heads = self._archive.chain, read_heads(self._receipts)
        if heads is None and listed:  # all receipts are lost
            last = chain.leaves(manifests)
            sequence = max(it.sequence for it in last)
            links = [it.link for it in last]
            self._registry.transaction(partial(write_heads, self._receipts, sequence, links))
            heads = Heads(sequence, tuple(links), frozenset())
        newest = latest([*last, *manifests])
        lost = newest if newest is not None and self._work.deletions.is_behind(newest) else None
        if lost is not None and not self._work.adopts:
            raise receipts_rolled_back(lost.sequence)
        floor = min((it.sequence for it in manifests), default=0)
        before = chain.walk(heads.links, lost=heads.lost, floor=floor) if heads and manifests else []
        covered = {it.link for it in before if isinstance(it, Manifest)}
        for manifest in sorted(manifests, key=lambda it: (it.sequence, it.fence, it.commit)):
            self._work.check()
            if listed.keys() & set(manifest.replaces) or not self._archive.has_files(manifest):
                # the exchange wasn't finished; or it came from a run that had lost its lease, when the files
                # had been cleared already
                self._archive.drop(manifest)
            else:
                is_forgotten = lost is not None or manifest.link not in own
                self._adopt(manifest, manifest.link in covered, is_forgotten)
        if lost is not None:
            self._registry.transaction(partial(self._work.deletions.record_gap, lost))

    def _adopt(self, manifest: Manifest, is_covered: bool, is_forgotten: bool) -> None:
        """Registers a commit with those of its buckets that are live, and takes out those that later runs
        have archived in other commits."""
        copied = self._archive.sections(manifest)
        found = [may_be_live(self._work, it.batch, is_forgotten=is_forgotten) for it in copied]
        live = np.concatenate(found)
        self._registry.register(manifest, live, is_new=not is_covered, deleted=int((~live).sum()))
        equal, newer = self._in_other_commits(manifest)
        if equal or newer:
            self._registry.amend(manifest, sorted([*equal, *newer]), newer)

    def _in_other_commits(self, manifest: Manifest) -> tuple[list[int], list[int]]:
        """Returns the buckets of a commit that another one holds unchanged; and those that a later run has
        archived in a newer version: nothing was deleted because of this commit, so these changed while they
        were live."""
        others = self._archive.manifests(as_ms(manifest.first), as_ms(manifest.last) + 1)
        others = [other for other in others if other.commit != manifest.commit]
        known = self._receipts.registered(other.commit for other in others)
        equal, newer = list[int](), list[int]()
        for copied in self._archive.sections(manifest) if others else ():
            there, later = set[bytes](), set[bytes]()
            mine, names = units(self._work.policy, copied.batch), copied.batch.main.raw_ids
            for other in others:
                is_later = other.commit in known and other.fence > manifest.fence and not self._work.measured
                for held in self._archive.sections(other):
                    there |= set(mine).intersection(units(self._work.policy, held.batch))
                    later |= set(names).intersection(held.batch.main.raw_ids if is_later else ())
            at = copied.positions.tolist()
            equal += [at[i] for i, unit in enumerate(mine) if unit in there]
            newer += [at[i] for i, it in enumerate(names) if it in later and mine[i] not in there]
        return equal, newer
