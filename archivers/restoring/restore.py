"""Restores archived buckets as they were, byte for byte, into any collection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.moving.archive import check_kind
from bucketwise.archivers.restoring.copies import ArchivedCopies
from bucketwise.archivers.restoring.options import Mode, RestoreOptions, Target, check_request
from bucketwise.archivers.restoring.put import (
    Indices,
    MatchingBuckets,
    RestoreFilter,
    check_put,
    put,
    put_measurements,
)
from bucketwise.archivers.restoring.records import RestoreRecords
from bucketwise.archivers.restoring.settle import RestoreReport, VersionSettler
from bucketwise.archivers.versions.history import Histories, Version
from bucketwise.archivers.writes import chunks
from bucketwise.buckets.bson.prefetch import prefetch
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import BucketSet
from bucketwise.buckets.fields.selectors import extended_json
from bucketwise.buckets.models import model_of
from bucketwise.config.errors import BucketwiseError
from bucketwise.config.policies import Policy
from bucketwise.rollups.context import result_of, run_now


def restore(context: ArchiveContext, options: RestoreOptions, copies: ArchivedCopies) -> RestoreReport:
    """Brings back every bucket that is asked for.

    Overflow documents go back into the policy's overflow collection. Several versions of a bucket become one,
    as `how` says. What is there already and equal stays; a document of the same `_id` that the archive does
    not hold is never written over. Raises UsageError for a target that won't do, BucketwiseError where
    documents are in the way, or lie in another kind of archive than the policy says, HaltedError where the
    archive is not what it should be; with `skip_damaged` it gives the rest, and reports what is missing.
    """
    check_kind(context.database, context.policy)
    check_request(context, options)
    policy, records = context.policy, None
    if policy.collection == options.to:
        until, how = options.pinned_until, options.how
        records = RestoreRecords(policy, context.receipts, context.deletions, context.pins, until, how)
    note = records.settled if records else lambda _plans, _session: None
    target = Target(context.database, policy, options.to, context.guard, options.how, note)
    wanted = RestoreFilter(policy, options.within.start_ms, options.within.end_ms, options.series)
    copies.begin(options, wanted)
    restoring = _Restoring(context, target, wanted, copies.histories)
    found = copies.of(options, records, wanted)
    with ThreadPoolExecutor(1, "bucketwise-reader") as reader:
        restoring.restore(prefetch(map(wanted.of, found), lambda: True), reader)
    return replace(restoring.finished(), missing=copies.missing())


@dataclass
class _Passed:
    """How far a restore has come. Refers to nothing that refers to it, so that its caches go with it."""

    wanted: RestoreFilter
    until: dict[str, int] = field(default_factory=dict)  # buckets of each commit looked at, from its first

    def of(self, versions: Sequence[Version]) -> list[bool]:
        """Returns which of these versions, which are in the target, the restore has counted: it put them or
        found them there."""
        are_wanted = self.wanted.holds(versions)
        passed = [
            it.commit is not None and it.position < self.until.get(it.commit.commit, 0) for it in versions
        ]
        return [is_wanted and has_passed for is_wanted, has_passed in zip(are_wanted, passed, strict=True)]


class _Restoring:
    """The state of one restore."""

    def __init__(
        self, context: ArchiveContext, target: Target, wanted: RestoreFilter, histories: Histories
    ) -> None:
        self._target, self._check, self._progress = target, context.check, context.progress
        self._report = RestoreReport()
        self._filter = wanted
        self._passed = _Passed(wanted)
        self._last_check: Future[None] = run_now(lambda: None)  # reads back the previous piece
        self._histories = histories
        self._settling = VersionSettler(target, self._histories, self._passed.of, self._report)

    def restore(self, found: Iterable[MatchingBuckets], reader: Executor) -> None:
        for wanted in found:
            at = 0
            for piece in chunks(wanted.batch):
                self._check()
                here = wanted.indices[at : at + len(piece)]
                at += len(piece)
                self._restore(wanted, piece, here, reader)
                self._progress("restored buckets", len(piece), wanted.share)
            self._report.buckets += len(wanted.batch)
            self._report.readings += wanted.readings
            self._report.overflow += len(wanted.batch.extra)
            if wanted.commit is not None:
                self._passed.until[wanted.commit] = wanted.until
            if self._settling.is_full:
                self._settle()
        self._settle()

    def _restore(self, wanted: MatchingBuckets, piece: Batch, here: Indices, reader: Executor) -> None:
        target = self._target
        if not model_of(target.policy).keeps_ids_unique:
            put_measurements(target.database, target.policy, target.to, piece.main)
            return
        met = self._settling.settled(piece)
        held = self._with_versions(piece, wanted.policy)
        self._subtract(piece, sorted({*met, *held}), wanted.policy)
        self._settling.add(piece.take(np.setdiff1d(held, met)), wanted.policy)
        new = np.setdiff1d(np.arange(len(piece)), [*met, *held])
        piece, here = piece.take(new), here[new]
        done = put(target, piece, here, wanted.note)
        result_of(self._last_check, self._check)
        self._last_check = reader.submit(check_put, target.database, done)
        blocked = sorted(done.blocked)
        self._subtract(piece, blocked, wanted.policy)
        self._settling.add(piece.take(blocked), wanted.policy)
        self._report.pinned += len(piece) - len(blocked) if target.is_source else 0

    def _with_versions(self, piece: Batch, policy: Policy) -> list[int]:
        """Returns the buckets that have other versions, whether or not anything is in their way."""
        held = self._histories.split(piece, policy) if self._filter.is_part else []
        if self._target.how.mode == Mode.merged:
            return held
        return sorted({*held, *self._histories.merged(piece, policy)})

    def _subtract(self, piece: Batch, leaving: list[int], policy: Policy) -> None:
        """Takes these buckets out of the counts, since `VersionSettler` counts them."""
        if leaving:
            buckets = BucketSet(piece.take(leaving), policy)
            self._report.buckets -= len(buckets)
            self._report.readings -= buckets.readings
            self._report.overflow -= len(buckets.batch.extra)

    def _settle(self) -> None:
        result_of(self._last_check, self._check)
        self._settling.settle(self._check)

    def finished(self) -> RestoreReport:
        """Returns the report. Raises BucketwiseError where documents were in the way."""
        blocked = self._settling.blocked
        if blocked.count:
            reason, first = next(iter(blocked.first.items()))
            raise BucketwiseError(
                f"--to {self._target.to}: {blocked.count} of {self._report.buckets} buckets were not "
                f"restored. The first has _id {extended_json(first)}: {reason}"
            )
        return self._report
