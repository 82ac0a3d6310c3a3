"""One archive run, and what an archive has to do in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bucketwise.archivers import decisions
from bucketwise.archivers.context import LEFT_WINDOWS, ArchiveContext, ArchiveReport
from bucketwise.archivers.decisions import Outcome
from bucketwise.archivers.writes import Record, compare_all, guarded_delete, same_id
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.columns import Series
from bucketwise.buckets.decoding.decode import BucketSet, Decoded, decode
from bucketwise.buckets.fields.times import DAY_MS
from bucketwise.buckets.phases import phase
from bucketwise.config.errors import HaltedError
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.due import Spans
from bucketwise.rollups.calendar.levels import Span


class RolledUp(Protocol):
    """Rolls up the windows that a range (milliseconds) touches, where they have changed.

    Returns whether they are up to date then. `force`: even where nothing says that they have changed.
    `leaving`, with `force`: spans of the range that archived copies are about to leave."""

    def __call__(
        self, start_ms: int, end_ms: int, /, *, force: bool = False, leaving: Sequence[Span] = ()
    ) -> bool:
        """Rolls up the windows that [start, end) touches, milliseconds. Returns whether they are up to date
        now."""


def always(_start_ms: int, _end_ms: int, *, force: bool = False, leaving: Sequence[Span] = ()) -> bool:
    """A `RolledUp` for policies without a roll-up: there is no summary to bring up to date."""
    del force, leaving
    return True


#: No window stays as it is.
NO_SPANS = Spans(())


@dataclass(frozen=True, kw_only=True)
class ArchiveRun(ArchiveContext):
    """One policy's archive run: its context, and what it reports as it goes."""

    report: ArchiveReport
    rolled_up: RolledUp = always
    left: Spans = NO_SPANS  # where windows can't be brought up to date

    @classmethod
    def of(
        cls, context: ArchiveContext, *, rolled_up: RolledUp = always, left: Spans = NO_SPANS
    ) -> ArchiveRun:
        """Returns a run in this context, with nothing done yet."""
        given = {it.name: getattr(context, it.name) for it in fields(context)}
        kind = context.policy.archive.to if context.policy.archive else "none"
        return cls(**given, report=ArchiveReport(kind), rolled_up=rolled_up, left=left)

    def check_limit(self, deletes: int) -> None:
        """Raises HaltedError where these further deletes would exceed `max_delete`, since more buckets may go
        than were counted beforehand. Called in the transactions that delete."""
        limit, deleted = self.report.limit, self.report.deleted
        if limit is not None and deleted + deletes > limit.most:
            message = limit.message_after(deleted)
            raise HaltedError(f"policy {self.policy.name}: this run stopped: {message}")

    def delete(
        self, verified: Batch, record: Record, check_present: Callable[[], None] = lambda: None
    ) -> Outcome:
        """Deletes from the source what equals `verified`, and counts it: see `guarded_delete`.

        `check_present`: raises where the copies are gone. It comes last, since `check` may wait for hours."""
        self.check()
        self.binding.claim()
        if self.policy.archive_collections is not None:
            self.note_deleting()
        check_present()
        with phase("delete"):
            outcome = guarded_delete(self.database, self.policy, verified, self.guard, record)
        self.report.deleted += len(outcome.deleted)
        self.report.removed_bytes += verified.take(outcome.deleted).size
        self.spend(len(verified), verified.size)
        return outcome

    def deletable(self, copies: Batch, start_ms: int, end_ms: int) -> tuple[Batch, NDArray[np.int64]]:
        """Returns those of earlier runs' copies that end in [start, end) and whose originals may be deleted:
        no pin or hold keeps them, and their windows are rolled up. Also returns the spans of all copies."""
        decoded = decode(copies, self.policy)
        ending = (decoded.last >= start_ms) & (decoded.last < end_ms)
        due = decoded.units[ending & self.is_due(decoded)]
        found = copies.take(np.sort(due))
        found = found.take(self.movable(found))
        spans = decoded.spans()  # also of copies that stay: one may have differed from its original meanwhile
        if len(found) and not self.rolled_up(int(spans.min()), int(spans.max()) + 1):
            found = found.take([])
        return found, spans

    def stuck(self, decoded: Decoded, ready: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Returns which buckets touch windows that can't be brought up to date; reports those that are
        `ready` otherwise."""
        stays = np.zeros(len(ready), dtype=np.bool_)
        if self.left.spans:
            stays[:] = [self.left.touch(first, last + 1) for first, last in decoded.spans().tolist()]
        self.report.leave(int((ready & stays).sum()), LEFT_WINDOWS)
        return stays

    def roll_up_around(self, spans: Iterable[Span], *, leaving: bool = False) -> bool:
        """Rolls up the windows that spans (milliseconds) touch, even where nothing says that they have
        changed: those of neighbouring days at once, however many spans lie there. Returns whether all are up
        to date then. `leaving`: as in `RolledUp`."""
        found = [  # of each, whatever came of those before
            self.rolled_up(near[0][0], near[-1][1], force=True, leaving=near if leaving else ())
            for near in Spans(spans).near(DAY_MS)
        ]
        return all(found)

    def roll_up_left(self, copies: Batch, as_archived: Policy, live: Batch) -> set[bytes]:
        """Rolls up the windows in which these copies are, before they leave the archive since live buckets
        take their place, where these lie elsewhere. Returns which of these may take it, by `same_id`: those
        that are as they were. One that somebody has deleted meanwhile may have counted as its copy."""
        now = _spans(live, self.policy)
        left = decisions.left_behind(_spans(copies, as_archived).items(), now)
        self.roll_up_around(((first, last + 1) for first, last in left), leaving=True)
        same = compare_all(self.database, self.policy, live).deleted if left else range(len(live))
        return {same_id(live.main.raw_id(i)) for i in same}


def _spans(batch: Batch, policy: Policy) -> dict[bytes, tuple[int, int]]:
    """Returns the first and the last time of each bucket, by its `same_id`."""
    decoded = decode(batch, policy)
    names = (same_id(batch.main.raw_id(i)) for i in decoded.units.tolist())
    return {name: (first, last) for name, (first, last) in zip(names, decoded.spans().tolist(), strict=True)}


class Archiver(Protocol):
    """An archive during a run."""

    def recover(self) -> None:
        """Finishes or undoes what a crash left."""

    def settle(self, start_ms: int, end_ms: int) -> None:
        """Deletes buckets that end in [start, end), were copied by earlier runs, and may go now."""

    def misfit(self, series: Series) -> tuple[str, object] | None:
        """Returns a series field, and its value, that the archive can't hold beside what it has; None where
        it can."""

    def not_copied(self, buckets: BucketSet, first_ms: int, last_ms: int) -> NDArray[np.int64]:
        """Returns the indices of the expired buckets, which span first to last, that have to be copied."""

    def move(self, buckets: BucketSet) -> None:
        """Copies and verifies buckets, and deletes those that may go, now or by the end of `finish`."""

    def finish(self) -> None:
        """Finishes what `move` has begun."""

    def close(self) -> None:
        """Stops what is under way. What `finish` has not finished is left to the next run."""


class DryRun:
    """Counts what would go in place of moving it. What stays is decided by the archiver that this is mixed
    into."""

    _work: ArchiveRun

    def recover(self) -> None:
        """Recovers nothing."""

    def settle(self, start_ms: int, end_ms: int) -> None:
        """Deletes nothing."""

    def move(self, buckets: BucketSet) -> None:
        """Counts the buckets that would be deleted now, and those that would wait."""
        self._work.report.archived(len(buckets), buckets.readings)
        self._count(len(buckets), self._work.waits(self._work.now))

    def _count(self, buckets: int, waits: str | None) -> None:
        if waits:
            self._work.report.leave(buckets, waits)
        else:
            self._work.report.deleted += buckets

    def finish(self) -> None:
        """Does nothing: no move was begun."""
