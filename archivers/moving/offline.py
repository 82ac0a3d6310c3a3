"""The offline archive in a run: copies, commits and deletes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bucketwise.archivers import decisions
from bucketwise.archivers.context import NOT_ROLLED_UP
from bucketwise.archivers.format.archive import Positions, SectionBuckets
from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.format.names import Commit
from bucketwise.archivers.format.writing import ColdCommit, Maker
from bucketwise.archivers.moving.copies import OLDER, CopiedBuckets, Copies, KnownCopies, OlderCopies
from bucketwise.archivers.records.receipts import commit_of
from bucketwise.archivers.recovering.commits import CommitRegistry
from bucketwise.archivers.recovering.recovery import Recovery
from bucketwise.archivers.run import ArchiveRun, DryRun
from bucketwise.archivers.versions.history import OfflineHistories
from bucketwise.archivers.versions.superseded import still_live
from bucketwise.archivers.writes import chunks, compare_all, same_id, units
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.columns import Series
from bucketwise.buckets.decoding.decode import BucketSet, decode
from bucketwise.buckets.fields.times import as_ms
from bucketwise.buckets.models import timeseries
from bucketwise.buckets.phases import phase
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.due import Spans

Indices = NDArray[np.int64]


class OfflineRun:
    """The `Archiver` of an offline archive."""

    def __init__(self, work: ArchiveRun) -> None:
        self._work = work
        self._receipts = work.receipts
        self._archive = archive = work.offline(work.keys)
        timeseries_options = None
        if work.measured:
            timeseries_options = timeseries.timeseries_options(work.database, work.policy.collection)
        maker = Maker(work.database.name, work.fence, work.now, timeseries_options)
        self._made: set[str] = set()  # the commits of this run
        self._copied = CopiedBuckets()
        self._known = KnownCopies(work)
        self._older = OlderCopies(work, archive, self._known)
        self._registry = CommitRegistry(work, self._archive, maker)
        self._copies = Copies(self._archive, maker, work.executor, work.check)

    def recover(self) -> None:
        """Settles what a crash has left, once a run."""
        if not self._work.state.is_recovered:
            Recovery(self._work, self._archive, self._registry).run()
            self._work.state.is_recovered = True

    def check_adoptable(self) -> None:
        """Raises DamagedError where `recover` would, of a run that adopts. Changes nothing."""
        Recovery(self._work, self._archive, self._registry).check_adoptable()

    def settle(self, start_ms: int, end_ms: int) -> None:
        """Deletes buckets of earlier commits that end within [start, end), milliseconds, and may go now."""
        if self._work.kept:
            return
        for manifest in self._open():
            if as_ms(manifest.last) < start_ms or as_ms(manifest.first) >= end_ms:
                continue
            due = self._older.without(manifest, self._due(manifest, start_ms, end_ms))
            if len(due) and self._is_rolled_up(manifest) and (changed := self._delete(manifest, due)):
                self._amend(manifest, changed)  # and this run finds the newer ones as it goes on

    def _due(self, manifest: Manifest, start_ms: int, end_ms: int) -> Positions:
        """Returns the live buckets of a commit that end within [start, end), and may go."""
        live, due = self._receipts.live(manifest.commit, manifest.buckets), [np.arange(0)]
        for held in self._archive.buckets_at(manifest, np.flatnonzero(live)):
            archived_by = manifest.archived_policy
            decoded = decode(held.batch, archived_by)
            is_due = self._work.is_due(decoded, archived_by.series_names)
            ending = decoded.units[(decoded.last >= start_ms) & (decoded.last < end_ms) & is_due]
            due.append(held.positions[ending[self._work.movable(held.batch.take(ending))]])
        return np.sort(np.concatenate(due))

    def _open(self) -> list[Manifest]:
        """Returns the commits whose grace is over and that hold live buckets, the oldest first: where a
        bucket has moved to another day, its older copy has to leave before it is deleted because of a newer
        one."""
        open_ones = self._receipts.in_state("open", "offline")
        found = [commit_of(it) for it in open_ones if not self._work.in_grace(it["copied"])]
        known = [self._archive.current(commit) for commit in found if commit is not None]
        known = [it for it in known if not self._work.in_grace(it.newest.created)]  # as the manifest says
        return sorted(known, key=lambda it: (it.oldest.sequence, it.oldest.fence))

    def misfit(self, series: Series) -> tuple[str, object] | None:
        """Returns the field and value of a series that parts can't hold; None where they can."""
        return self._archive.misfit(series)

    def not_copied(self, buckets: BucketSet, first_ms: int, last_ms: int) -> Indices:
        """Returns the buckets that are not copied yet. Where one has changed since it was copied, takes its
        old copy out of the archive."""
        batch = buckets.batch
        earlier = self._earlier(first_ms, last_ms)
        held = self._known.held(batch, [commit.name for commit in earlier])
        others = self._archive.manifests(
            first_ms, last_ms + 1, [commit for commit in earlier if commit.name not in held.commits]
        )
        others += self._moved_from(
            batch.take(np.flatnonzero(~held.buckets)), {commit.name for commit in earlier}
        )
        found = self._not_held(buckets, others) if others else np.arange(len(batch))
        found = found[~held.buckets[found]]
        return found[~self._copied_in_this_run(batch, first_ms, last_ms)[found]]

    def _earlier(self, first_ms: int, last_ms: int) -> list[Commit]:
        """Returns the commits of earlier runs that may hold something of the range."""
        found = self._archive.within(first_ms, last_ms + 1)
        return [commit for commit in found if commit.name not in self._made]

    def _moved_from(self, batch: Batch, earlier: set[str]) -> list[Manifest]:
        """Returns other commits that hold live copies of these buckets: where one has moved in time, both
        copies would count once it is deleted, by a run or by somebody else. Where nothing is deleted, all
        commits have live copies: `finish` looks at those that the run has met."""
        if self._work.kept or not len(batch):
            return []
        names, others = {same_id(raw_id) for raw_id in batch.main.raw_ids}, earlier | self._made
        found = [it for it in self._receipts.in_state("open", "offline") if it["_id"]["name"] not in others]
        commits = [commit_of(it) for it in found if self._known.may_hold(it, batch)]
        manifests = [self._archive.current(it) for it in commits if it is not None]
        return [it for it in manifests if self._has_live(it, names)]

    def _has_live(self, manifest: Manifest, names: set[bytes]) -> bool:
        live = np.flatnonzero(self._receipts.live(manifest.commit, manifest.buckets))
        copies = (
            raw_id for it in self._archive.buckets_at(manifest, live) for raw_id in it.batch.main.raw_ids
        )
        return any(same_id(raw_id) in names for raw_id in copies)

    def _copied_in_this_run(self, batch: Batch, first_ms: int, last_ms: int) -> NDArray[np.bool_]:
        """Returns the buckets that this run has copied already, and reads again since they have grown. A
        second copy would count twice what both hold. The first copy is taken out when its commit is settled;
        where deletes wait, or it is settled already, the next run does so. Where the bucket has been deleted
        meanwhile, the first copy counts."""
        waiting, report = self._copied, self._work.report
        staying = waiting.staying(batch, first_ms, last_ms)
        met = staying | waiting.unsettled(batch, first_ms, last_ms)
        gone = waiting.deleted_by_others(batch, first_ms, last_ms) & ~met
        reported = met if self._waits else staying  # the others are checked when their own copy is committed
        report.leave(-int(reported.sum()), self._waits or NOT_ROLLED_UP)  # each is reported once
        report.change(int((reported | gone).sum()))
        return met | gone

    def _not_held(self, buckets: BucketSet, others: list[Manifest]) -> Indices:
        held: set[bytes] = set()
        batch = buckets.batch
        spans = Spans((first, last + 1) for first, last in buckets.decoded.spans().tolist())
        live_units = units(self._work.policy, batch)
        as_live = set(live_units)
        identities = set() if self._work.measured else {batch.main.raw_id(i) for i in range(len(batch))}
        for manifest in others:
            live = self._receipts.live(manifest.commit, manifest.buckets)
            same, outdated = list[int](), list[int]()
            which = _sections_to_compare(manifest, spans, live)
            for copies in self._archive.sections(manifest, which, partial(self._pass_over, live, batch)):
                names, here = units(self._work.policy, copies.batch), live[copies.positions]
                not_last = partial(self._not_last, copies, manifest.archived_policy)
                mine = list(zip(copies.batch.main.raw_ids, names, strict=True))
                found = decisions.held_copies(mine, here, identities, as_live, not_last)
                held.update(names[i] for i in found.same)
                same += copies.positions[found.same].tolist()
                outdated += copies.positions[found.outdated].tolist()
            self._settle_held(manifest, same, outdated, live)
        return np.array([i for i, unit in enumerate(live_units) if unit not in held], dtype=np.int64)

    def _pass_over(self, live: NDArray[np.bool_], batch: Batch, error: ColdCommit, section: int) -> None:
        """Raises the error, unless none of these buckets is in the section that would have to be thawed."""
        ids = None if live.any() else self._archive.ids(error.manifest, section)
        if ids is None or not set(batch.main.raw_ids).isdisjoint(ids):
            raise error

    def _not_last(self, copies: SectionBuckets, policy: Policy, deleted: list[int]) -> set[int]:
        """Returns which of these copies of deleted buckets, which live ones equal, are not the last versions
        that the archive holds."""
        if self._work.measured:
            return set()
        returned = copies.batch.take(np.array(deleted))
        histories = OfflineHistories(self._archive).of(returned, policy, [])
        found = [histories[same_id(raw_id)].counting.versions for raw_id in returned.main.raw_ids]
        last = [versions[-1].bucket.unit(0) if versions else None for versions in found]
        return {i for place, i in enumerate(deleted) if last[place] not in (None, returned.unit(place))}

    def _settle_held(
        self, manifest: Manifest, same: list[int], outdated: list[int], live: NDArray[np.bool_]
    ) -> None:
        """Settles the live buckets of a commit: those that equal its copies, and those that are newer."""
        work = self._work
        waits = work.waits(manifest.newest.created)
        if waits:
            work.report.leave(len(same), waits)
            if not outdated:  # else another commit takes its place at once
                self._known.note(self._archive, manifest)
        if not live[same].all():  # they were deleted, and came back as they were
            live[same] = True
            self._registry.register(manifest, live, is_new=False)
        if same and not waits:
            if self._is_rolled_up(manifest):
                due = self._older.without(manifest, np.array(same, dtype=np.int64))
                work.report.leave(len(same) - len(due), OLDER)
                changed = self._delete(manifest, due)
                work.report.change(len(changed))
                outdated = sorted({*outdated, *changed})
            else:
                work.report.leave(len(same), NOT_ROLLED_UP)
        if outdated:
            self._amend(manifest, outdated)

    def move(self, buckets: BucketSet) -> None:
        """Begins to copy and verify buckets while the next ones are read; commits and deletes those before
        them."""
        self._work.binding.claim()  # workers write by stores of their own
        if not self._work.measured:
            self._copied.begin(buckets.batch, *_span_of(buckets))
        self._copies.begin(buckets)
        self._settle_copies(self._copies.max_pending)

    def finish(self) -> None:
        """Commits, and deletes where it may, what is still being copied. Where nothing is deleted, looks what
        has become of originals that this run has not met beside others of their commit."""
        self._settle_copies(0)
        if self._work.kept and not self._work.measured:
            for name, missed in self._known.not_met_anew():
                self._work.check()
                receipt = self._receipts.get(name)
                commit = commit_of(receipt) if receipt and receipt.get("state") == "open" else None
                if commit is not None:
                    self._settle_missed(self._archive.current(commit), missed)

    def _settle_missed(self, manifest: Manifest, missed: Positions) -> None:
        """Takes copies of buckets out of a commit that have moved elsewhere: they would count as well once
        somebody has deleted these. Records those that somebody has deleted: their copies count."""
        moved, gone, spans = list[int](), list[int](), list[tuple[int, int]]()
        for held in self._archive.buckets_at(manifest, missed):
            found = compare_all(self._work.database, self._work.policy, held.batch)
            moved += held.positions[self._sound(held.batch, found.changed)].tolist()
            gone += held.positions[found.gone].tolist()
            decoded = decode(held.batch.take(found.gone), manifest.archived_policy)
            spans += [(first, last + 1) for first, last in decoded.spans().tolist()]
        if gone and self._work.roll_up_around(spans):
            self._registry.note_gone(manifest, gone)
            self._known.forget(manifest)
        if moved:
            self._amend(manifest, moved)
        if not moved and not gone:
            self._known.note_looked(manifest.commit, missed)

    def _sound(self, batch: Batch, changed: Sequence[int]) -> list[int]:
        """Returns those of these buckets, by their places, of which there is a new version to archive: the
        copy of one that somebody has broken is its last good version."""
        found = set[bytes]()
        for live in self._work.source.by_raw_ids(batch.take(list(changed)).main.raw_ids):
            sound = live.take(decode(live, self._work.policy).units)
            found |= {same_id(raw_id) for raw_id in sound.main.raw_ids}
        return [at for at in changed if same_id(batch.main.raw_id(at)) in found]

    def close(self) -> None:
        """Stops copies that are under way, and frees what they hold."""
        self._copied.close()
        self._copies.close()

    def _settle_copies(self, pending: int) -> None:
        """Commits what is copied, except the last `pending` copies, and deletes what may go."""
        for copied in self._copies.completed(pending):
            with phase("commit"):
                manifest = self._registry.commit(copied)
            self._made.add(manifest.commit)
            report = self._work.report
            report.archived(manifest.buckets, manifest.readings)
            report.parts += len(manifest.parts)
            report.bytes += manifest.size
            stay = self._waits
            if not stay and not self._is_rolled_up(manifest):  # late readings may have come
                stay = NOT_ROLLED_UP
            if stay:
                report.leave(manifest.buckets, stay)
                self._known.note(self._archive, manifest)
            elif changed := self._delete(manifest, np.arange(manifest.buckets)):
                report.change(len(changed))
                self._amend(manifest, changed)
            if not self._work.measured:
                self._copied.settle(stay=bool(stay))

    def _delete(self, manifest: Manifest, due: Positions) -> list[int]:
        """Deletes these buckets of a commit, as its files give them; returns those that had changed. First
        asks the store for these files: something may have become of them since they were read back."""
        self._registry.check_stored(manifest, due)
        changed: list[int] = []
        gone: list[int] = []
        for held in self._archive.buckets_at(manifest, due):
            order = held.batch.main.id_order()  # buckets that lie together in the source go together
            here, at = held.positions[order], 0
            for piece in chunks(held.batch.take(order)):
                record = partial(self._registry.record, manifest, here[at : at + len(piece)], piece)
                check_present = partial(self._archive.check_present, manifest)
                outcome = self._work.delete(piece, record, check_present)
                changed += here[at:][outcome.changed].tolist()
                gone += here[at:][outcome.gone].tolist()
                at += len(piece)
        if gone:
            self._note_missed(manifest, gone)
            self._keep_copies(manifest, gone)
        self._known.forget(manifest)
        return changed

    def _note_missed(self, manifest: Manifest, gone: Sequence[int]) -> None:
        """Notes buckets that somebody else has deleted since they were read, maybe after a change: their
        copies count."""
        if gone and not self._work.measured:
            for missed in self._archive.buckets_at(manifest, np.sort(gone)):
                self._copied.miss(missed.batch, as_ms(manifest.first), as_ms(manifest.last))

    def _keep_copies(self, manifest: Manifest, gone: list[int]) -> None:
        """Records that somebody else has deleted the originals of these copies, once windows are rolled up:
        an original may have moved before. Until then the next run finds these copies again."""
        if self._is_rolled_up(manifest, force=True):
            self._registry.note_gone(manifest, gone)

    def _is_rolled_up(self, manifest: Manifest, *, force: bool = False) -> bool:
        """Returns whether the windows of a commit are up to date. They may not be where a live bucket equals
        its copy, but did not when they were rolled up last."""
        return self._work.rolled_up(as_ms(manifest.first), as_ms(manifest.last) + 1, force=force)

    def _amend(self, manifest: Manifest, outdated: Sequence[int]) -> None:
        """Takes changed buckets out of a commit. Those that are gone by now stay, and count; so do those that
        change meanwhile, until the next run."""
        leaving, staying = list[int](), list[int]()
        for held in self._archive.buckets_at(manifest, np.sort(outdated)):
            found = self._leaving(held.batch, manifest.archived_policy)
            leaving += held.positions[found].tolist()
            staying += np.delete(held.positions, found).tolist()
        self._note_missed(manifest, staying)
        if not leaving:
            return
        successor = self._registry.amend(manifest, leaving, leaving)
        if successor is not None and manifest.commit in self._made:
            self._made.add(successor.commit)

    def _leaving(self, copies: Batch, policy: Policy) -> list[int]:
        """Returns which of these copies leave their commit. Where their buckets lie elsewhere by now, their
        windows are rolled up before."""
        there = copies.take(still_live(self._work.source, copies))
        live = list(self._work.source.by_raw_ids(there.main.raw_ids)) if len(there) else []
        if not live:
            return []
        found = self._work.roll_up_left(there, policy, Batch.concat(live))
        return [i for i, raw_id in enumerate(copies.main.raw_ids) if same_id(raw_id) in found]

    @property
    def _waits(self) -> str | None:
        """Returns why this run deletes nothing that it copies; None where it does."""
        return self._work.waits(self._work.now)


def _sections_to_compare(manifest: Manifest, spans: Spans, live: NDArray[np.bool_]) -> list[bool]:
    """Returns for each section of a commit whether it may hold copies of buckets in these spans. That
    includes sections with live originals, which may have moved there."""
    edges = itertools.pairwise(manifest.edges)
    each = zip(manifest.sections, edges, strict=True)
    return [
        spans.touch(as_ms(it.first), as_ms(it.last) + 1) or bool(live[start:end].any())
        for it, (start, end) in each
    ]


def _span_of(buckets: BucketSet) -> tuple[int, int]:
    """Returns the times of the first and the last reading, milliseconds; of a bucket without readings, its
    own last time counts."""
    times, last = buckets.decoded.columns.time, buckets.decoded.last
    return int(times.min(initial=last.min())), int(last.max())


class OfflineDryRun(DryRun, OfflineRun):
    """A dry run with an offline archive."""

    def _settle_held(
        self, manifest: Manifest, same: list[int], outdated: list[int], live: NDArray[np.bool_]
    ) -> None:
        self._count(len(same), self._work.waits(manifest.newest.created))
