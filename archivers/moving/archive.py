"""Archives the expired buckets of one policy, and checks that what was archived is all there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from pymongo.database import Database

from bucketwise.archivers.context import (
    ArchiveContext,
    ArchiveReport,
    Connections,
    DeleteLimit,
    offline_archive,
)
from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.moving.sweep import Sweep
from bucketwise.archivers.records.heads import check_heads
from bucketwise.archivers.records.online_heads import OnlineHeads
from bucketwise.archivers.records.policies import PolicyRecord
from bucketwise.archivers.records.receipts import MERGING, Receipts, live_of
from bucketwise.archivers.run import NO_SPANS, Archiver, ArchiveRun, RolledUp, always
from bucketwise.archivers.writes import MAX_BUCKETS
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.times import EVER, FIRST_MS, LAST_MS, TimeRange, as_date, as_text
from bucketwise.buckets.rules import Due
from bucketwise.config.errors import BucketwiseError, HaltedError
from bucketwise.config.policies import Policy
from bucketwise.config.times import format_duration
from bucketwise.rollups.calendar.due import Spans
from bucketwise.rollups.rolling.quarantine import Quarantine, hash_of

Document = dict[str, Any]


def delete_limit(run: ArchiveRun, spans: Sequence[Due]) -> DeleteLimit | None:
    """Returns how many of the buckets that end in these stretches the run would delete, and how many it may;
    None where the policy sets no limit, or deletes nothing. Buckets that will stay for reasons other than
    pins and known quarantine are counted as well. Where that is too many, and rules may keep some that a
    query finds, these are read, and only those that are due count."""
    written, name = run.archive.max_delete, run.policy.collection
    if written is None or run.kept:
        return None
    due = run.source.count_due(spans) - _staying(run, spans)
    if run.archive.grace:  # a later run deletes what this one copies
        due = min(due, _copied(run))
    limit = DeleteLimit(name, written, due, run.source.count())
    if limit.is_exceeded and any(it.also for it in spans):
        limit = replace(limit, due=min(due, _due_by_rules(run, spans)))
    return limit


def _due_by_rules(run: ArchiveRun, spans: Sequence[Due]) -> int:
    """Returns how many of the buckets that a query finds in these stretches are due by the rules of all their
    series, and are not pinned."""
    count = 0
    for it in spans:
        for batch in run.source.ending(it.start, it.end, it.also):
            run.check()
            decoded = decode(batch, run.policy)
            due = decoded.units[run.is_due(decoded)]
            count += len(np.setdiff1d(due, list(run.pins.of(batch))))
    return count


def _staying(run: ArchiveRun, spans: Sequence[Due]) -> int:
    """Returns how many of these buckets stay since they are pinned or quarantined."""
    return sum(run.source.count_due(spans, {"_id": {"$in": ids}}) for ids in _pages(run) if ids)


def _pages(run: ArchiveRun) -> Iterator[list[Any]]:
    """Yields the `_id`s of pinned and of quarantined buckets, each once, some at a time."""
    records = Quarantine(run.database, run.policy, run.now).recorded()
    broken = (it["_id"]["id"] for it in records)
    seen: set[int] = set()
    page: list[Any] = []
    for identity in chain(chain.from_iterable(run.pins.pages()), broken):
        name = hash_of(identity)
        if name not in seen:
            seen.add(name)
            page.append(identity)
        if len(page) == MAX_BUCKETS:
            yield page
            page = []
    yield page


def _copied(run: ArchiveRun) -> int:
    """Returns how many buckets earlier runs copied, whose grace is over and that no run has deleted."""
    receipts = run.receipts
    past_grace = {"copied": {"$lte": run.now - run.archive.grace}}
    states = {"state": {"$in": ["open", "copied", MERGING]}, "kind": {"$in": ["offline", "online"]}}
    ids = {"$size": {"$ifNull": ["$ids", []]}}
    found = receipts.collection.aggregate(
        [
            {"$match": {"_id.policy": receipts.policy, **states, **past_grace}},
            {"$project": {"kind": 1, "live": 1, "buckets": {"$ifNull": ["$buckets", ids]}}},
        ]
    )
    return sum(int(live_of(it, it["buckets"]).sum()) for it in found)


@dataclass(frozen=True)
class ArchiveOptions:
    """The options of an archive run.

    `range`: only buckets that end in it. `through`: every window that ends at or before it (milliseconds) is
    rolled up; None: the policy rolls nothing up. `rolled_up` says whether the summaries of the windows that a
    range touches hold what is there now. Where they don't, the buckets stay. `allow_large`: it may delete
    more than `max_delete` says. `left`: where windows can't be brought up to date; what touches them stays.
    """

    range: TimeRange = EVER
    through: int | None = None
    rolled_up: RolledUp = always
    allow_large: bool = False
    left: Spans = NO_SPANS

    @property
    def summary_updater(self) -> RolledUp:
        """Returns the function that brings summaries up to date; where nothing is rolled up, one that does
        nothing."""
        return always if self.through is None else self.rolled_up

    def expired(self, context: ArchiveContext) -> tuple[int, int]:
        """Returns the range, in milliseconds, of the ends of buckets that have expired by any rule."""
        return self.range.start_ms, min(max(context.cutoffs), self.range.end_ms)

    def due(self, context: ArchiveContext, through: int | None = None) -> list[Due]:
        """Returns the stretches of the range in which buckets may have expired, and end before `through`."""
        end = self.range.end_ms if through is None else min(self.range.end_ms, through)
        return context.rules.due(self.range.start_ms, context.cutoffs, end)

    def limit(self, run: ArchiveRun) -> DeleteLimit | None:
        """Returns how many buckets the run would delete; None where it may delete any number."""
        return None if self.allow_large else delete_limit(run, self.due(run, self.through))


#: Opens an archive for a run.
Opener = Callable[[ArchiveRun], Archiver]


def archive(context: ArchiveContext, options: ArchiveOptions, opened: Opener) -> ArchiveReport:
    """Archives the expired buckets. Returns what was done, and how many buckets stay, by reason."""
    run = ArchiveRun.of(context, rolled_up=options.summary_updater, left=options.left)
    context.state.report = run.report
    _check_deletable(run)
    run.report.limit = limit = options.limit(run)
    if limit is not None and limit.is_exceeded:
        raise HaltedError(
            f"policy {run.policy.name}: this run stopped: {limit.message}. Nothing was archived or deleted"
        )
    start, end = options.expired(run)
    with closing(opened(run)) as archiver:
        archiver.recover()
        run.pins.forget()
        archiver.settle(start, end)
        Sweep(run, archiver, options.through, rechecks=True).run(options.due(run))
    return run.report


def plan_archive(context: ArchiveContext, options: ArchiveOptions, opened: Opener) -> ArchiveReport:
    """Returns what `archive` would do, and how many buckets would stay, by reason. Changes nothing. `opened`:
    as a dry run."""
    run = ArchiveRun.of(context, rolled_up=options.summary_updater, left=options.left)
    _check_deletable(run)
    run.report.limit = options.limit(run)
    with closing(opened(run)) as archiver:
        Sweep(run, archiver, options.through, rechecks=False).run(options.due(run))
    _report_not_due(run, options)
    return run.report


def _report_not_due(run: ArchiveRun, options: ArchiveOptions) -> None:
    """Reports the buckets that are too young to be looked at, by the rule, and until when."""
    start, stop = options.range.start_ms, options.range.end_ms
    for number, (cutoff, expired) in enumerate(zip(run.cutoffs, run.expired_before, strict=True)):
        count = partial(run.source.count_ending, also=run.rules.query({number}))
        end = min(cutoff, stop)
        edge = max(end, min(expired, stop))
        by = f", {text}" if (text := run.rules.text(number)) else ""
        if waiting := count(max(start, end), edge):
            whole = run.batch_whole_at(number)
            assert run.archive.batch is not None and whole is not None
            batch, shown = format_duration(run.archive.batch), as_text(as_date(whole))
            run.report.reasons[f"waits until its batch of {batch} is whole: after {shown}{by}"] += waiting
        if young := count(max(start, edge), LAST_MS + 1):
            limit_text = as_text(as_date(edge)) if edge > FIRST_MS else "any time: it stays forever"
            run.report.reasons[f"not expired: the last reading is not before {limit_text}{by}"] += young


def recover(context: ArchiveContext, opened: Opener) -> None:
    """Finishes or undoes what a crash left, and checks that the archive is complete, before anything is
    rolled up from it. Raises HaltedError where it is not."""
    with closing(opened(ArchiveRun.of(context))) as archiver:
        archiver.recover()


def check_archive(connections: Connections, policy: Policy) -> None:
    """Checks that what was archived is there, and where the policy says; every summary would lack it.

    Raises BucketwiseError where the policy has archived to another kind of archive, DamagedError where the
    store is an older state of what it was. Changes nothing."""
    if (held := offline_archive(connections, policy)) is not None:
        check_heads(Receipts(connections.database, policy.identity), held)
    check_collections(connections.database, policy, connections.keys)
    check_kind(connections.database, policy)


def check_collections(
    database: Database[Document], policy: Policy, keys: Keys, said: PolicyRecord | None = None
) -> None:
    """Raises DamagedError where the collections of an online archive are not those that were left. `said`:
    see `OnlineHeads.check`."""
    if policy.archive_collections is not None:
        OnlineHeads(database, policy, keys).check(said)


def check_kind(database: Database[Document], policy: Policy) -> None:
    """Raises BucketwiseError where the policy has archived to another kind of archive than it says."""
    receipts = Receipts(database, policy.identity)
    to = policy.archive.to if policy.archive is not None else "none"
    if other := receipts.other_kind(to):
        raise BucketwiseError(
            f"policy {policy.name}: buckets lie in its {other} archive, and archive.to says {to!r}: "
            'its summaries could not be computed from both. Set archive.to back (archive.after = "forever" '
            "ends archiving), or restore those buckets and start a policy with another name. Nothing was "
            "changed"
        )


def _check_deletable(work: ArchiveRun) -> None:
    """Raises BucketwiseError where MongoDB would refuse the deletes, some of them only after minutes of
    retries."""
    if work.kept:
        return
    if what := work.undeletable:
        raise BucketwiseError(
            f"policy {work.policy.name}: {what}, and nothing can be deleted from it. Set archive.delete = "
            "false, or name the collection that holds the buckets. Nothing was archived"
        )
