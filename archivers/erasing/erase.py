"""Erases one series from everything that a policy keeps.

First it is recorded that the erasure has begun. Then the series goes from MongoDB, from commits of the
archive, from files beside them, and from summaries. Everything is searched for it, and a receipt says that it
is done. Each step finds its own work, so that an erasure that was cut off is simply started again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pymongo.client_session import ClientSession

from archivers.context import ArchiveContext
from archivers.erasing.collections import CollectionEraser, VersionsEraser, held_in, kept_of, places_of
from archivers.erasing.commits import (
    CommitEraser,
    commits_of,
    erase_removed,
    erase_versions,
    removed_files_of,
    superseded_files_of,
)
from archivers.erasing.erasure import Erasure, Selected
from archivers.erasing.limits import check_edges, check_erasable
from archivers.erasing.report import COUNTS, ErasureReport
from archivers.erasing.search import remaining
from archivers.erasing.summaries import erase_summaries, summaries_of
from archivers.erasing.unreached import unreached
from archivers.erasing.work import ErasureWork, names_of
from archivers.versions.kept import KeptVersions
from archivers.versions.superseded import Superseded
from archivers.writes.delete import chunks
from buckets.bson.raw import Batch
from buckets.source import Source
from config.policies import Policy
from rollups.rolling.quarantine import Quarantine


@dataclass(frozen=True)
class ErasureFacts:
    """Other facts that matter to an erasure. `others`: policies that read the same collection.
    `is_deleted_early`: something removes raw data that is in no archive of this policy."""

    others: Sequence[Policy] = ()
    is_deleted_early: bool = False


def plan_erasure(context: ArchiveContext, erasure: Erasure, others: Sequence[Policy]) -> ErasureReport:
    """Returns what `erase` would do. Changes nothing. Raises UsageError as it does."""
    check_erasable(context, erasure, others)
    counter = _Counter(context, erasure)
    counter.run()
    check_edges(counter.across)
    counts = {name: counter.counts[name] for name in COUNTS}
    return ErasureReport(counts, list(unreached(context, erasure)))


def erase(context: ArchiveContext, erasure: Erasure, facts: ErasureFacts) -> ErasureReport:
    """Erases a series, or continues where an earlier call was cut off. Returns what was erased, and what
    remains. Raises UsageError, and has changed nothing, where another erasure of the policy has not ended, a
    hold forbids it, or buckets reach over the edge of the range."""
    work = ErasureWork(context, erasure, facts.others)
    if check_erasable(context, erasure, facts.others) is None:
        if erasure.within.is_bounded:
            plan_erasure(context, erasure, facts.others)  # which raises where the range cuts buckets
        request = erasure.text, erasure.within, erasure.reason, context.now
        work.transaction(lambda session: work.erasures.begin(*request, session))
    _erase_all(work, is_deleted_early=facts.is_deleted_early)
    left = list(remaining(context, erasure, facts.others))
    return ErasureReport(work.transaction(lambda session: _end(work, session)), left)


def _erase_all(work: ErasureWork, *, is_deleted_early: bool) -> None:
    for place in places_of(work.erasure):
        CollectionEraser(work, place).run()
    _erase_archived(work)
    CollectionEraser(work, places_of(work.erasure)[0]).run()  # documents inserted since
    erase_summaries(work, is_deleted_early=is_deleted_early)


def _erase_archived(work: ErasureWork) -> None:
    if work.context.to == "online":
        VersionsEraser(work).run()
    archive = work.context.offline(work.context.keys)
    if archive is not None:
        CommitEraser(work, archive).run()
        erase_versions(work, archive)
        erase_removed(work, archive)


def _end(work: ErasureWork, session: ClientSession) -> dict[str, int]:
    """Writes the receipt in place of the record of the beginning. Returns the counts."""
    begun = work.erasures.begun(session)
    assert begun is not None  # written under the lease, which this transaction checks
    counts = {name: begun.counts.get(name, 0) for name in COUNTS}
    facts = {
        "collection": work.context.policy.collection,
        "series": work.context.keys.sign(work.erasure.text) or begun.hashed,
        "since": begun.within.since,
        "until": begun.within.until,
        "reason": begun.reason,
        "begun": begun.at,
        "erased": counts,
    }
    work.context.deletions.record_event("erase", facts, session)
    work.erasures.end(session)
    return counts


class _Counter:
    """Counts what would be erased."""

    def __init__(self, context: ArchiveContext, erasure: Erasure) -> None:
        self._context = context
        self._erasure = erasure
        self._counted: set[int] = set()
        self.counts: Counter[str] = Counter()
        self.across = 0

    def run(self) -> None:
        """Counts place by place."""
        for place in places_of(self._erasure):
            source = Source(self._context.database, self._context.policy, place.collection, place.overflow)
            for batch, found in held_in(source, self._erasure):
                erased = batch.take(found.erased)
                self._add(place.name, names_of(erased), found)
                if place.name == "live":
                    self._count_records(erased)
        if self._context.to == "online":
            kept = KeptVersions(self._context.database, self._context.policy)
            self.counts["versions"] += sum(len(found.erased) for _, found in kept_of(self._erasure, kept))
        self._count_offline()
        self.counts["summaries"] = sum(len(it) for _, it in summaries_of(self._context, self._erasure))

    def _count_records(self, erased: Batch) -> None:
        """Counts the pins of live buckets, and their records of the quarantine."""
        quarantine = Quarantine(self._context.database, self._context.policy, self._context.now)
        for piece in chunks(erased):
            ids = piece.main.ids
            self.counts.update({"pins": self._context.pins.count(ids), "quarantine": quarantine.count(ids)})

    def _count_offline(self) -> None:
        archive = self._context.offline(self._context.keys)
        if archive is None:
            return
        for held in commits_of(archive, self._erasure):
            self._add("archived", held.names, held.found)
            self.counts["commits_rewritten"] += len(held.found.erased) > 0
        kept = Superseded(archive.store, archive.policy.name)
        self.counts["versions"] += sum(
            len(found.erased) for _, _, found in superseded_files_of(kept, self._erasure)
        )
        aside = removed_files_of(archive.store, self._erasure)
        self.counts["set_aside"] = sum(len(it.erased) for it in aside)

    def _add(self, place: str, names: set[int], found: Selected) -> None:
        self._context.check()
        self.counts.update({"buckets": len(names - self._counted), place: len(found.erased)})
        self._counted |= names
        self.across += len(found.across)
