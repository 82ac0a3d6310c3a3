"""Where each day is: live, archived, both, only summarised, gone, or nowhere. Reads no part of an archive.

MongoDB is read as it was at one instant, a new one for each slice of days, and manifests after that instant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Literal

import numpy as np

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.evidence.grid import Counts, Flags, Grid
from bucketwise.archivers.evidence.inventory import Inventory, InventoryReader
from bucketwise.archivers.evidence.kind import Evidence, HeldPart
from bucketwise.archivers.evidence.summary_counts import SummaryCounter
from bucketwise.archivers.evidence.weighing import Day
from bucketwise.archivers.format.names import day
from bucketwise.archivers.moving.archive import check_archive
from bucketwise.archivers.reading.archived import archived_reader
from bucketwise.archivers.reading.instant import at_one_instant
from bucketwise.buckets.fields.selectors import Selector, check_selector
from bucketwise.buckets.fields.times import DAY_MS, EVER, TimeRange
from bucketwise.buckets.models.slots import length_ms
from bucketwise.config.errors import UsageError

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
    them of so short a time, or of some series. `expires`: when its tombstone is due."""

    commit: str
    committed: datetime
    buckets: int  # of the whole commit
    readings: int | None
    drilled: datetime | None
    expires: datetime | None


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


def coverage(context: ArchiveContext, archived: Evidence, query: CoverageQuery) -> list[Row]:
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
    found, policy = context.source.span(), context.policy
    if found is None:
        return None
    return found[0], found[1] + (length_ms(policy) if policy.model == "slots" else 1)


def _slices(context: ArchiveContext, start: int, end: int, step: int) -> Iterator[Grid]:
    """Yields slices of one day where there are live readings, since MongoDB keeps an instant readable for
    minutes only. Days without any are taken together."""
    whole = Grid.around(start, end, step)
    at = whole.start
    while at < whole.end:
        live = context.source.earliest(at)
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
            facts = commit.created, commit.buckets, count, held.drilled, held.expires
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
