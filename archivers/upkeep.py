"""Keeps summaries equal to a recomputation from live and archived readings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.reading.archived import ArchivedReader, archived_reader
from bucketwise.archivers.reading.slices import slice_reader
from bucketwise.archivers.records.receipts import COLLECTION as RECEIPTS
from bucketwise.archivers.tasks import LocalExecutor
from bucketwise.buckets.fields.times import EVER, FIRST_MS, LAST_MS, TimeRange, as_date
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.due import widened
from bucketwise.rollups.calendar.levels import Span, levels_of
from bucketwise.rollups.changes.late import ChangeWatch
from bucketwise.rollups.context import dry_run_guard, no_progress
from bucketwise.rollups.rolling.plan import CATCH_UP, Archived, RollupOptions, RollupReport
from bucketwise.rollups.rolling.rollup import roll_up


def roll_up_all(context: ArchiveContext, options: RollupOptions = CATCH_UP) -> RollupReport:
    """Rolls up what is due, from live and archived buckets. Summaries count as gone only where no other
    policy may have their readings in its archive."""
    archived = archived_reader(context.connections, context.policy)
    reader = slice_reader(context, archived)
    found = archived.superseded, archived.earliest, archived.restored
    known = Archived(reader, RECEIPTS, archived.span(), *found)
    report = roll_up(context, options, known)
    if report.gone and context.policy_records.archives_besides(context.policy):
        report.gone = 0
    return report


def recompute(context: ArchiveContext, archived: ArchivedReader, unread: Sequence[Span]) -> RollupReport:
    """Returns what a roll-up of all due windows would write. Writes nothing. In the spans `unread`
    (milliseconds) nothing is read, and summaries are taken to be right."""
    reader = slice_reader(context, archived)
    return roll_up(
        replace(context, guard=dry_run_guard),
        RollupOptions(whole=True, trusted_spans=unread, dry_run=True),
        Archived(reader, RECEIPTS, archived.span(), earliest=archived.earliest, restored=archived.restored),
    )


class Upkeep:
    """A `RolledUp` that rolls windows up before their buckets go, since late readings may have come after the
    roll-up."""

    def __init__(
        self,
        context: ArchiveContext,
        readers: Sequence[Policy],
        *,
        is_deleted_early: bool,
        dry_run: bool = False,
    ) -> None:
        """`readers`: other policies that roll up the same collection."""
        here = LocalExecutor(context.connections, memory=context.executor.memory)
        self._context = replace(context, progress=no_progress, executor=here)
        self._is_cleared = is_deleted_early
        self._dry_run = dry_run
        self._reading_policies = readers
        self._watch: ChangeWatch | None = None
        self.written = 0
        self._gone: dict[TimeRange, int] = {}  # a range is looked at again before its buckets are deleted

    @cached_property
    def _readers(self) -> list[ChangeWatch]:
        """Returns the watch on the other policies. It is created with the first commit, so that a run without
        any does not need it."""
        database = self._context.database
        return [ChangeWatch(database, it, RECEIPTS, dry_run=self._dry_run) for it in self._reading_policies]

    def __call__(self, start_ms: int, end_ms: int, /, *, force: bool = False) -> bool:
        """Rolls up the windows that the range touches, if they have changed. Returns whether every summary of
        the range is up to date. Those of other policies are written by their own runs; until then, the
        buckets stay. `force`: even where nothing shows a change."""
        check = self._context.check
        if any(it.has_changed(start_ms, end_ms, check, if_unknown=False) for it in self._readers):
            return False
        if self._dry_run:
            return True
        watch = self._watch = self._watch or ChangeWatch(
            self._context.database, self._context.policy, RECEIPTS
        )
        if force or watch.has_changed(start_ms, end_ms, check):
            # All changes, where they are known: a bucket may have moved here from another time.
            tells_all = watch.has_bookmark and not force
            days = self._days(start_ms, end_ms)
            options = RollupOptions(EVER if tells_all else days, is_deleted_early=self._is_cleared)
            report = roll_up_all(self._context, options)
            self.written += report.written
            self._gone[days] = max(report.gone, self._gone.get(days, 0))
            self._watch = None  # the next one begins where this roll-up has read to
        return True

    @property
    def gone(self) -> int:
        """Returns how many summaries stay although somebody took their readings out."""
        return sum(self._gone.values())

    def _days(self, start_ms: int, end_ms: int) -> TimeRange:
        """Returns the range, widened to the days that it touches: these are then made of their hours, one of
        which may be the last that tells of its readings."""
        levels = [level for level in levels_of(self._context.policy) if not level.is_long]
        (start, end), *_ = widened(levels, [(start_ms, end_ms)]).spans if levels else [(start_ms, end_ms)]
        return TimeRange(as_date(max(start, FIRST_MS)), as_date(min(end, LAST_MS)))
