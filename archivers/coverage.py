"""The place of each day: live, archived, both, only summarised, gone, or nowhere. Reads no part of an
archive.

MongoDB is read as it was at one instant, a new one for each slice of days, and manifests after that instant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from itertools import islice
from typing import Literal

import numpy as np
from pymongo.client_session import ClientSession

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.names import day
from bucketwise.archivers.kinds.evidence import ArchivedRows, Counts, Evidence, Flags, Grid, HeldPart, Tally
from bucketwise.archivers.moving.archive import check_archive
from bucketwise.archivers.reading.archived import archived_reader
from bucketwise.archivers.reading.readings import at_one_instant
from bucketwise.archivers.summary_counts import SummaryCounter, SummaryCounts
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import Decoded, decode
from bucketwise.buckets.fields.selectors import Selector, check_selector, selector_query
from bucketwise.buckets.fields.times import DAY_MS, EVER, TimeRange
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.series import is_of_series
from bucketwise.buckets.source import Source
from bucketwise.config.errors import UsageError
from bucketwise.rollups.holds import Holds
from bucketwise.rollups.rolling.quarantine import MOST_NAMED, Quarantine


@dataclass(frozen=True)
class Inventory:
    """Rows, and what there is in each."""

    grid: Grid
    live: Tally
    pinned: Counts  # buckets
    quarantined: Counts  # buckets
    held: Counts  # holds
    archived: ArchivedRows
    summary_counts: SummaryCounts

    @cached_property
    def file_bytes(self) -> Counts:
        """Returns the bytes of the parts, each in the row of its first reading."""
        found = self.grid.zeros()
        for held in self.archived.parts:
            found[self.grid.rows(*held.span).start] += held.bytes
        return found


class InventoryReader:
    """Reads what there is of one policy, or of some of its series."""

    def __init__(self, context: ArchiveContext, archived: Evidence, selector: Selector) -> None:
        self._context = context
        self._selector = selector
        self._archived = archived

    def read(self, grid: Grid, counter: SummaryCounter, session: ClientSession) -> Inventory:
        """Returns what lies in the time of these rows."""
        summary_counts = counter.count(grid, session)
        archived = self._archived.rows(grid, self._selector, session)
        live, pinned, broken = self._live(grid, archived.parts, session)
        held = self._held(grid, session)
        return Inventory(grid, live, pinned, broken, held, archived, summary_counts)

    def _held(self, grid: Grid, session: ClientSession) -> Counts:
        """Returns how many holds cover some of each row."""
        counts = grid.zeros()
        for hold in Holds(self._context.database, self._context.policy.identity).active(session):
            if hold.may_cover(self._selector) and hold.touches(grid.start, grid.end):
                counts[grid.rows(hold.within.start_ms, hold.within.end_ms - 1)] += 1
        return counts

    def _live(
        self, grid: Grid, parts: Sequence[HeldPart], session: ClientSession
    ) -> tuple[Tally, Counts, Counts]:
        context = self._context
        tally = Tally(grid, context.policy, self._selector)
        pinned, broken = grid.zeros(), grid.zeros()
        # Manifests count all series: counts of some series follow from what is live of all.
        may_hold = any(it.may_hold for it in parts)
        narrow = None if may_hold else selector_query(context.policy, self._selector)
        source = Source(context.database, context.policy, session=session)
        for batch in source.batches(grid.start, grid.end, narrow):
            decoded = decode(batch, context.policy)
            tally.add(batch, decoded)
            pinned += self._pinned(tally, batch, decoded)
            broken += self._broken(grid, batch, decoded)
        return tally, pinned, broken

    def _pinned(self, tally: Tally, batch: Batch, decoded: Decoded) -> Counts:
        pins = self._context.pins.of(batch)
        columns = decoded.columns
        is_pinned = np.isin(decoded.units, list(pins))[columns.bucket]
        return tally.rows_of(columns, is_pinned & tally.chosen(columns))

    def _broken(self, grid: Grid, batch: Batch, decoded: Decoded) -> Counts:
        """Counts buckets that break their model, by the time that their fields tell."""
        counts = grid.zeros()
        for i in np.setdiff1d(np.arange(len(batch)), decoded.units).tolist():
            span = model_of(self._context.policy).covered_span(batch.main[i])
            if span is not None and is_of_series(self._context.policy, batch.main[i], self._selector):
                counts[grid.rows(span[0], span[1] - 1)] += 1
        return counts


@dataclass(frozen=True)
class Day:
    """One UTC day of an offline archive; arrays are by its rows.

    `held` copies of readings: in commits of which nothing is live (`closed`), in commits all of whose
    originals may be live (`copied`), and in others.
    """

    live: Counts  # of the series asked for
    live_all: int
    by_manifest: Counts  # readings in parts of one row
    is_spread: Flags  # parts of several rows may hold more here
    is_part: bool  # only some series are asked for
    may_hold: bool  # copies of what is asked for
    held: int
    closed: int
    copied: int
    summarised: Counts  # readings in summaries, of the series asked for
    summarised_all: int
    is_summarised: Flags

    @property
    def archived(self) -> list[int | None]:
        """Returns how many readings have a copy in the archive."""
        if not self.may_hold:
            return [0] * len(self.live)
        derived = self._derived
        return [
            int(self.by_manifest[row]) if self._is_exact(row) else None if derived is None else derived[row]
            for row in range(len(self.live))
        ]

    @property
    def readings(self) -> list[int | None]:
        """Returns how many readings there are, live or archived, each once."""
        return [self._readings(row, archived) for row, archived in enumerate(self.archived)]

    def _readings(self, row: int, archived: int | None) -> int | None:
        live, summarised = int(self.live[row]), int(self.summarised[row])
        if not self.may_hold:
            return live
        if not self._is_mixed and not self.copied:
            return None if archived is None else live + archived
        if not self._is_mixed and self.live_all == self.copied and (not self.closed or self._is_whole):
            return live + self.closed  # all other copies are of live buckets
        most = live + archived if archived is not None else summarised
        return (
            summarised if self.is_summarised[row] and max(live, archived or 0) <= summarised <= most else None
        )

    @property
    def _is_mixed(self) -> bool:
        return self.held > self.closed + self.copied

    @property
    def _is_whole(self) -> bool:
        """Returns whether the day is one row, and all of it is asked for."""
        return len(self.live) == 1 and not self.is_part

    def _is_exact(self, row: int) -> bool:
        return not self.is_part and not self.is_spread[row]

    @property
    def _derived(self) -> list[int] | None:
        """Returns counts derived from summaries; None where they don't agree with the rest."""
        if not self.is_summarised.all():
            return None
        if self.held == self.summarised_all:  # all is archived
            found = self.summarised
        elif self.held == self.closed and self.summarised_all == self.live_all + self.closed:
            found = np.asarray(self.summarised - self.live)
        else:
            return None
        return [int(it) for it in found] if (found >= 0).all() else None


