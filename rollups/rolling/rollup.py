"""Rolling up: summaries of every due window, equal to a recomputation from what is live or archived."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from itertools import chain, islice, pairwise
from typing import Any

from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database

from buckets.bson.raw import Batch
from buckets.columns import Quarantined, Series
from buckets.decoding.decode import decode
from buckets.source import Source
from config.policies import Policy
from rollups.calendar.due import Calendar, Kind, KindName, Span, Spans, widened
from rollups.calendar.windows import HIGHEST, LOWEST, to_ms
from rollups.changes.late import Late, Shadowed, find_late, live_days, note_live, read_on
from rollups.guarded import Guard
from rollups.progress import Bookmark, Progress, gone_before, load, store
from rollups.rolling.quarantine import Quarantine
from rollups.rolling.slices import Asked, Cells, Found, Reader, shares
from rollups.rolling.worn import Worn
from rollups.summaries import documents
from rollups.summaries.summary import State
from rollups.summaries.targets import Changes, Counts, target
from rollups.tasks import result_of
from rollups.ttl import clears

Document = dict[str, Any]
Windows = dict[KindName, list[Span]]
#: So many tell which series there are.
_LAST_SUMMARIES = 10_000
#: To read past so many summaries in the change stream takes about as long as one more look at it.
_MUCH = 1000


@dataclass
class RollupReport:
    """What a roll-up did, or would do. `readings`: those in the windows looked at, each once."""

    hourly: Counts = field(default_factory=Counts)
    daily: Counts = field(default_factory=Counts)
    readings: int = 0
    finite: Counter[str] = field(default_factory=Counter)  # value field -> how many of them hold a number
    late: Late | None = None  # None: a range was asked for
    quarantined: list[Quarantined] = field(default_factory=list)  # the first thousand
    quarantined_total: int = 0

    def of(self, kind: KindName) -> Counts:
        return self.hourly if kind == "hourly" else self.daily

    def empty_fields(self, policy: Policy) -> list[str]:
        """Returns the value fields in which no reading held a finite number, though some has to."""
        return [name for name in policy.numeric_names if self.readings and not self.finite[name]]


def roll_up(
    database: Database[Document],
    policy: Policy,
    now: datetime,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    whole: bool = False,
    is_cleared: bool = False,
    reader: Reader,
    archived_span: Span | None = None,
    shadowed: Shadowed = tuple,
    books: str,
    guard: Guard,
    check: Callable[[], None],
    dry_run: bool = False,
    progress: Callable[[str, int], None],
) -> RollupReport:
    """Rolls up what is due, and writes what differs.

    `since`, `until`: exactly the due windows that touch that range. `whole`: all of them, but for those whose
    summaries have gone by their `retain`. `is_cleared`: something removes raw data that `reader` does not
    find in an archive. Without a range: what is not rolled up yet, and what has changed since, or may have
    (`rollups.changes.late`). `books`: see `rollups.changes.stream`.
    `guard`: see `rollups.guarded`; each write of summaries asks it.
    `reader` reads what is live and what is archived; `archived_span` holds all archived readings;
    `shadowed()` tells where those lie that don't count since their bucket is live. `check` is called between
    slices of a day and raises where the run must stop; what is done by then stands, and the next run goes on
    from there.
    """
    report = RollupReport()
    if policy.rollup is None or not (policy.rollup.hourly or policy.rollup.daily):
        return report
    calendar = Calendar(policy, policy.rollup, now)
    source, quarantine = Source(database, policy), Quarantine(database, policy, now, dry_run=dry_run)
    is_asked_for = since is not None or until is not None
    archived_from = archived_span[0] if archived_span else None
    cleared = cache(lambda: is_cleared or clears(source))
    worn = Worn(source, policy, archived_from, calendar.recheck_from, cleared, is_asked_for)
    run = _Run(
        database,
        policy,
        calendar,
        source,
        reader,
        archived_span,
        guard,
        dry_run,
        report,
        progress,
        quarantine,
        worn,
    )
    if is_asked_for:
        if not dry_run:
            note_live(database, policy, live_days(source))
        start = LOWEST if since is None else to_ms(since)
        end = HIGHEST if until is None else to_ms(until)
        run.look_at({kind.name: [(start, end)] for kind in calendar.kinds}, check)
    elif whole:
        gone = gone_before(database, policy)
        run.look_at({kind.name: [(gone.get(kind.name, LOWEST), HIGHEST)] for kind in calendar.kinds}, check)
    else:
        run.catch_up(books, shadowed, check)
    return report


@dataclass
class _Run:
    database: Database[Document]
    policy: Policy
    calendar: Calendar
    source: Source
    reader: Reader
    archived_span: Span | None
    guard: Guard
    dry_run: bool
    report: RollupReport
    tell: Callable[[str, int], None]
    quarantine: Quarantine
    worn: Worn
    counted_to: int = LOWEST  # readings before it are counted already

    def catch_up(self, books: str, shadowed: Shadowed, check: Callable[[], None]) -> None:
        """Everything that is not rolled up, or may have changed since it was."""
        calendar = self.calendar
        # Clipped: a run with a later `--now` than this one's said more than is true now.
        loaded = load(self.database, self.policy)
        through = {
            kind.name: min(loaded.through[kind.name], kind.through(calendar.due_end))
            for kind in calendar.kinds
            if kind.name in loaded.through
        }
        late = self.report.late = find_late(
            self.database,
            self.policy,
            self.source,
            Progress(through, loaded.bookmark),
            calendar,
            clears=self.worn.clears,
            books=books,
            shadowed=shadowed,
            check=check,
            dry_run=self.dry_run,
        )
        self.worn.changed = late.changed
        self.source.look_at_texts()  # not before: what comes in from now on is for the next run to hear of
        # An empty source may yet be filled with old readings: its first run is still to come.
        nothing = not through and self.archived_span is None and self.source.earliest() is None
        self.quarantine.add(chain.from_iterable(map(self._quarantined_in, self.source.strays())))
        changed = [*late.spans, *self.quarantine.recheck(self.source)]
        spans = {
            kind.name: [(through.get(kind.name, LOWEST), kind.through(calendar.due_end)), *changed]
            for kind in calendar.kinds
        }
        bookmark = _meanwhile(loaded.bookmark, late.bookmark) if through else late.bookmark

        def begun() -> None:
            if through and not self.dry_run:
                store(self.database, self.policy, Progress(through, bookmark))

        def finished(end: int) -> None:
            if nothing:
                return
            for kind in calendar.kinds:
                reached = kind.through(min(end, calendar.due_end))
                through[kind.name] = max(through.get(kind.name, reached), reached)
            if not self.dry_run:
                store(self.database, self.policy, Progress(through, bookmark))

        self.look_at(spans, check, begun, finished)
        bookmark = late.bookmark
        written = self.report.hourly.written + self.report.daily.written
        if bookmark is not None and late.mode == "stream" and written >= _MUCH and not self.dry_run:
            bookmark = read_on(self.database, self.policy, self.source, bookmark, calendar, books, check)
        finished(calendar.due_end)
        self.quarantine.forget()

    def look_at(
        self,
        wanted: dict[KindName, list[Span]],
        check: Callable[[], None],
        begun: Callable[[], None] = lambda: None,
        finished: Callable[[int], None] = lambda _end: None,
    ) -> None:
        """Every due window that touches its kind's spans, slice by slice. `begun` is called before the first
        is written, if there is any; `finished` hears how far."""
        for number, (piece, windows, found) in enumerate(self._read(wanted, check)):
            if number == 0:
                begun()
            if found is not None:
                self._roll_up(windows, found)
            finished(piece[1])
        self.report.quarantined = self.quarantine.details
        self.report.quarantined_total = self.quarantine.total

    def _read(
        self, wanted: dict[KindName, list[Span]], check: Callable[[], None]
    ) -> Iterator[tuple[Span, Windows, Found | None]]:
        """The slices with their due windows, in the order of time, and what is in them.

        Some are read while an earlier one is written. That a reading comes in, or goes, between the read and
        the write is nothing new: its event is behind the mark up to which the stream was read, which was
        before all of this, so that the next run hears of it. And all reads are made after this is called:
        where buckets are to go once it is done, what they held before doesn't count.
        """
        spans = {kind: Spans(parts) for kind, parts in wanted.items()}
        slices = (
            (piece, {it.name: self.calendar.windows(it, piece, spans[it.name]) for it in self.calendar.kinds})
            for piece in self._slices(widened(self.calendar.kinds, chain.from_iterable(wanted.values())))
        )
        first = list(islice(slices, self.reader.workers))
        # A run has often no more than one slice to read, and several to read it.
        of_each = -(-self.reader.workers // len(first)) if first else 1
        under_way: deque[tuple[Span, Windows, list[Future[Found]]]] = deque()
        largest = 0
        for piece, windows in chain(first, slices):
            check()
            under_way.append((piece, windows, self._ask(windows, of_each)))
            while len(under_way) >= self.reader.ahead(largest):
                found = _joined(under_way[0][2], check)
                largest = max(largest, found.size() if found else 0)
                yield *under_way.popleft()[:2], found
        for piece, windows, parts in under_way:
            check()
            yield piece, windows, _joined(parts, check)

    def _slices(self, spans: Spans) -> Iterator[Span]:
        """The slices in which there is anything: live or archived buckets, or summaries."""
        done = LOWEST
        for start, end in spans.spans:
            at = self._first_slice(max(start, done))
            while at is not None and at < min(end, self.calendar.due_end):
                piece = self.calendar.slice_at(at, done)
                yield piece
                done = piece[1]
                at = self._first_slice(max(at, done))

    def _first_slice(self, at: int) -> int | None:
        """An instant, at or after `at`, in the first slice whose windows may have something in them."""
        reach = self.calendar.reach
        found = self._next(max(LOWEST, at - reach))
        return None if found is None else max(at, found - reach)

    def _next(self, at: int) -> int | None:
        """The first instant at or after `at` where there is something to look at."""
        found = [self.source.earliest(at)]
        if self.archived_span is not None and at < self.archived_span[1]:
            found.append(max(at, self.archived_span[0]))
        for kind in self.calendar.kinds:
            later = {"start": {"$gte": DatetimeMS(at)}}
            first = target(self.database, kind.collection).find_one(later, {"start": 1}, sort=[("start", 1)])
            found.append(documents.milliseconds(first["start"]) if first else None)
        return min((instant for instant in found if instant is not None), default=None)

    def _ask(self, windows: Windows, of_each: int) -> list[Future[Found]]:
        """To read a slice, in so many shares."""
        of_clock = self._of_clock(windows)
        if not of_clock:
            return []
        edges = {local: sorted({edge for span in it for edge in span}) for local, it in of_clock.items()}
        bounds = self._bounds(of_each) if of_each > 1 else []
        return [self.reader.read(Asked(edges, share, self.source.is_plain)) for share in shares(bounds)]

    def _of_clock(self, windows: Windows) -> dict[bool, list[Span]]:
        found: dict[bool, list[Span]] = {}
        for kind in self.calendar.kinds:
            if windows[kind.name]:
                found.setdefault(kind.local, []).extend(windows[kind.name])
        return found

    def _bounds(self, count: int) -> list[Any]:
        """Values of the first series field that cut the series in so many parts, each about as large. They
        are those of the last summaries: whatever they are, no bucket is missed."""
        if not self.policy.series_fields or self.policy.model == "timeseries":
            return []
        series = f"$_id.series.{self.policy.series_names[0]}"
        last: list[Document] = [{"$sort": {"start": -1}}, {"$limit": _LAST_SUMMARIES}]
        of_last: list[Document] = [*last, {"$group": {"_id": series}}, {"$sort": {"_id": 1}}]
        name = self.calendar.kinds[-1].collection
        summaries = self.database.get_collection(name, codec_options=documents.OPTIONS)
        known = [it["_id"] for it in summaries.aggregate(of_last)]
        return [known[at * len(known) // count] for at in range(1, count)] if len(known) >= count else []

    def _roll_up(self, windows: Windows, found: Found) -> None:
        self.quarantine.add(found.quarantined)
        counted = min(found.cells)  # readings are counted by one clock only
        self._count(found.cells[counted], self._of_clock(windows)[counted])
        for kind in self.calendar.kinds:
            if windows[kind.name]:
                self._write(kind, windows[kind.name], found.cells[kind.local])

    def _count(self, piece: Cells, windows: list[Span]) -> None:
        cells = [
            start >= self.counted_to and any(low <= start < high for low, high in windows)
            for start, _ in pairwise(piece.edges)
        ]
        states = [state for (_, cell), state in piece.states.items() if cells[cell]]
        readings = sum(state.count for state in states)
        self.counted_to = max(self.counted_to, piece.edges[-1])
        self.report.readings += readings
        for name in self.policy.numeric_names:
            self.report.finite[name] += sum(state.values[name].count for state in states)
        self.tell("rolled-up readings", readings)

    def _write(self, kind: Kind, windows: list[Span], piece: Cells) -> None:
        merged = piece.by_window(windows)
        computed = {
            documents.identity(self.policy, piece.series[key], window[0]): self._document(
                kind, piece.series[key], window, state
            )
            for (key, window), state in merged.items()
        }
        filled = {window for _, window in merged}
        changes = Changes(self.database, kind.collection)
        fields = {name.split(".")[0] for name in self.policy.series_names}

        def keeps(window: Span, standing: RawBSONDocument, computed: bytes | None) -> bool:
            if computed is None and window in filled:
                # One that was made with other settings goes where the window has readings.
                series, start = standing["_id"]["series"], documents.milliseconds(standing["start"])
                if start != window[0] or set(series) != fields:
                    return False
            return self.worn.is_worn(window, bytes(standing.raw), computed)

        changes.compare(windows, computed, keeps)
        if not self.dry_run:
            changes.apply(self.policy, self.guard)
        counts = self.report.of(kind.name)
        counts.due += len(windows)
        counts.written += len(changes.replaced) + len(changes.deleted)
        counts.deleted += len(changes.deleted)
        counts.unchanged += changes.unchanged
        counts.kept += changes.kept

    def _document(self, kind: Kind, series: Series, window: Span, state: State) -> bytes:
        if kind.name == "hourly":
            return documents.hourly(self.policy, series, window[0], state)
        return documents.daily(self.policy, series, *window, kind.zone_name, state)

    def _quarantined_in(self, batch: Batch) -> list[Quarantined]:
        return decode(batch, self.policy).quarantined


def _joined(parts: list[Future[Found]], check: Callable[[], None]) -> Found | None:
    """What all shares of a slice hold; None where nothing was asked for."""
    if not parts:
        return None
    found, *others = (result_of(part, check) for part in parts)
    for other in others:
        found.add(other)
    return found


def _meanwhile(old: Bookmark | None, new: Bookmark | None) -> Bookmark | None:
    """Until all is done: the next run has to hear of the same changes, and where what is live now was."""
    if old is None or new is None:
        return old
    return replace(old, live=Spans([*old.live, *new.live]).spans)
