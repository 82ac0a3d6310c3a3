"""Erases one series from everything that a policy keeps.

First it is recorded that the erasure has begun. Then the series goes from MongoDB, from commits of the
archive, from files beside them, and from summaries. Everything is searched for it, and a receipt says that it
is done. Each step finds its own work, so that an erasure that was cut off is simply started again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.erasing.collections import CollectionEraser, holdings_in, source_of
from bucketwise.archivers.erasing.erasure import Erasure
from bucketwise.archivers.erasing.kind import ArchivedSeries, SeriesOf
from bucketwise.archivers.erasing.limits import check_edges, check_erasable
from bucketwise.archivers.erasing.report import COUNTS, ErasureReport
from bucketwise.archivers.erasing.search import count_records, remaining, unreached
from bucketwise.archivers.erasing.summaries import erase_summaries, summaries_of
from bucketwise.archivers.erasing.work import ErasureWork
from bucketwise.config.policies import Policy


@dataclass(frozen=True)
class ErasureFacts:
    """Other facts that matter to an erasure. `others`: policies that read the same collection.
    `is_deleted_early`: something removes raw data that is in no archive of this policy."""

    others: Sequence[Policy] = ()
    is_deleted_early: bool = False


def plan_erasure(
    context: ArchiveContext, archived: ArchivedSeries, erasure: Erasure, others: Sequence[Policy]
) -> ErasureReport:
    """Returns what `erase` would do. Changes nothing. Raises UsageError as it does."""
    check_erasable(context, erasure, others)
    counts, counted, across = Counter[str](), set[int](), 0
    live = holdings_in(context, source_of(context.policy), erasure)
    for it in chain(live, archived.holdings(erasure)):
        context.check()
        counts.update({"buckets": len(it.names - counted), it.kind: it.erased})
        counts["commits_rewritten"] += it.kind == "archived" and it.erased > 0
        counted |= it.names
        across += it.across
    counts += count_records(context, erasure)
    counts["summaries"] = sum(len(it) for _, it in summaries_of(context, erasure))
    check_edges(across)
    named = {name: counts[name] for name in COUNTS}
    return ErasureReport(named, list(unreached(archived, erasure)))


def erase(
    context: ArchiveContext, series_of: SeriesOf, erasure: Erasure, facts: ErasureFacts
) -> ErasureReport:
    """Erases a series, or continues where an earlier call was cut off. Returns what was erased, and what
    remains. Raises UsageError, and has changed nothing, where another erasure of the policy has not ended, a
    hold forbids it, or buckets reach over the edge of the range."""
    work, archived = ErasureWork(context, erasure, facts.others), series_of(context)
    begun = check_erasable(context, erasure, facts.others)
    if begun is None and erasure.within.is_bounded:
        plan_erasure(context, archived, erasure, facts.others)  # which raises where the range cuts buckets
    if context.policy.archiving is not None:
        context.binding.claim()
    if begun is None:
        request = erasure.text, erasure.within, erasure.reason, context.now
        work.transaction(lambda session: work.erasures.begin(*request, session))
    _erase_all(work, archived, is_deleted_early=facts.is_deleted_early)
    left = list(remaining(context, series_of, erasure, facts.others))
    return ErasureReport(work.transaction(lambda session: _end(work, session)), left)


def _erase_all(work: ErasureWork, archived: ArchivedSeries, *, is_deleted_early: bool) -> None:
    live = CollectionEraser(work, source_of(work.context.policy))
    live.run()
    archived.erase(work)
    live.run()  # documents inserted since
    erase_summaries(work, is_deleted_early=is_deleted_early)


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