State = Literal["live", "archived", "both", "online", "summarised", "expired", "gap"]
#: Rows of one answer, at most.
MOST_ROWS = 50_000
#: Days without live readings are looked at together.
_QUIET_DAYS = 32


@dataclass(frozen=True)
class CoverageQuery:
    """The rows to return: those that a range touches, of some series. `step`: the length of each,
    milliseconds."""

    within: TimeRange = EVER
    series: Selector = field(default_factory=dict)
    step: int = DAY_MS


@dataclass(frozen=True)
class HeldCommit:
    """A commit with readings of a row. `readings` are those of the row; None where its manifest does not tell
    them of so short a time, or of some series. `expires`: when its tombstone is due. `rule`: the one that
    keeps it longest, where that is known and not the policy's own."""

    commit: str
    committed: datetime
    buckets: int  # of the whole commit
    readings: int | None
    drilled: datetime | None
    expires: datetime | None
    rule: str


@dataclass(frozen=True)
class Row:
    """A day or hour. `live`, `archived`, `online` and `summarised` count readings, the others buckets; `held`
    counts the holds that cover some of it. None: not known exactly. `readings`: each once, wherever it is.
    `expires`: when the first tombstone on any of it is due. `live_bytes` and `online_bytes` are of BSON, of
    buckets of all series that begin in the row; `archived_bytes` of files."""

    start: int
    state: State
    live: int
    archived: int | None
    online: int
    summarised: int | None
    readings: int | None
    live_buckets: int
    pinned: int
    held: int
    quarantined: int
    commits: tuple[HeldCommit, ...]
    expires: datetime | None
    live_bytes: int = 0
    archived_bytes: int = 0
    online_bytes: int = 0


