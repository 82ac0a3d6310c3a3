"""Merges the small commits of each UTC day into one.

A merged commit is made like any other. The documents are read from the store, and must be those that were
archived. They are packed together, written, read back and compared byte for byte, one section after the
other, so that a commit may hold more than fits into memory; the manifest is written last. Then one
transaction replaces all the others by it at once. These stay in the store for a while, so that a query under
way keeps its files; readers of manifests do not count them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.format.manifest import Manifest
from bucketwise.archivers.format.names import Commit
from bucketwise.archivers.format.writing import Maker, Replaced
from bucketwise.archivers.moving.archive import recover
from bucketwise.archivers.moving.copies import KnownCopies
from bucketwise.archivers.moving.offline import OfflineRun
from bucketwise.archivers.moving.sweep import MAX_BYTES, MAX_READINGS
from bucketwise.archivers.records.pins import CommitDays
from bucketwise.archivers.records.receipts import commit_of, is_cold, record_fault
from bucketwise.archivers.recovering.commits import CommitRegistry
from bucketwise.archivers.run import ArchiveRun
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import BucketSet, cells_of
from bucketwise.buckets.fields.times import DAY_MS, EVER, TimeRange, as_ms
from bucketwise.config.policies import Policy
from bucketwise.config.tables import USUAL_MEMORY

#: The most sections of a commit, about, each of the size of a commit that an archive run makes, and the most
#: buckets: its receipt has a bit for each.
MAX_SECTIONS, MAX_BUCKETS = 32, 16_000_000
#: Buckets that are decoded to tell how much memory those of a section take.
_SAMPLED = 200
#: With at least so many commits, a day is merged even if something was archived into it lately.
MANY = 100


class Size(NamedTuple):
    """How much commits hold."""

    cells: int  # see `BucketSet.cells`; of irregular buckets more, as their documents tell
    bytes: int  # of BSON


@dataclass(frozen=True)
class CommitInfo:
    """A registered commit, as its receipt describes it."""

    commit: Commit
    committed: datetime
    buckets: int
    held: Size
    stored: int  # bytes in the store
    merge_key: str  # see `Manifest.merge_key`
    is_closed: bool  # none of its buckets is live
    is_compacted: bool  # a compaction has made it, or seen it and left it as it is
    has_tombstone: bool  # it has or had a tombstone
    span: tuple[int, int]  # from its first reading until after its last, milliseconds

    @classmethod
    def of(cls, commit: Commit, receipt: dict[str, Any], policy: Policy) -> CommitInfo:
        """Returns the commit of this policy that a receipt describes."""
        cells = cells_of(receipt["readings"], receipt["buckets"], policy)
        return cls(
            commit,
            receipt["committed"],
            receipt["buckets"],
            Size(cells, receipt["documents_bytes"]),
            receipt["bytes"],
            receipt["kin"],
            receipt["state"] == "closed",
            receipt["compacted"],
            "tombstone" in receipt,
            (as_ms(receipt["first"]), as_ms(receipt["last"]) + 1),
        )


def section_limit(memory: int) -> Size:
    """Returns how much one section may hold: as much as an archive run puts into a commit."""
    share = memory / USUAL_MEMORY
    return Size(int(MAX_READINGS * share), int(MAX_BYTES * share))


def mergeable(day: Sequence[CommitInfo], quiet_since: datetime | None) -> list[CommitInfo]:
    """Returns the commits of a day that may be merged. A day into which anything was archived after
    `quiet_since` is left alone, as more may come, unless it has very many commits. None: no day is left
    alone."""
    if quiet_since is None:
        return list(day)
    old = [it for it in day if it.committed <= quiet_since]
    return old if len(old) == len(day) or len(old) >= MANY else []


def groups(day: Iterable[CommitInfo], section: Size, budget: int | None) -> Iterator[list[CommitInfo]]:
    """Yields groups of a day's commits, each of which becomes one commit: neighbours in the chain, up to what
    one commit may hold, and at most `budget` bytes of BSON. Commits without a neighbour to merge with are
    left out.

    A commit with live buckets stays of one section: it is rewritten when one of them changes."""
    by_key: dict[str, list[CommitInfo]] = {}
    for it in day:
        by_key.setdefault(it.merge_key, []).append(it)
    for alike in by_key.values():
        filled: list[list[CommitInfo]] = [[]]
        for it in sorted(alike, key=lambda it: it.commit.sequence):
            if filled[-1] and _exceeds([*filled[-1], it], section, budget):
                filled.append([])
            filled[-1].append(it)
        found = [_without_dominant(group, section) for group in filled]
        yield from (group for group in found if len(group) > 1)


def _exceeds(group: Sequence[CommitInfo], section: Size, budget: int | None) -> bool:
    total = _size(group)
    sections = MAX_SECTIONS if all(it.is_closed for it in group) else 1
    is_large = total.cells > sections * section.cells or total.bytes > sections * section.bytes
    is_over_budget = budget is not None and total.bytes > max(budget, section.bytes)
    return is_large or is_over_budget or sum(it.buckets for it in group) > MAX_BUCKETS


def _without_dominant(group: list[CommitInfo], section: Size) -> list[CommitInfo]:
    """Returns the group without a commit of several sections that holds more than all others together.
    Otherwise a few late readings would have all of a large day written again, each time."""
    largest = max(group, key=lambda it: it.held.bytes)
    is_several = largest.held.cells > section.cells or largest.held.bytes > section.bytes
    if len(group) > 1 and is_several and 2 * largest.held.bytes > _size(group).bytes:
        return _without_dominant([it for it in group if it is not largest], section)
    return group


def _size(group: Sequence[CommitInfo]) -> Size:
    return Size(sum(it.held.cells for it in group), sum(it.held.bytes for it in group))


@dataclass(frozen=True)
class CompactOptions:
    """The options of a compaction.

    `range`: only commits that begin on one of its days. `quiet_since`: a day into which anything was archived
    later is left alone; None: no day is. `budget`: bytes of BSON to rewrite at most; None: no limit."""

    range: TimeRange = EVER
    quiet_since: datetime | None = None
    budget: int | None = None


@dataclass
class CompactReport:
    """How many commits were merged, into how many. `bytes_after` is None where nothing was written."""

    commits: int = 0
    into: int = 0
    buckets: int = 0
    bytes_before: int = 0
    bytes_after: int | None = 0

    def add(self, group: Sequence[CommitInfo]) -> None:
        """Counts commits that become one."""
        self.commits += len(group)
        self.into += 1
        self.buckets += sum(it.buckets for it in group)
        self.bytes_before += sum(it.stored for it in group)


def compact(context: ArchiveContext, archive: OfflineArchive, options: CompactOptions) -> CompactReport:
    """Merges small commits. Returns what was done. Raises HaltedError, and changes nothing, where a commit is
    damaged."""
    recover(context, OfflineRun)
    compactor = _Compactor(context, options, archive)
    compactor.run()
    return compactor.report


def plan_compaction(
    context: ArchiveContext, archive: OfflineArchive, options: CompactOptions
) -> CompactReport:
    """Returns what `compact` would do, as far as receipts tell. Changes nothing."""
    report = CompactReport(bytes_after=None)
    for group in _Compactor(context, options, archive).groups():
        report.add(group)
    return report


@dataclass
class _Compactor:
    context: ArchiveContext
    options: CompactOptions
    archive: OfflineArchive
    report: CompactReport = field(default_factory=CompactReport)
    rewritten: int = 0  # bytes of BSON
    done: float = 0.0  # the share of the days that is done

    def run(self) -> None:
        for group in self.groups():
            self._merge(group)
            self.report.add(group)
            self.context.progress("merged commits", len(group), self.done)

    def groups(self) -> Iterator[list[CommitInfo]]:
        """Yields groups of commits, each of which becomes one, day by day, until the budget is spent."""
        days = self._days()
        for number, day in enumerate(days):
            self.context.check()
            self.done = number / len(days)
            candidates = mergeable(self._day(day), self.options.quiet_since)
            for group in groups(self._movable(candidates), self._section, self.options.budget):
                if not self._fits_budget(group):
                    return
                yield group
            self._note(candidates)

    def _movable(self, commits: Sequence[CommitInfo]) -> list[CommitInfo]:
        """Returns the commits without those in the range of a hold that freezes, whatever its series, and
        without those under a tombstone, which they would lose."""
        freezes = self.context.freezes
        without_tombstone = [it for it in commits if not it.has_tombstone]
        return [it for it in without_tombstone if not any(hold.touches(*it.span) for hold in freezes)]

    @property
    def _known_days(self) -> CommitDays:
        return CommitDays(self.context.receipts)

    def _days(self) -> list[int]:
        """Returns the UTC days, since 1970, on which there may be commits to merge."""
        first = self.options.range.start_ms // DAY_MS
        last = (self.options.range.end_ms - 1) // DAY_MS
        return self._known_days.to_compact(first, last, self.options.quiet_since)

    def _day(self, day: int) -> list[CommitInfo]:
        found = [(commit_of(it), it) for it in self._known_days.commits_of(day) if not is_cold(it)]
        policy = self.context.policy
        return [CommitInfo.of(commit, it, policy) for commit, it in found if commit is not None]

    def _fits_budget(self, group: Sequence[CommitInfo]) -> bool:
        size = sum(it.held.bytes for it in group)
        is_within = self.options.budget is None or self.rewritten + size <= self.options.budget
        if is_within or not self.rewritten:  # otherwise a larger one would never be merged
            self.rewritten += size
            return True
        return False

    def _note(self, candidates: Sequence[CommitInfo]) -> None:
        """Records commits that stay as they are: they need not be looked at again until another one comes, or
        a hold that froze them is released."""
        names = [it.commit.name for it in candidates if not it.is_compacted]
        if names and self.context.fence:
            self.context.check()
            self._known_days.note_compacted(names)

    @property
    def _section(self) -> Size:
        return section_limit(self.context.executor.memory)

    def _merge(self, group: Sequence[CommitInfo]) -> None:
        context, archive = self.context, self.archive
        manifests = [archive.current(it.commit) for it in group]
        first = manifests[0]
        if len({it.merge_key for it in manifests}) > 1:
            raise record_fault(first.commit, "it says that the commit is like others, and it is not")
        maker = Maker(first.database, context.fence, context.now, first.timeseries)
        replaced = Replaced.by_sections(manifests, (it for one in manifests for it in one.all_origins))
        copied = archive.copy(
            self._bucket_sets(manifests), first.series_types, maker, context.check, replaced
        )
        run = ArchiveRun.of(context)
        successor = CommitRegistry(run, archive, maker).merge(manifests, copied)
        KnownCopies(run).note_merged(archive, successor)
        assert self.report.bytes_after is not None
        self.report.bytes_after += successor.size

    def _bucket_sets(self, manifests: Sequence[Manifest]) -> Iterator[BucketSet]:
        """Yields the buckets of these commits in their order, as many at a time as a section may hold.
        Irregular buckets take more memory than their receipts say, so it is measured as they are read."""
        policy, limit, filled, cells = manifests[0].archived_policy, self._section, list[Batch](), 0
        for batch in (it.batch for one in manifests for it in self.archive.sections(one)):
            self.context.check()
            more, is_long = _cells_of(batch, policy), sum(it.size for it in filled) + batch.size > limit.bytes
            if filled and (is_long or cells + more > limit.cells):
                buckets = BucketSet(Batch.concat(filled), policy)
                cells = 0 if is_long else buckets.cells  # together they may share layouts
                if is_long or cells + more > limit.cells:
                    filled, cells = [], 0
                    yield buckets
                del buckets  # it takes as much memory as what is read next
            filled.append(batch)
            cells += more
        yield BucketSet(Batch.concat(filled), policy)


def _cells_of(batch: Batch, policy: Policy) -> int:
    """Returns about how much memory buckets take, see `BucketSet.cells`: of many, as a sample tells."""
    if len(batch) <= _SAMPLED:
        return BucketSet(batch, policy).cells
    some = batch.take(np.linspace(0, len(batch) - 1, _SAMPLED).astype(np.int64))
    return -(-BucketSet(some, policy).cells * batch.size // some.size)
