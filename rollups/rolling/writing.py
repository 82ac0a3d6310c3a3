"""Writes the summaries of slices where they differ from the existing ones."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, pairwise
from typing import Any

import bson
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument

from bucketwise.buckets.bson.cursor import find_raw
from bucketwise.buckets.columns import Series
from bucketwise.buckets.fields.selectors import selects
from bucketwise.buckets.models.series import series_key
from bucketwise.buckets.phases import phase
from bucketwise.config.policies import LevelName, Policy
from bucketwise.rollups.calendar.due import Calendar, Part, Slice, Spans
from bucketwise.rollups.calendar.levels import LOCAL, Level, Span, sources_of
from bucketwise.rollups.calendar.windows import LOWEST, to_ms
from bucketwise.rollups.context import RunContext, share_of
from bucketwise.rollups.holds import Hold, Holds
from bucketwise.rollups.progress import HeldWindow, digest_of
from bucketwise.rollups.rolling.linking import Cell, Linker, Neighbour, following
from bucketwise.rollups.rolling.outlived import OutlivedSummaries
from bucketwise.rollups.rolling.plan import LeftWindows, RollupReport
from bucketwise.rollups.rolling.portions import ALL_PORTIONS, SpilledRecords, portion_of
from bucketwise.rollups.rolling.records import Records
from bucketwise.rollups.rolling.retained import GoneByRule
from bucketwise.rollups.rolling.slices import CellStates, Portion, SliceStates
from bucketwise.rollups.statistics import FieldStatistics, finite_count, is_ordered, statistics_of
from bucketwise.rollups.summaries import documents
from bucketwise.rollups.summaries.summary import State, merge
from bucketwise.rollups.summaries.targets import SummaryDiff, identity_of, target


@dataclass
class Tally:
    """Windows of one level, and what is known of them so far."""

    fields: FieldStatistics
    windows: dict[Span, int | None] = field(default_factory=dict)  # up to where it is made of readings
    merged: set[Span] = field(default_factory=set)  # windows that finer summaries have a part in
    series: dict[bytes, Series] = field(default_factory=dict)
    states: dict[Cell, State] = field(default_factory=dict)
    outlived: set[Cell] = field(default_factory=set)  # hold a summary whose readings are gone
    unsound: set[Cell] = field(default_factory=set)  # lack a summary that can't be merged
    elsewhere: Set[int] = frozenset()  # starts of cells in which series that are not in it have readings
    left: set[Span] = field(default_factory=set)  # windows that stay as they are

    def __post_init__(self) -> None:
        self.is_ordered = is_ordered(self.fields)

    def open(self, parts: Iterable[Part]) -> None:
        """Takes note of windows, and where they are made of readings."""
        for window, span, source in parts:
            known = self.windows.get(window)
            self.windows[window] = span[1] if source is None else known
            if source is not None:
                self.merged.add(window)

    def add_read(self, cells: CellStates, parts: Sequence[Part]) -> None:
        """Adds the states of readings."""
        self.series |= cells.series
        found = cells.by_window({part.span: part.window for part in parts})
        if not self.states:
            self.states = found
        else:
            for cell, state in found.items():
                self.add(cell, state)

    def add(self, cell: Cell, state: State) -> None:
        """Merges a state into that of its cell, of which it may be a later part."""
        existing = self.states.get(cell)
        if existing is not None and self.is_ordered:
            state = following(self.fields, existing, state)
        self.states[cell] = state if existing is None else merge(self.fields, existing, state)

    def filled(self) -> set[Span]:
        """Returns the windows that hold a reading of any series."""
        starts = sorted(self.elsewhere)
        touched = {it for it in self.windows if bisect_left(starts, it[0]) < bisect_left(starts, it[1])}
        return touched | {window for _, window in self.states}

    def drop_left(self) -> None:
        """Forgets the windows that stay as they are."""
        self.windows = {it: to for it, to in self.windows.items() if it not in self.left}
        self.states = {cell: state for cell, state in self.states.items() if cell[1] not in self.left}

    def readings_span(self, window: Span) -> Span:
        """Returns where readings that are gone may make a window less than it was: where it is made of them.
        What finer summaries tell is what it should be."""
        read_to = self.windows[window]
        return (window[0], read_to) if read_to is not None and window in self.merged else window


@dataclass
class SummaryReader:
    """Reads the finer summaries of one slice again, to make coarser ones from them."""

    context: RunContext
    spilled: SpilledRecords

    def states(
        self, level: Level, windows: Sequence[Span], portions: range
    ) -> Iterator[tuple[Cell, Series, State | None]]:
        """Yields the states of all series of these portions in these windows; None for a state that can't be
        merged."""
        wanted, policy = set(windows), self.context.policy
        for raw in self.spilled.of((level.name, *windows), partial(self._read, level, windows), portions):
            summary = bson.decode(raw, documents.OPTIONS)
            if documents.is_of_series(policy, summary) and (window := window_of(summary)) in wanted:
                series = documents.series_of(policy, summary)
                yield (series_key(series), window), series, sound_state(policy, summary)

    def _read(self, level: Level, windows: Sequence[Span]) -> Iterator[bytes]:
        query = {"start": {"$gte": DatetimeMS(windows[0][0]), "$lt": DatetimeMS(windows[-1][1])}}
        fields = documents.state_projection(self.context.policy)
        return chain.from_iterable(
            find_raw(target(self.context.database, level.collection), query, fields=fields)
        )


def portion_of_summary(policy: Policy, raw: bytes) -> int:
    """Returns which portion a summary is in: that of its series; where it was made with other settings, the
    first, so that it goes before another is written in its place."""
    identity = identity_of(raw)
    try:
        summary = {"_id": bson.decode(identity, documents.OPTIONS)}
    except bson.InvalidBSON:
        return 0
    if not documents.is_of_series(policy, summary):
        return 0
    return portion_of(series_key(documents.series_of(policy, summary)))


def window_of(summary: Mapping[str, Any]) -> Span:
    """Returns the window that a summary document is of, milliseconds."""
    return to_ms(summary["start"]), to_ms(summary["end"])


def sound_state(policy: Policy, summary: Mapping[str, Any]) -> State | None:
    """Returns a summary's mergeable state; None where it was made with other settings."""
    try:
        return documents.state_of(summary, policy)
    except (KeyError, TypeError, ValueError):
        return None


