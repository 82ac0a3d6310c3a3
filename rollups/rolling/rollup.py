"""Rolling up: summaries of every due window, equal to a recomputation from what is live or archived."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice, pairwise
from typing import Any

from bson.datetime_ms import DatetimeMS
from pymongo.database import Database

from bucketwise.buckets.bson.cursor import SIMPLE
from bucketwise.buckets.columns import Quarantined
from bucketwise.buckets.decoding.local import LARGEST_MS
from bucketwise.buckets.decoding.soundness import Plausible
from bucketwise.buckets.source import Source
from bucketwise.config.policies import LevelName
from bucketwise.rollups.calendar.due import Calendar, ExistingSummaries, Partition, Slice, Spans
from bucketwise.rollups.calendar.levels import Span, base_levels
from bucketwise.rollups.calendar.windows import LOWEST, to_ms
from bucketwise.rollups.changes.collector import OPERATIONS
from bucketwise.rollups.context import RunContext, Spend, result_of
from bucketwise.rollups.holds import Holds
from bucketwise.rollups.progress import HeldWindows, ended_by_rule
from bucketwise.rollups.rolling.outlived import OutlivedSummaries, deletes_before_archive
from bucketwise.rollups.rolling.plan import (
    Archived,
    Planner,
    RollupOptions,
    RollupPlan,
    RollupReport,
    Watermark,
)
from bucketwise.rollups.rolling.quarantine import MOST_NAMED
from bucketwise.rollups.rolling.records import Remaking, records_of
from bucketwise.rollups.rolling.retained import GoneByRule
from bucketwise.rollups.rolling.slices import (
    WHOLE,
    SliceReader,
    SliceRequest,
    SliceStates,
    reads_at_once,
    shares,
)
from bucketwise.rollups.rolling.writing import SummaryWriter
from bucketwise.rollups.standing import load_both, plausible_times
from bucketwise.rollups.summaries import documents
from bucketwise.rollups.summaries.targets import Counts, target

Document = dict[str, Any]
#: Summaries, the last ones, that tell which series there are.
_LAST_SUMMARIES = 10_000
#: Slices between which less than this lies, in milliseconds, are of one stretch: a week may have no readings.
_NEAR_MS = 8 * 24 * 3_600_000


@dataclass(frozen=True)
class SliceFinder:
    """Finds the slices that are not empty: those with live or archived buckets, or with summaries."""

    database: Database[Document]
    calendar: Calendar
    source: Source
    archived_next: Callable[[int], int | None]  # see `Archived.next`
    broken: Sequence[Quarantined]  # those that were met; a slice that they alone cover is empty

    def slices(
        self, wanted: Mapping[LevelName, Sequence[Span]], existing: ExistingSummaries
    ) -> Iterator[Slice]:
        """Yields the slices in the order of time, with the due windows that touch the spans of their
        level."""
        spans = {level: Spans(parts) for level, parts in wanted.items()}
        partition = Partition(self.calendar, spans, existing)
        done = LOWEST
        for start, end in self.calendar.due(wanted).spans:
            end = min(end, self.calendar.due_end)
            while (at := max(start, done)) < end:
                found = self._first_slice(at)
                if found is None or found >= end:
                    break
                piece = partition.extended(self.calendar.slice_at(found, done))
                yield piece
                done = piece.span[1]

    def _first_slice(self, at: int) -> int | None:
        """Returns an instant, at or after `at`, in the first slice whose windows may have something in
        them."""
        reach = self.calendar.reach
        found = self._next(max(LOWEST, at - reach))
        return None if found is None else max(at, found - reach)

    def _next(self, at: int) -> int | None:
        """Returns the first instant at or after `at` where there is something to look at."""
        broken = [it.name for it in self.broken[:MOST_NAMED]]
        # Before all windows no bucket is under way: whether one is takes long to find out.
        found = [self.source.earliest(None if at == LOWEST else at, broken), self.archived_next(at)]
        for level in self.calendar.levels:
            later = {"start": {"$gte": DatetimeMS(at)}}
            first = target(self.database, level.collection).find_one(later, {"start": 1}, sort=[("start", 1)])
            found.append(to_ms(first["start"]) if first else None)
        return min((instant for instant in found if instant is not None), default=None)


@dataclass(frozen=True)
class ReadAhead:
    """Reads slices, some while an earlier one is written.

    A reading may come in, or go, between the read and the write, as always: its event is behind the mark up
    to which the stream was read, which was before all of this, so that the next run finds it. And all reads
    are made after this is called: where buckets are to go once it is done, what they held before doesn't
    count.
    """

    database: Database[Document]
    source: Source
    calendar: Calendar
    reader: SliceReader
    check: Callable[[], None]
    spend: Spend
    plausible: Plausible  # times of live buckets
    leaves_unreadable: bool

    def read(self, slices: Iterator[Slice]) -> Iterator[tuple[Slice, SliceStates | None]]:
        """Yields the states of each slice; None where no readings of it are needed."""
        first = list(islice(slices, self.reader.workers))
        # Often a run has only one slice to read, and several workers to read it.
        shares_per_slice = -(-self.reader.workers // len(first)) if first else 1
        in_flight: deque[tuple[Slice, list[Future[SliceStates]]]] = deque()
        largest = 0
        for piece in chain(first, slices):
            self.check()
            in_flight.append((piece, self._submit(piece, shares_per_slice)))
            while len(in_flight) >= self.reader.max_in_flight(largest):
                found = _joined(in_flight[0][1], self.check)
                largest = max(largest, found.size() if found else 0)
                self._spend(found)
                yield in_flight.popleft()[0], found
                del found  # before the next one is read
        for piece, parts in in_flight:
            self.check()
            found = _joined(parts, self.check)
            self._spend(found)
            yield piece, found
            del found

    def _spend(self, found: SliceStates | None) -> None:
        """Counts what was read, before anything of it is written."""
        if found is not None:
            self.spend(found.buckets_read, found.bytes_read)
            self.check()

    def _submit(self, piece: Slice, shares_per_slice: int) -> list[Future[SliceStates]]:
        """Submits the reads of a slice, in as many shares."""
        by_clock = piece.to_read(self.calendar.levels)
        if not by_clock:
            return []
        edges = {local: sorted({edge for span in it for edge in span}) for local, it in by_clock.items()}
        bounds = self._share_bounds(shares_per_slice) if shares_per_slice > 1 else []
        looked, memory = self.source.looked, self.reader.memory_per_slice
        whole = SliceRequest(edges, WHOLE, looked, memory, self.plausible, self.leaves_unreadable)
        return [self.reader.read(replace(whole, share=it)) for it in shares(bounds)]

    def _share_bounds(self, count: int) -> list[Any]:
        """Returns values of the first series field that cut the series into so many parts of about equal
        size. They are those of the last summaries: whatever they are, no bucket is missed."""
        if reads_at_once(self.source.policy):
            return []  # archived ones are read with the first share
        if not self.source.policy.series_fields or not self.source.model.needs_index:
            return []
        series = f"$_id.series.{self.source.policy.series_names[0]}"
        last: list[Document] = [{"$sort": {"start": -1}}, {"$limit": _LAST_SUMMARIES}]
        pipeline: list[Document] = [*last, {"$group": {"_id": series}}, {"$sort": {"_id": 1}}]
        name = base_levels(self.calendar.levels)[-1].collection
        summaries = self.database.get_collection(name, codec_options=documents.OPTIONS)
        values = [it["_id"] for it in summaries.aggregate(pipeline, collation=SIMPLE)]
        return [values[at * len(values) // count] for at in range(1, count)] if len(values) >= count else []


def _joined(parts: list[Future[SliceStates]], check: Callable[[], None]) -> SliceStates | None:
    """Returns the states of all shares of a slice; None if nothing was requested."""
    if not parts:
        return None
    found, *others = (result_of(part, check) for part in parts)
    for other in others:
        found.add(other)
    return found


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
        loaded = remaking.as_made_again
    calendar = Calendar(policy, policy.rollup, context.now, loaded.through, loaded.wholly)
    records = records_of(context, remaking, dry_run=options.dry_run)
    plausible = plausible_times(policy, standing, context.now)
    held = loaded.held
    under = _holds_now(context) if held.windows else []
    released = held.windows if under != list(held.under) else frozenset()
    planner = Planner(
        context,
        options,
        archived,
        calendar,
        loaded,
        source,
        records,
        remaking,
        plausible,
        under,
        [it[:2] for it in sorted(released)],
    )
    return _carry_out(planner, planner.plan())


def _holds_now(context: RunContext) -> list[str]:
    return [it.digest for it in Holds(context.database, context.policy.identity).active()]


def _carry_out(planner: Planner, plan: RollupPlan) -> RollupReport:
    """Rolls up every due window of the plan, slice by slice."""
    context, calendar, records = planner.context, planner.calendar, planner.records
    report = RollupReport({level.name: Counts() for level in calendar.levels}, late=plan.late)
    gone = GoneByRule(context.policy, context.now, planner.loaded)
    if plan.late is not None:
        for rule, first_made in gone.first_made.items():
            records.note_gone(first_made, rule)
    records.begin(planner.remaking)
    end = min([calendar.due_end, *(span[1:] if (span := planner.options.range) else ())])
    outlived = _outlived_summaries(planner, plan)
    writer = SummaryWriter(context, calendar, records, outlived, report, end, gone)
    watermark = Watermark(plan, calendar, records, planner.loaded, planner.released)
    broken = records.quarantine.details
    finder = SliceFinder(context.database, calendar, planner.source, planner.archived.next, broken)
    reading = ReadAhead(
        context.database,
        planner.source,
        calendar,
        planner.archived.reader,
        context.check,
        context.spend,
        planner.plausible,
        planner.options.leaves_unreadable,
    )
    slices = _looking_at_lengths(finder.slices(plan.spans, plan.existing), planner.source, plan, end)
    for number, (piece, found) in enumerate(reading.read(slices)):
        if number == 0:
            watermark.begin()
        if found is not None and found.unreadable is not None:
            watermark.leave(piece.span)
        writer.write(piece, found)
        watermark.hold(*writer.taken_held())
        if found is not None:
            watermark.reach(piece.span[1])
            del found  # before the next one is read
        planner.options.reached(min(piece.span[1], calendar.due_end))
    writer.finish()
    watermark.hold(*writer.taken_held())
    report.missed, report.outdated, report.gone = outlived.missed, outlived.outdated, outlived.gone
    report.quarantined, report.quarantined_total = records.quarantine.details, records.quarantine.total
    if plan.late is not None:
        bookmark = plan.late.bookmark
        if bookmark is not None and plan.late.mode == "stream" and report.written >= MANY_WRITTEN:
            bookmark = records.advance_bookmark(planner.stream, bookmark, calendar)
        watermark.finish(bookmark, planner.under)
        report.missing = records.finish(planner.remaking)
        records.quarantine.remove_healed()
    return report


def _looking_at_lengths(
    slices: Iterator[Slice], source: Source, plan: RollupPlan, end: int
) -> Iterator[Slice]:
    """Yields the slices. Where there are several, near each other, and the next run learns of what changes
    meanwhile, looks first at how long the buckets of this stretch are."""
    first = list(islice(slices, 3))
    are_near = all(it.span[0] - before.span[1] < _NEAR_MS for before, it in pairwise(first))
    if len(first) == 3 and are_near and plan.late is not None and plan.late.mode == "stream":
        start = first[0].span[0]
        stretches = Spans(chain.from_iterable(plan.spans.values())).near(_NEAR_MS)
        last = next((it[-1][1] for it in stretches if it[-1][1] > start), end)
        source.look_at_lengths(start - LARGEST_MS, min(last, end) + LARGEST_MS)
    return chain(first, slices)


def _by_series(held: HeldWindows) -> dict[bytes, Spans]:
    spans: dict[bytes, list[Span]] = {}
    for it in held.windows:
        spans.setdefault(it.series, []).append((it.start, it.end))
    return {series: Spans(found) for series, found in spans.items()}


def _known_to_leave(spans: Sequence[Span]) -> Mapping[str, Spans] | None:
    """Returns the spans as those of changes, by operation; None where there are none."""
    return {**dict.fromkeys(OPERATIONS, Spans(())), "update": Spans(spans)} if spans else None


def _outlived_summaries(planner: Planner, plan: RollupPlan) -> OutlivedSummaries:
    return OutlivedSummaries(
        planner.source,
        planner.context.policy,
        planner.calendar.recheck_from,
        lambda: planner.is_deleted_early,
        planner.options.range is not None,
        plan.late.changed if plan.late else _known_to_leave(planner.options.leaving),
        partial(ended_by_rule, planner.context.database, planner.context.policy),
        planner.archived.next,
        _by_series(planner.loaded.held) if planner.released else {},
    )
