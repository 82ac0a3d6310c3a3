"""Recovery of an offline archive after a crash: commits are finished, undone, or adopted.

Each commit gets its receipt right after its manifest. A manifest without one is from a run that was cut off
there, or from one that had lost its lease: nothing was deleted because of it, and the next run adopts it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Iterable, Iterator, Sequence, Set
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pymongo.client_session import ClientSession

from bucketwise.archivers import decisions
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.manifest import Manifest, origin_spans
from bucketwise.archivers.format.names import Commit, commits, day_number, manifest_key
from bucketwise.archivers.mirroring.changes import copy_to_required
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
from bucketwise.archivers.records.holds import note_held
from bucketwise.archivers.records.receipt_checks import receipts_rolled_back
from bucketwise.archivers.records.receipt_files import move_old
from bucketwise.archivers.records.receipts import HELD, REPLACED
from bucketwise.archivers.records.registry import Unregistered, unregistered
from bucketwise.archivers.recovering.checkpoints import make_due_checkpoint
from bucketwise.archivers.recovering.commits import CommitRegistry
from bucketwise.archivers.recovering.late import clear_copies
from bucketwise.archivers.run import ArchiveRun
from bucketwise.archivers.versions.superseded import Superseded
from bucketwise.archivers.writes import compare_all, may_cover, units
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.fields.times import DAY_MS, as_date, as_ms
from bucketwise.rollups.holds import Hold, Holds
from bucketwise.rollups.progress import note_left

_logger = logging.getLogger(__name__)


class _MergedCommit(NamedTuple):
    """A commit that was merged. `live`: which of its buckets may be live by its receipt; None without one."""

    manifest: Manifest
    live: NDArray[np.bool_] | None

    @property
    def is_registered(self) -> bool:
        """Returns whether it has a receipt."""
        return self.live is not None


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
        for manifest in self._cut_off(unknown, listed):
            self._work.check()
            for name in listed.keys() & set(manifest.replaces):
                self._archive.drop(self._archive.manifest(listed.pop(name)))

    def _cut_off(self, unknown: Sequence[Manifest], listed: Container[str]) -> Iterator[Manifest]:
        """Yields the merged commits of which some that they replaced were dropped by a forgotten run."""
        ours = self._dropped_by_us() if any(it.replaces for it in unknown) else set()
        for manifest in unknown:
            gone = [name for name in manifest.replaces if name not in listed and name not in ours]
            if any(self._dropped.dropped(name) for name in gone):
                yield manifest

    def _dropped_by_us(self) -> set[str]:
        """Returns the commits that this database knows to be dropped, or to be dropped next."""
        receipts = self._registry.receipts
        return {*receipts.dropped(), *(it["_id"]["name"] for it in receipts.replaced())}

    def adopt(self, unknown: Sequence[Manifest], listed: set[str]) -> None:
        """Registers merged commits in place of the commits that they were merged from."""
        for manifest, roots in self._adoptable(unknown, listed):
            self._adopt(manifest, roots)

    def _adoptable(
        self, unknown: Sequence[Manifest], listed: Set[str]
    ) -> Iterator[tuple[Manifest, list[_MergedCommit]]]:
        for manifest in sorted(unknown, key=lambda it: it.sequence):
            if not listed & set(manifest.replaces):
                roots = self._roots(manifest)
                if any(it.is_registered for it in roots):
                    yield manifest, roots

    def taken_over(self, unknown: Sequence[Manifest], listed: Set[str]) -> set[str]:
        """Returns the registered commits in whose place `finish` and `adopt` would register others. Changes
        nothing."""
        there = set(listed).difference(*(it.replaces for it in self._cut_off(unknown, listed)))
        merged = (root for _, roots in self._adoptable(unknown, there) for root in roots)
        return {it.manifest.commit for it in merged if it.is_registered}

    def _roots(self, manifest: Manifest) -> list[_MergedCommit]:
        """Returns the commits that one was made of, less buckets that had changed; none where it is unknown,
        or some left that were deleted because of their commit."""
        known = self._registry.receipts.registered(manifest.replaces)
        found: list[_MergedCommit] = []
        for name in manifest.replaces:
            dropped = self._dropped.dropped(name)
            if dropped is None:
                return []
            is_known = name in known and known[name].seal == dropped.sha256
            deeper = [] if is_known else self._roots(dropped)
            live = self._registry.receipts.live(name, dropped.buckets) if is_known else None
            found += deeper or [_MergedCommit(dropped, live)]
        counts = {first: end - start for first, start, end in origin_spans(manifest)}
        for root in found:
            for first, start, end in origin_spans(root.manifest):
                left = end - start - counts.pop(first, 0)
                if left < 0 or (left > 0 and root.live is not None and not root.live[start:end].all()):
                    return []
        return [] if counts else found

    def _adopt(self, manifest: Manifest, roots: Sequence[_MergedCommit]) -> None:
        self._work.check()
        known = {
            first: root.live[start:end]
            for root in roots
            if root.live is not None
            for first, start, end in origin_spans(root.manifest)
        }
        live = [self._live(manifest, known.get(first), *span) for first, *span in origin_spans(manifest)]
        replaced = [it.manifest.commit for it in roots if it.is_registered]
        self._registry.register(manifest, np.concatenate(live), is_new=True, replaced=replaced)
        for root in roots:
            if root.is_registered:
                self._registry.receipts.mark_dropped(root.manifest.commit)

    def _live(
        self, manifest: Manifest, known: NDArray[np.bool_] | None, start: int, end: int
    ) -> NDArray[np.bool_]:
        """Returns which of the buckets at these positions may be live. `known`: what a receipt says of those
        that were archived with them, the same of all where some have left since."""
        if known is not None:
            return known[: end - start]
        found = self._archive.buckets_at(manifest, np.arange(start, end))
        return np.concatenate([may_be_live(self._work, it.batch, is_forgotten=True) for it in found])


def may_be_live(work: ArchiveRun, copied: Batch, *, is_forgotten: bool) -> NDArray[np.bool_]:
    """Returns which buckets of a commit without a receipt may be live."""
    live = np.ones(len(copied), dtype=np.bool_)
    if not work.measured:
        found = compare_all(work.database, work.policy, copied)
        live[decisions.no_longer_live(found, is_forgotten=is_forgotten)] = False
    return live


Document = dict[str, Any]

#: Receipts are moved by spans of this many milliseconds, counted from 1970, so that there are few files.
MONTH_MS = 30 * 24 * 3_600_000


def _later_than(heads: Heads | None, unknown: Iterable[Manifest]) -> list[Manifest]:
    return [it for it in unknown if heads is None or it.sequence > heads.sequence]


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
        if self._work.state.is_clean and not self._work.adopts and self._is_tail_known(checked):
            self._drop_replaced()
        else:
            self._work.state.is_clean = self._search_all(checked.manifests)
            heads = read_heads(self._receipts)  # it may have registered some
        if heads is not None:
            make_due_checkpoint(self._work, self._archive, heads)
        self._move_receipts()

    def check_adoptable(self) -> None:
        """Raises DamagedError where `run` of a run that adopts would, since a commit is missing whose
        originals were deleted. Changes nothing."""
        check_none_reappeared(self._receipts, self._archive)
        listed, heads = self._listed(), read_heads(self._receipts)
        found = self._found(listed)
        later = _later_than(heads, [*found.own, *found.newer])
        merges = ForgottenMerges(self._work, self._archive, self._registry)
        merged = merges.taken_over(later, listed.keys()) if heads is not None else ()
        check_all_present(self._receipts, self._archive, adopts=True, merged=merged)

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
        """Lists all of the store and of its copies, and registers or removes what runs have left that died.
        Returns whether nothing is left: files may be of forgotten runs, whose fences this database has yet to
        reach again, and a copy that is not required may be out of reach.
        Raises DamagedError for what is not theirs; where the run adopts, commits that the database has
        forgotten are registered as well."""
        self._work.binding.check_lineage()
        check_none_reappeared(self._receipts, self._archive)
        listed = self._listed()
        found = self._found(listed)
        unknown = [*found.own, *found.newer]
        if self._work.adopts:
            self._work.check()
            self._note_left(unknown, listed)
            self._adopt_merges(unknown, listed)
        for forgotten in check_all_present(self._receipts, self._archive, adopts=self._work.adopts):
            self._receipts.mark_dropped(forgotten.name)
        if self._work.adopts:
            self._take_merges_back(listed)
        self._drop_replaced()
        is_all = self._archive.clear(
            self._work.fence, self._receipts.registered, self._receipts.parts, self._own_fences
        )
        superseded = Superseded(self._archive)
        superseded.clear_unfinished(self._work.fence, self._receipts.current, self._own_fences)
        self._adopt_unknown(self._listed(), [*heads, *unknown])
        return clear_copies(self._work, self._archive) and is_all

    def _note_left(self, unknown: Sequence[Manifest], listed: Container[str]) -> None:
        """Notes that what this database has forgotten is to be rolled up, and what it takes for archived and
        another one has taken out."""
        taken = [it for it in self._receipts.commits() if it.name not in listed]
        spans = [(as_ms(it.first), as_ms(it.last) + 1) for it in unknown]
        spans += [(day_number(it.first) * DAY_MS, (day_number(it.last) + 1) * DAY_MS) for it in taken]
        note_left(self._work.database, self._work.policy, spans)

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
        later = _later_than(heads, unknown)
        merges.finish(later, listed)
        if heads is not None:
            merges.adopt(later, set(listed))

    def _drop_replaced(self) -> None:
        """Finishes exchanges by dropping replaced commits, the oldest first: only the manifest of a later one
        says what it replaced."""
        replaced = {it["_id"]["name"]: it for it in self._receipts.replaced()}
        held = {name for name, it in replaced.items() if it["state"] == HELD}
        due = partial(
            decisions.droppable, replaced.values(), self._work.now, self._work.archive.compact.delay
        )
        held |= self._held(due(held))
        for receipt in due(held):
            self._work.check()
            self._registry.check_standing(receipt, replaced)
            self._registry.drop_replaced(receipt)

    def _held(self, receipts: Sequence[Document]) -> set[str]:
        """Returns the names of the commits that holds cover, and notes it. They stay until these are
        released."""
        if receipts and self._work.damage_of_holds():
            return {it["_id"]["name"] for it in receipts}
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
        return set(held)

    def _is_covered(self, receipt: Document, hold: Hold) -> bool:
        span = as_ms(receipt["first"]), as_ms(receipt["last"]) + 1
        if "replaced_at" not in receipt or not hold.touches(*span):
            return False
        manifest = self._registry.to_drop(receipt)
        return manifest is not None and may_cover(hold, manifest, self._work.policy)

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
            if decisions.is_unfinished(manifest.replaces, listed, partial(self._archive.has_files, manifest)):
                self._archive.drop(manifest)
            else:
                is_own = manifest.link in own
                self._adopt(manifest, manifest.link in covered, is_own, lost is not None or not is_own)
        if lost is not None:
            self._registry.transaction(partial(self._work.deletions.record_gap, lost))

    def _take_merges_back(self, listed: dict[str, Commit]) -> None:
        """Registers commits again that were merged into one that another database has dropped as unfinished:
        there they count, and what that one held lies nowhere else."""
        merged = self._receipts.in_state({"$in": [REPLACED, HELD]}, "offline")
        there = {it["_id"]["name"]: it["replaced_by"] for it in merged if it["_id"]["name"] in listed}
        dropped = self._receipts.dropped()
        for manifest in [self._archive.manifest(listed[name]) for name, it in there.items() if it in dropped]:
            self._work.check()
            self._adopt(manifest, is_covered=True, is_own=False, is_forgotten=True)

    def _adopt(self, manifest: Manifest, is_covered: bool, is_own: bool, is_forgotten: bool) -> None:
        """Registers a commit with those of its buckets that are live, and takes out those that later runs
        have archived in other commits. Its manifest may have come to the store when no copy waited for it."""
        key = manifest_key(self._archive.policy.identity, manifest.sequence, manifest.commit)
        copy_to_required(self._work, key)
        sections = self._archive.sections(manifest)
        found = [may_be_live(self._work, it.batch, is_forgotten=is_forgotten) for it in sections]
        live = np.concatenate(found)
        self._registry.register(manifest, live, is_new=not is_covered, deleted=int((~live).sum()))
        equal, newer = self._in_other_commits(manifest, is_own=is_own)
        if equal or newer:
            self._registry.amend(manifest, sorted([*equal, *newer]), newer)

    def _in_other_commits(self, manifest: Manifest, *, is_own: bool) -> tuple[list[int], list[int]]:
        """Returns the buckets of a commit that another one holds unchanged; and those that a later run has
        archived in a newer version: nothing was deleted because of a commit of a run of this database
        (`is_own`), so these changed while they were live."""
        others = self._archive.manifests(as_ms(manifest.first), as_ms(manifest.last) + 1)
        others = [other for other in others if other.commit != manifest.commit]
        known = self._receipts.registered(other.commit for other in others)
        equal, newer, may_be_later = list[int](), list[int](), is_own and not self._work.measured
        for section in self._archive.sections(manifest) if others else ():
            there, later = set[bytes](), set[bytes]()
            names = section.batch.main.raw_ids
            mine = list(zip(names, units(self._work.policy, section.batch), strict=True))
            here = {unit for _, unit in mine}
            for other in others:
                is_later = other.commit in known and other.fence > manifest.fence and may_be_later
                for held in self._archive.sections(other):
                    there |= here.intersection(units(self._work.policy, held.batch))
                    later |= set(names).intersection(held.batch.main.raw_ids if is_later else ())
            same, changed = decisions.held_elsewhere(mine, there, later)
            equal += section.positions[same].tolist()
            newer += section.positions[changed].tolist()
        return equal, newer