@dataclass
class SummaryWriter:
    """Makes summaries from the states of slices, compares them with the existing ones, and counts the
    differences. `records` writes them, or in a dry run leaves them.

    Levels are made from the finest to the coarsest, so that a coarser one is made from the finer ones of the
    same slice.
    """

    context: RunContext
    calendar: Calendar
    records: Records
    outlived_summaries: OutlivedSummaries
    report: RollupReport
    end: int  # what is asked for, of the time that is due
    gone: GoneByRule
    counted_to: int = LOWEST  # readings before it are counted already
    _tallies: dict[LevelName, Tally] = field(default_factory=dict)  # of windows that are yet to be complete
    _made: dict[LevelName, Tally] = field(default_factory=dict)  # of this slice, or some portions of it
    _held: list[HeldWindow] = field(default_factory=list)  # the windows of summaries that only holds keep
    _begin: int | None = None  # when the first slice began
    _done: float = 0.0  # of that time, with this slice
    #: Of this slice: the states of summaries whose neighbours have changed.
    _linked: dict[LevelName, dict[Cell, State]] = field(default_factory=dict)
    _spilled: SpilledRecords = field(init=False)  # summaries that stand, where the slice is in portions

    def __post_init__(self) -> None:
        self._spilled = SpilledRecords(partial(portion_of_summary, self.context.policy))

    @phase("write")
    def write(self, piece: Slice, found: SliceStates | None) -> None:
        """Takes one slice. Slices come in the order of time."""
        self._begin = piece.span[0] if self._begin is None else self._begin
        self._done = share_of(piece.span[1], (self._begin, self.end))
        self._write_ended_windows(piece.span[0])
        if found is None:
            self._take(piece, Portion())
        elif found.unreadable is not None:
            self._leave(piece, found.unreadable)
        else:
            self.records.quarantine.add(found.quarantined)
            self.report.commits |= found.commits
            counted = min(found.cells)  # readings are counted by one clock only
            spans = Spans(piece.to_read(self.calendar.levels)[counted])
            for portion in found.portions():
                self._count(portion.cells[counted], spans)
                self._take(piece, portion)
                del portion  # before the next one is made
            self.counted_to = max(self.counted_to, found.cells[counted].edges[-1])
        self._spilled.clear()
        self._write_ended_windows(piece.span[1])
        self._linked.clear()

    @phase("write")
    def finish(self) -> None:
        """Writes the summaries of the windows that no further slice belongs to."""
        for level in self.calendar.levels:
            if level.name in self._tallies:
                self._write(level, self._tallies.pop(level.name))

    def taken_held(self) -> tuple[Sequence[HeldWindow], Sequence[str]]:
        """Returns the windows of which only holds keep summaries, of those written since it was last called;
        and the digests of the holds."""
        held, self._held = self._held, []
        return held, [it.digest for it in self._holds] if held else []

    def _write_ended_windows(self, before: int) -> None:
        """Writes long windows that end before this instant. Slices come in order, so at most one window
        of each level is waiting."""
        for level in self.calendar.levels:
            tally = self._tallies.get(level.name)
            if tally is not None and all(end <= before for _, end in tally.windows):
                self._write(level, self._tallies.pop(level.name))

    def _leave(self, piece: Slice, reason: str) -> None:
        """Leaves the windows of a slice as they are, and those that it is a part of."""
        read = [span for spans in piece.to_read(self.calendar.levels).values() for span in spans]
        span = min(start for start, _ in read), max(end for _, end in read)
        self.report.left.append(LeftWindows(span, piece.span, reason))
        for level in self.calendar.levels:
            if level.is_long and piece.parts[level.name]:
                fields = statistics_of(self.context.policy)
                tally = self._tallies.setdefault(level.name, Tally(fields))
                tally.open(piece.parts[level.name])
                tally.left.update(piece.windows(level))

    def _take(self, piece: Slice, portion: Portion) -> None:
        """Takes some portions of a slice's series, from the finest level up."""
        for level in self.calendar.levels:
            if piece.parts[level.name]:
                self._gather(level, piece, portion)
        self._made.clear()

    def _gather(self, level: Level, piece: Slice, portion: Portion) -> None:
        fields = statistics_of(self.context.policy)
        tally = self._tallies.setdefault(level.name, Tally(fields)) if level.is_long else Tally(fields)
        tally.open(piece.parts[level.name])
        read = piece.read(level)
        if portion.cells and read:
            tally.add_read(portion.cells[level.local], read)
        tally.unsound |= self._outlived_in(read)
        for source in {part.source for part in piece.merged(level)}:
            assert source is not None
            inner = {
                window: part.window
                for part in piece.merged(level)
                if part.source is source
                for window in source.windows(*part.span)
            }
            due = set(piece.windows(source))
            existing = [window for window in inner if window not in due]
            self._merge(source, inner, tally)
            self._merge_existing(source, inner, existing, portion.numbers, tally)
        if not level.is_long:
            tally.elsewhere = portion.elsewhere.get(level.local, frozenset())
            self._made[level.name] = self._write(level, tally, portion.numbers)

    def _outlived_in(self, read: Iterable[Part]) -> set[Cell]:
        """Returns the windows, of those that are made of readings, in which a finer summary stays without
        its own."""
        finer = [cell for made in self._made.values() for cell in made.outlived]
        return {
            (key, (start, end))
            for (start, end), *_ in read
            for key, inner in finer
            if start <= inner[0] and inner[1] <= end
        }

    def _merge(self, source: Level, inner: Mapping[Span, Span], tally: Tally) -> None:
        """Adds finer summaries of this slice as it made them. `inner`: the window that each is in."""
        finer = self._made.get(source.name)
        if finer is None:
            return
        tally.series |= finer.series
        for (key, window), state in finer.states.items():
            if window in inner:
                tally.add((key, inner[window]), state)
        tally.outlived |= {(key, inner[window]) for key, window in finer.outlived if window in inner}

    def _merge_existing(
        self, source: Level, inner: Mapping[Span, Span], existing: list[Span], portions: range, tally: Tally
    ) -> None:
        """Adds finer summaries as they stand."""
        reader = SummaryReader(self.context, self._spilled)
        for (key, window), series, state in reader.states(source, existing, portions) if existing else ():
            cell = key, inner[window]
            state = self._linked.get(source.name, {}).get((key, window), state)
            tally.series.setdefault(key, series)
            if state is None:
                tally.unsound.add(cell)
            else:
                tally.add(cell, state)

    def _count(self, piece: CellStates, spans: Spans) -> None:
        cells = [start >= self.counted_to and spans.touch(start, end) for start, end in pairwise(piece.edges)]
        states = [state for (_, cell), state in piece.states.items() if cells[cell]]
        readings = sum(state.count for state in states)
        self.report.readings += readings
        for name in self.context.policy.numeric_names:
            self.report.finite[name] += sum(finite_count(state.values[name]) for state in states)
        self.context.progress("rolled-up readings", readings, self._done)

    def _write(self, level: Level, tally: Tally, portions: range = ALL_PORTIONS) -> Tally:
        """Compares and writes the summaries of these portions. Returns the states of the windows
        afterwards, including those kept without readings."""
        policy = self.context.policy
        tally.drop_left()
        if not tally.windows:
            return tally
        linked, gone = self._linked.get(level.name, {}), self.gone.of(level.name)
        linker = Linker(self.context.database, policy, level, linked, gone)
        self._link(linker, tally, {key for key, _ in tally.states})
        computed = {
            documents.identity(policy, tally.series[key], window[0]): documents.summary(
                policy, level, tally.series[key], window, state
            )
            for (key, window), state in tally.states.items()
        }
        outlived = {
            documents.identity(policy, tally.series[key], window[0]) for key, window in tally.outlived
        }
        changes = SummaryDiff(self.context.database, self.context.policy, level)
        keeper = _KeepRule(self.context, self.outlived_summaries, tally, level, lambda: self._holds)
        narrow = partial(self._spilled.of, level.name, portions=portions)
        changes.compare(list(tally.windows), computed, keeper.keeps, outlived, narrow)
        changes.kept -= keeper.ended  # that is as it should be
        self._held += keeper.held
        result = keeper.result
        self._link_again(linker, result, changes, keeper.stays)
        self._put(linker, changes)
        self.gone.leave(changes)
        self.records.apply(changes)
        self.report.of(level.name).add(changes, len(tally.windows) if portions.start == 0 else 0)
        self._link_coarser(linker)
        return result

    def _link(self, linker: Linker, tally: Tally, keys: Set[bytes], kept: Set[Cell] = frozenset()) -> None:
        """Links the states of some series to one another and to the summaries around them."""
        if tally.is_ordered and tally.windows and keys:
            linker.link(tally.windows, tally.series, tally.states, keys, kept)

    def _link_again(self, linker: Linker, tally: Tally, changes: SummaryDiff, kept: Set[Cell]) -> None:
        """Links the series of which summaries go, or stay without their readings, once that is known."""
        if not tally.is_ordered:
            return
        policy, keys = self.context.policy, {key for key, _ in kept}
        for identity in changes.deleted:
            summary = {"_id": bson.decode(identity.raw, documents.OPTIONS)}
            if documents.is_of_series(policy, summary):
                series = documents.series_of(policy, summary)
                tally.series.setdefault(series_key(series), series)
                keys.add(series_key(series))
        before = {cell: state for cell, state in tally.states.items() if cell[0] in keys}
        self._link(linker, tally, keys, kept)
        for cell, state in before.items():
            if tally.states[cell] != state:
                linker.changed[cell] = Neighbour(cell, tally.series[cell[0]], tally.states[cell])

    def _put(self, linker: Linker, changes: SummaryDiff) -> None:
        """Adds the summaries whose neighbours are others now to what is written."""
        self._linked.setdefault(linker.level.name, {}).update(linker.states)
        linker.put(changes)

    def _link_coarser(self, linker: Linker) -> None:
        """Writes the coarser summaries that begin or end with one whose neighbours are others now."""
        for level in self.calendar.levels if linker.changed else ():
            if not sources_of(level, [linker.level]):
                continue
            coarser = linker.coarser(level, self._linked.get(level.name, {}))
            if coarser.changed:
                changes = SummaryDiff(self.context.database, self.context.policy, level)
                self._put(coarser, changes)
                self.gone.leave(changes)
                self.records.apply(changes)
                self.report.of(level.name).add(changes, 0)

    @cached_property
    def _holds(self) -> list[Hold]:
        """Returns the active holds. Reads them when a summary is about to be deleted for the first time."""
        return Holds(self.context.database, self.context.policy.identity).active()


