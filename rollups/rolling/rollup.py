"""Rolling up: summaries of every due window, equal to a recomputation from what is live or archived."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from bucketwise.buckets.source import Source
from bucketwise.rollups.calendar.due import Calendar
from bucketwise.rollups.context import RunContext
from bucketwise.rollups.progress import ended_before
from bucketwise.rollups.rolling.options import Archived, RollupOptions, RollupReport
from bucketwise.rollups.rolling.outlived import OutlivedSummaries
from bucketwise.rollups.rolling.plan import Planner, RollupPlan, Watermark
from bucketwise.rollups.rolling.read_ahead import ReadAhead, SliceFinder
from bucketwise.rollups.rolling.records import records_of
from bucketwise.rollups.rolling.remaking import Remaking
from bucketwise.rollups.rolling.writing import SummaryWriter
from bucketwise.rollups.standing import load_both, plausible_times
from bucketwise.rollups.summaries.targets import Counts
from bucketwise.rollups.ttl import deletes_before_archive

#: Reading past so many summaries in the change stream takes about as long as reading it once more.
MANY_WRITTEN = 1000


def roll_up(context: RunContext, options: RollupOptions, archived: Archived) -> RollupReport:
    """Rolls up what is due, and writes what differs.

    Where the run is stopped, by what `context.check` raises between slices, what is done by then stands, and
    the next run goes on from there.
    """
    policy = context.policy
    if policy.rollup is None or not policy.rollup.targets:
        return RollupReport()
    source = Source(context.database, policy)
    loaded, standing = load_both(context.database, policy)
    early = options.is_deleted_early
    remaking = Remaking(context, loaded, standing, source, lambda: early or deletes_before_archive(source))
    if options.is_catch_up:
        loaded = replace(loaded, gone=remaking.gone)
    calendar = Calendar(policy, policy.rollup, context.now, loaded.through, loaded.gone)
    records = records_of(context, remaking, dry_run=options.dry_run)
    plausible = plausible_times(policy, standing, context.now)
    planner = Planner(context, options, archived, calendar, loaded, source, records, remaking, plausible)
    return _carry_out(planner, planner.plan())


def _carry_out(planner: Planner, plan: RollupPlan) -> RollupReport:
    """Rolls up every due window of the plan, slice by slice."""
    context, calendar, records = planner.context, planner.calendar, planner.records
    report = RollupReport({level.name: Counts() for level in calendar.levels}, late=plan.late)
    if plan.late is not None:
        begun = planner.loaded.through
        records.note_gone({name: ms for name, ms in calendar.first_made.items() if name not in begun})
    records.begin(planner.remaking)
    end = min([calendar.due_end, *(span[1:] if (span := planner.options.range) else ())])
    outlived = _outlived_summaries(planner, plan)
    writer = SummaryWriter(context, calendar, records, outlived, report, end)
    watermark = Watermark(plan, calendar, records.save)
    finder = SliceFinder(context.database, calendar, planner.source, planner.archived.next)
    reading = ReadAhead(
        context.database,
        planner.source,
        calendar,
        planner.archived.reader,
        context.check,
        context.spend,
        planner.plausible,
    )
    for number, (piece, found) in enumerate(reading.read(finder.slices(plan.spans, plan.existing))):
        if number == 0:
            watermark.begin()
        writer.write(piece, found)
        if found is not None:
            watermark.reach(piece.span[1])
            del found  # before the next one is read
        planner.options.reached(min(piece.span[1], calendar.due_end))
    writer.finish()
    report.missed, report.outdated, report.gone = outlived.missed, outlived.outdated, outlived.gone
    report.quarantined, report.quarantined_total = records.quarantine.details, records.quarantine.total
    if plan.late is not None:
        bookmark = plan.late.bookmark
        if bookmark is not None and plan.late.mode == "stream" and report.written >= MANY_WRITTEN:
            bookmark = records.advance_bookmark(planner.stream, bookmark, calendar)
        watermark.finish(bookmark)
        report.missing = records.finish(planner.remaking)
        records.quarantine.remove_healed()
    return report


def _outlived_summaries(planner: Planner, plan: RollupPlan) -> OutlivedSummaries:
    return OutlivedSummaries(
        planner.source,
        planner.context.policy,
        planner.calendar.recheck_from,
        lambda: planner.is_deleted_early,
        planner.options.range is not None,
        plan.late.changed if plan.late else None,
        partial(ended_before, planner.context.database, planner.context.policy),
        planner.archived.next,
    )