def coverage_of(context: ArchiveContext, archived: Evidence, query: CoverageQuery) -> list[Row]:
    """Returns the rows of a range, or from the first to the last of which anything is known.

    Raises UsageError where there are too many, or no such series; HaltedError where the archive is not all
    there.
    """
    check_selector(context.policy, query.series)
    check_archive(context.connections, context.policy)
    counter = SummaryCounter(context, query.series)
    start, end = _range(context, counter, query)
    reader = InventoryReader(context, archived, query.series)
    rows: list[Row] = []
    for grid in _slices(context, start, end, query.step):
        context.check()
        inventory = at_one_instant(context.database, partial(reader.read, grid, counter))
        rows += _rows(inventory, bool(query.series))
    inside = [it for it in rows if it.start < end and it.start + query.step > start]
    return _trimmed(inside, query)


def _range(context: ArchiveContext, counter: SummaryCounter, query: CoverageQuery) -> tuple[int, int]:
    within = query.within
    if within.since is None or within.until is None:
        first, last = _known(context, counter)
        start, end = within.start_ms if within.since else first, within.end_ms if within.until else last
    else:
        start, end = within.start_ms, within.end_ms
    if (count := -(-(end - start) // query.step)) > MOST_ROWS:
        raise UsageError(
            f"policy {context.policy.name}: {day(start)} to {day(end)} makes "
            f"{count:,} rows, and one answer has {MOST_ROWS:,} at most: narrow it with --since and --until"
        )
    return start, end


def known_span(context: ArchiveContext) -> tuple[int, int]:
    """Returns a range, in milliseconds, that contains everything that is known; (0, 0) where nothing is."""
    return _known(context, SummaryCounter(context, {}))


def _known(context: ArchiveContext, counter: SummaryCounter) -> tuple[int, int]:
    archived = archived_reader(context.connections, context.policy).span()
    spans = [it for it in (_live_span(context), archived, counter.span()) if it]
    return min((it[0] for it in spans), default=0), max((it[1] for it in spans), default=0)


def _live_span(context: ArchiveContext) -> tuple[int, int] | None:
    found, model = context.source.span(), model_of(context.policy)
    return None if found is None else (found[0], found[1] + model.reach_ms + 1)


def _slices(context: ArchiveContext, start: int, end: int, step: int) -> Iterator[Grid]:
    """Yields slices of one day where there are live readings, since MongoDB keeps an instant readable for
    minutes only. Days without any are taken together."""
    whole = Grid.around(start, end, step)
    at = whole.start
    recorded = Quarantine(context.database, context.policy, context.now).recorded()
    broken = [it["_id"]["id"] for it in islice(recorded, MOST_NAMED)]  # each may cover years
    live: int | None = at - 1
    while at < whole.end:
        if live is not None and live < at:
            live = context.source.earliest(at, broken)
        quiet = whole.end - at if live is None else live // DAY_MS * DAY_MS - at
        stop = min(at + max(DAY_MS, min(quiet, _QUIET_DAYS * DAY_MS)), whole.end)
        yield Grid(at, stop, step)
        at = stop


def _trimmed(rows: list[Row], query: CoverageQuery) -> list[Row]:
    """Returns the rows without gaps at the ends that were not asked for."""
    there = [i for i, row in enumerate(rows) if row.state != "gap"]
    first = 0 if query.within.since else there[0] if there else len(rows)
    last = len(rows) if query.within.until else there[-1] + 1 if there else 0
    return rows[first:last]


def _rows(inventory: Inventory, is_part: bool) -> list[Row]:
    days = _days(inventory, is_part)
    archived = [it for day in days for it in day.archived]
    readings = [it for day in days for it in day.readings]
    return [
        _row(inventory, at, archived[at], readings[at], _commits(inventory, at, is_part))
        for at in range(len(inventory.grid))
    ]


def _row(
    inventory: Inventory, at: int, archived: int | None, readings: int | None, commits: tuple[HeldCommit, ...]
) -> Row:
    grid, counts = inventory.grid, inventory.summary_counts
    live, online = int(inventory.live.readings[at]), int(inventory.archived.online.readings[at])
    is_archived = bool(commits) if archived is None else archived > 0
    summarised = None if counts.touched[at] else int(counts.readings[at])
    is_known = bool(counts.touched[at]) or bool(summarised)
    state = _state(live > 0, is_archived, online > 0)
    return Row(
        start=grid.start + at * grid.step,
        state=state or ("summarised" if is_known else "expired" if counts.gone[at] else "gap"),
        live=live,
        archived=archived,
        online=online,
        summarised=summarised,
        readings=None if readings is None else readings + int(inventory.archived.gone[at]),
        live_buckets=int(inventory.live.buckets[at]),
        pinned=int(inventory.pinned[at]),
        held=int(inventory.held[at]),
        quarantined=int(inventory.quarantined[at]),
        commits=commits,
        expires=_expires(inventory, grid.start + at * grid.step, online > 0, commits),
        live_bytes=int(inventory.live.bytes[at]),
        archived_bytes=int(inventory.file_bytes[at]),
        online_bytes=int(inventory.archived.online.bytes[at]),
    )


def _expires(
    inventory: Inventory, start: int, has_copies: bool, commits: Sequence[HeldCommit]
) -> datetime | None:
    due = [it.expires for it in commits if it.expires is not None]
    if has_copies and (of_day := inventory.archived.expires.get(start // DAY_MS)) is not None:
        due.append(of_day)
    return min(due, default=None)


def _state(live: bool, archived: bool, online: bool) -> State | None:
    """Returns where raw readings are; None where there are none."""
    if live:
        return "both" if archived or online else "live"
    return "archived" if archived else "online" if online else None


def _commits(inventory: Inventory, at: int, is_part: bool) -> tuple[HeldCommit, ...]:
    grid = inventory.grid
    found: dict[str, HeldCommit] = {}
    for held in inventory.archived.parts:
        rows = grid.rows(*held.span)
        if held.may_hold and rows.start <= at < rows.stop:
            is_exact = not is_part and rows.stop - rows.start == 1
            commit, count = held.manifest, held.part.rows if is_exact else None
            if (before := found.get(commit.commit)) is not None:  # in another section
                count = None if count is None or before.readings is None else before.readings + count
            facts = commit.created, commit.buckets, count, held.drilled, held.expires, held.rule
            found[commit.commit] = HeldCommit(commit.commit, *facts)
    return tuple(found.values())


def _days(inventory: Inventory, is_part: bool) -> list[Day]:
    grid, counts = inventory.grid, inventory.summary_counts
    per_day = DAY_MS // grid.step
    live_all, summarised_all = grid.by_day(inventory.live.all), grid.by_day(counts.all)
    by_manifest, is_spread = _in_parts(grid, inventory.archived.parts)
    days = []
    for number in range(len(live_all)):
        rows = slice(number * per_day, (number + 1) * per_day)
        start = grid.start + number * DAY_MS
        parts = [it for it in inventory.archived.parts if start <= it.span[0] < start + DAY_MS]
        days.append(
            Day(
                live=inventory.live.readings[rows],
                live_all=int(live_all[number]),
                by_manifest=by_manifest[rows],
                is_spread=is_spread[rows],
                is_part=is_part,
                may_hold=any(it.may_hold for it in parts),
                held=sum(it.part.rows for it in parts),
                closed=sum(it.part.rows for it in parts if not it.live),
                copied=sum(it.part.rows for it in parts if it.live == it.manifest.buckets),
                summarised=counts.readings[rows],
                summarised_all=int(summarised_all[number]),
                is_summarised=counts.known[rows],
            )
        )
    return days


def _in_parts(grid: Grid, parts: Sequence[HeldPart]) -> tuple[Counts, Flags]:
    """Returns the readings of parts that lie in one row, and the rows over which others are spread."""
    counts, is_spread = grid.zeros(), np.zeros(len(grid), dtype=np.bool_)
    for held in parts:
        rows = grid.rows(*held.span)
        if rows.stop - rows.start == 1:
            counts[rows] += held.part.rows
        else:
            is_spread[rows] = True
    return counts, is_spread