class _KeepRule:
    """Decides which existing summaries stay although their readings now give less. Coarser ones are
    made from these. `ended` counts those whose archived readings have been deleted by `retain.archive`;
    `held`: the windows of those that only a hold keeps."""

    def __init__(
        self,
        context: RunContext,
        outlived: OutlivedSummaries,
        tally: Tally,
        level: Level,
        holds: Callable[[], list[Hold]],
    ) -> None:
        self._holds = holds
        self._policy = context.policy
        self._outlived = outlived
        self._tally = tally
        self._filled = tally.filled()
        self._kept: dict[Cell, State] = {}
        self._level, self._local, self._reach = level, level.local, level.reach
        self._stays: dict[Cell, State] = {}  # the cells whose readings have gone by `retain.archive`
        self.ended = 0
        self.held: list[HeldWindow] = []

    def keeps(self, window: Span, existing: RawBSONDocument, computed: bytes | None) -> bool:
        its_window = window_of(existing) if "end" in existing else window
        is_local = existing.get("timezone") == LOCAL
        is_like_ours = (its_window, is_local) == (window, self._local)
        is_ours = is_like_ours and documents.is_of_series(self._policy, existing)
        raw = bytes(existing.raw)
        if self._outlived.has_ended((window[0] - self._reach, window[1] + self._reach), raw, computed):
            self.ended += 1
            self._stay(self._cell(raw, window) if is_ours else None, raw, self._stays)
            return True
        if not is_ours and (window in self._filled or self._outlived.is_made_anew(its_window, is_local)):
            return False  # one that was made with other settings goes where there are readings
        cell = self._cell(raw, window) if is_ours else None
        span, is_released = self._tally.readings_span(window), self._outlived.is_released(raw, its_window)
        is_kept = (cell in self._tally.unsound and _has_more(raw, computed)) or (
            self._outlived.has_outlived(span, raw, computed, is_released=is_released)
        )
        is_held = not is_kept and computed is None and cell is not None and self._is_held(cell)
        if is_held and cell is not None:
            self.held.append(HeldWindow(*window, digest_of(cell[0])))
        if is_kept or is_held:
            self._stay(cell, raw, self._kept)
        return is_kept or is_held

    def _is_held(self, cell: Cell) -> bool:
        """Returns whether a hold covers a summary whose readings are gone."""
        series, (start, end) = self._tally.series[cell[0]], cell[1]
        return any(
            hold.touches(start - self._reach, end + self._reach)
            and any(selects(series, self._policy, it) for it in hold.selectors(self._policy.series_names))
            for hold in self._holds()
        )

    @property
    def stays(self) -> set[Cell]:
        """Returns the cells of the summaries that stay."""
        return {*self._stays, *self._kept}

    @property
    def result(self) -> Tally:
        """Returns the states of the windows as they are once everything is written."""
        self._tally.states |= self._stays
        if self._kept:
            self._tally.states |= self._kept
            self._tally.outlived |= set(self._kept)
        return self._tally

    def _cell(self, raw: bytes, window: Span) -> Cell:
        summary: dict[str, Any] = bson.decode(raw, documents.OPTIONS)
        series = documents.series_of(self._policy, summary)
        key = series_key(series)
        self._tally.series.setdefault(key, series)
        return key, window

    def _stay(self, cell: Cell | None, raw: bytes, states: dict[Cell, State]) -> None:
        """Takes a summary that stays, with its state. `cell`: None where other settings made it."""
        summary = bson.decode(raw, documents.OPTIONS)
        state = sound_state(self._policy, summary) if cell is not None else None
        if cell is None or state is None:
            self._outlived.outdated += 1
            return
        if window_of(summary) == cell[1]:
            states[cell] = state
        series = self._tally.series[cell[0]]
        made = documents.summary(self._policy, self._level, series, cell[1], state)
        is_like = made == raw or documents.is_like(self._policy, self._level, raw, made)
        self._outlived.outdated += not is_like or documents.lacks_some(self._policy, summary)


def _has_more(existing: bytes, computed: bytes | None) -> bool:
    if computed is None:
        return True
    before, after = (bson.decode(it, documents.OPTIONS)["count"] for it in (existing, computed))
    return bool(before > after)
