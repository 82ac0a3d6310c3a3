"""Answers on an even grid: statistics of each step of a range, and what fills steps without readings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial, reduce
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

from bson.datetime_ms import DatetimeMS
from pymongo.database import Database

from bucketwise.buckets.bson.cursor import SIMPLE
from bucketwise.buckets.columns import Series
from bucketwise.buckets.fields.selectors import check_selector, selects, series_order, summary_query
from bucketwise.buckets.fields.times import DAY_MS
from bucketwise.buckets.models.series import series_key
from bucketwise.config.errors import UsageError
from bucketwise.config.policies import Policy, ValueField
from bucketwise.config.times import format_duration
from bucketwise.rollups import progress
from bucketwise.rollups.answers import Question, percentiles_of, removed_within, states_in
from bucketwise.rollups.calendar.levels import Level, Span, aligned_levels
from bucketwise.rollups.calendar.tiling import Tiling, TilingPiece, existing_windows, instant, tile
from bucketwise.rollups.calendar.windows import HIGHEST, LOWEST, day_edges, span_ms
from bucketwise.rollups.statistics import COUNTER_GAP, FieldStatistics, statistics_of
from bucketwise.rollups.statistics.base import EdgesState
from bucketwise.rollups.statistics.moments import Moments
from bucketwise.rollups.statistics.steps import Reading, Steps
from bucketwise.rollups.summaries import coverage, documents
from bucketwise.rollups.summaries.summary import State, closed, merge

Fill = Literal["previous", "linear", "null"]
_PLAIN = ValueField()


class Filling(ABC):
    """A way to fill. `looks_around`: it needs the reading before what it fills; `looks_ahead`: also the one
    behind it."""

    looks_around: ClassVar[bool] = True
    looks_ahead: ClassVar[bool] = False

    @abstractmethod
    def value(self, at: int, before: Reading | None, after: Reading | None, gap: int) -> float | None:
        """Returns the value at an instant between two readings; None where it is unknown. `gap`: in
        milliseconds."""

    @abstractmethod
    def over(
        self, span: Span, before: Reading | None, after: Reading | None, gap: int
    ) -> Mapping[str, float] | None:
        """Returns the extremes and the average over a span between two readings, and the values at its ends;
        None where they are unknown."""


class Previous(Filling):
    """A value stays until the next reading."""

    def value(self, at: int, before: Reading | None, after: Reading | None, gap: int) -> float | None:  # noqa: ARG002
        """Returns the value of the last reading."""
        return None if before is None or at - before[0] > gap else before[1]

    def over(
        self, span: Span, before: Reading | None, after: Reading | None, gap: int
    ) -> Mapping[str, float] | None:
        """Returns the value of the last reading as each of them."""
        value = self.value(span[0], before, after, gap)
        return None if value is None else dict.fromkeys(("min", "max", "avg", "first", "last"), value)


class Linear(Filling):
    """A value changes evenly until the next reading."""

    looks_ahead = True

    def value(self, at: int, before: Reading | None, after: Reading | None, gap: int) -> float | None:
        """Returns the value on the line between the readings."""
        return None if (line := _line(before, after, gap)) is None else _on(line, at)

    def over(
        self, span: Span, before: Reading | None, after: Reading | None, gap: int
    ) -> Mapping[str, float] | None:
        """Returns what the line between the readings has in the span."""
        if (line := _line(before, after, gap)) is None:
            return None
        first, middle, last = (_on(line, at) for at in (span[0], sum(span) / 2, span[1]))
        low, high = sorted((first, last))
        return {"min": low, "max": high, "avg": middle, "first": first, "last": last}


class Null(Filling):
    """Nothing is known."""

    looks_around = False

    def value(self, at: int, before: Reading | None, after: Reading | None, gap: int) -> float | None:
        """Returns None."""

    def over(
        self, span: Span, before: Reading | None, after: Reading | None, gap: int
    ) -> Mapping[str, float] | None:
        """Returns None."""


FILLINGS: Mapping[Fill, Filling] = {"previous": Previous(), "linear": Linear(), "null": Null()}


def gaps(policy: Policy) -> dict[str, int]:
    """Returns how far apart two readings of each value field may lie for what is between them to be known, in
    milliseconds."""
    told = (policy.values.get(path, _PLAIN) for path in policy.value_fields)
    named = zip(policy.value_names, told, strict=True)
    return {name: span_ms(it.max_gap or COUNTER_GAP) for name, it in named}


def is_step(before: Reading | None, after: Reading | None, gap: int) -> bool:
    """Returns whether a step leads from one reading to the other."""
    return before is not None and after is not None and after[0] - before[0] <= gap


def _line(before: Reading | None, after: Reading | None, gap: int) -> tuple[Reading, Reading] | None:
    if before is None or after is None or not is_step(before, after, gap):
        return None
    return before, after


def _on(line: tuple[Reading, Reading], at: float) -> float:
    one, other = line
    share = (at - one[0]) / (other[0] - one[0])
    found: float = one[1] * (1 - share) + other[1] * share
    return found


Document = dict[str, Any]
#: Of a grid: more are hardly meant.
MOST_STEPS = 100_000
_BATCH_SIZE = 500
_LONGEST = 7 * DAY_MS  # windows that make up steps: months are of no one length


@dataclass(frozen=True)
class GridQuestion:
    """Tells what to summarize, in steps of which length, and what steps without readings show; None: they are
    left out."""

    question: Question
    every: timedelta
    fill: Fill | None = None


class Point(NamedTuple):
    """One step of a series, with what a summary shows. `is_filled`: it has no reading."""

    span: Span
    is_filled: bool
    statistics: Document


@dataclass(frozen=True)
class GridAnswer:
    """The points of each series, sorted by series, in the order of time. Steps that summaries cover in part
    are not among them; `missing` has them."""

    policy: Policy
    steps: Sequence[Span]
    percentiles: tuple[float, ...]
    tiling: Tiling
    summaries: int
    series: Sequence[tuple[Series, Sequence[Point]]]
    missing: Sequence[TilingPiece]


def grid_steps(policy: Policy, span: Span, every: timedelta) -> list[Span]:
    """Returns the steps that make up a range. Whole days follow the calendar of the policy's summaries, if
    the range begins with one. Raises UsageError where windows don't make up the steps, or steps the range."""
    length, text = span_ms(every), f"--every {format_duration(every)}"
    levels = aligned_levels(policy)
    if not levels:
        raise UsageError(f"policy {policy.name} makes no summaries: add a rollup to it")
    finest = levels[0]
    if length % finest.row.length or finest.row.length > _LONGEST:
        raise UsageError(
            f"{text}: the finest level that policy {policy.name} keeps is {finest.name}, and this is no "
            f"multiple of its windows ({finest.row.noun}). `bucketwise readings` takes any"
        )
    if (span[1] - span[0]) // length > MOST_STEPS:
        raise UsageError(
            f"{text}: the range has more than {MOST_STEPS:,} such steps. Ask for a shorter range, or longer "
            "steps"
        )
    if (near := finest.edges(span[0], span[0] + 1))[0] != span[0]:
        raise UsageError(
            f"--since {instant(span[0])}: no window begins there. The nearest begin at {instant(near[0])} "
            f"and {instant(near[1])}"
        )
    edges = _edges(finest, span, length)
    if edges[-1] != span[1]:
        raise UsageError(
            f"--until {instant(span[1])}: steps of {format_duration(every)} from {instant(span[0])} don't "
            f"end there, but at {instant(edges[-1])}"
        )
    return list(pairwise(edges))


def _edges(finest: Level, span: Span, length: int) -> list[int]:
    """Returns the edges of steps from the start of a range, up to the first one that is not inside it."""
    start, end = span
    later = min(end + 2 * length, HIGHEST)
    found = [*range(start, later, length)]
    if finest.step is None:
        found = finest.edges(start, later)[:: length // finest.row.length]
    elif length % DAY_MS == 0:
        days = day_edges(start, later, finest.zone).tolist()
        found = days[:: length // DAY_MS] if days[0] == start else found
    return found[: next(at for at, edge in enumerate(found) if edge >= end) + 1]


def summarize_grid(
    database: Database[Document],
    policy: Policy,
    asked: GridQuestion,
    check: Callable[[], None] = lambda: None,
) -> GridAnswer:
    """Returns the statistics of each step of a range, each equal to the bit to those of its readings.

    Memory grows with the number of points. Raises what `answers.summarize` does, and UsageError where no
    whole windows make up the steps."""
    question = asked.question
    check_selector(policy, question.series)
    filling = FILLINGS[asked.fill] if asked.fill else None
    looks_around = filling is not None and filling.looks_around
    if looks_around and not question.by_series:
        raise UsageError(f"--fill {asked.fill} fills each series by itself: leave out --by none")
    percents = percentiles_of(policy, question.percentiles)
    steps = grid_steps(policy, question.range, asked.every)
    tiled = _Tiled.of(database, policy, steps)
    fields = statistics_of(policy, percents)
    names, found, count = dict[bytes, Series](), dict[bytes, dict[int, State]](), 0
    starts = [start for start, _ in steps]
    for piece in tiled.pieces:
        level = tiled.levels[piece.level]
        for start, name, state in states_in(database, policy, level, piece, question.series, percents):
            key, at = series_key(name), bisect_right(starts, start) - 1
            names[key] = name
            of_series = found.setdefault(key, {})
            of_series[at] = merge(fields, of_series[at], state) if at in of_series else state
            count += 1
            if count % _BATCH_SIZE == 0:
                check()
    around = _Around(database, policy, question, steps)
    known = around.edges(percents) if looks_around else {}
    names |= {key: name for key, (name, _) in known.items()}
    points = _Points(policy, fields, steps, tiled.covered, filling, gaps(policy))
    series: list[tuple[Series, list[Point]]]
    if question.by_series:
        series = [(names[key], points.of(found.get(key, {}), known.get(key, ((), {}))[1])) for key in names]
    else:
        series = [((), points.of(_together(fields, steps, found.values()), {}))] if found else []
    answered = sorted(series, key=lambda it: series_order(it[0]))
    removed = list(removed_within(database, policy, tiled.tiling))
    missing = sorted([*tiled.tiling.missing, *removed], key=lambda it: (it.start, it.end))
    return GridAnswer(policy, steps, percents, tiled.tiling, count, answered, missing)


def _together(
    fields: FieldStatistics, steps: Sequence[Span], found: Iterable[Mapping[int, State]]
) -> dict[int, State]:
    """Returns the states of all series in one, by step: each is closed first."""
    by_step: dict[int, list[State]] = {}
    for states in found:
        for at, state in states.items():
            by_step.setdefault(at, []).append(closed(fields, state, steps[at]))
    return {at: reduce(partial(merge, fields), states) for at, states in by_step.items()}


@dataclass(frozen=True)
class _Tiled:
    """Which windows make up the steps. `covered`: the steps that have summaries, all of them."""

    levels: Mapping[str, Level]
    tiling: Tiling
    covered: Sequence[bool]

    @property
    def pieces(self) -> Sequence[TilingPiece]:
        """Returns adjoining windows of one level, as long as can be."""
        return self.tiling.pieces

    @classmethod
    def of(cls, database: Database[Document], policy: Policy, steps: Sequence[Span]) -> _Tiled:
        loaded = progress.load(database, policy)
        levels = {level.name: level for level in aligned_levels(policy)}
        longest = max(end - start for start, end in steps)
        fit = [it for it in levels.values() if it.row.length <= longest or it is next(iter(levels.values()))]
        available = [existing_windows(it, loaded.through, loaded.gone) for it in fit]
        pieces, missing, covered = list[TilingPiece](), list[TilingPiece](), list[bool]()
        for step in steps:
            found = tile(available, *step)
            covered.append(not found.missing)
            for kept, some in ((pieces, found.pieces), (missing, found.missing)):
                for piece in some:
                    _append(kept, piece)
        return cls({str(name): it for name, it in levels.items()}, Tiling(pieces, missing), covered)


def _append(pieces: list[TilingPiece], piece: TilingPiece) -> None:
    """Adds a piece to those before it, as part of the last one where it adjoins that."""
    last = pieces[-1] if pieces else None
    is_one = last is not None and (last.end, last.reason) == (piece.start, piece.reason)
    if last is not None and is_one and (piece.reason or last.level == piece.level):
        pieces[-1] = last._replace(end=piece.end, windows=last.windows + piece.windows)
    else:
        pieces.append(piece)


#: The last reading before a range, and the first one behind it, of each value field.
_Outside = dict[str, tuple[Reading | None, Reading | None]]


@dataclass(frozen=True)
class _Around:
    """Finds the readings around a range, as far away as they count."""

    database: Database[Document]
    policy: Policy
    question: Question
    steps: Sequence[Span]

    def edges(self, percents: Sequence[float]) -> dict[bytes, tuple[Series, _Outside]]:
        """Returns the readings around the range, by the key of their series."""
        found: dict[bytes, tuple[Series, _Outside]] = {}
        level = aligned_levels(self.policy)[0]
        for name, gap in gaps(self.policy).items():
            for ahead in (False, True):
                for series, edges in self._nearest(level, name, gap, percents, ahead=ahead):
                    _, outside = found.setdefault(series_key(series), (series, {}))
                    before, after = outside.get(name, (None, None))
                    reading = _reading(edges, 0 if ahead else 1)
                    outside[name] = (before, reading) if ahead else (reading, after)
        return found

    def _nearest(
        self, level: Level, name: str, gap: int, percents: Sequence[float], *, ahead: bool
    ) -> Iterator[tuple[Series, EdgesState]]:
        """Yields the first and last reading of the nearest summary of each series that holds a number of a
        field: one command finds those of all series."""
        start, end = self.steps[0][0], self.steps[-1][1]
        reach = gap + level.row.length + DAY_MS
        low, high = (end, min(HIGHEST, end + reach)) if ahead else (max(LOWEST, start - reach), start)
        wanted = {
            "start": {"$gte": DatetimeMS(low), "$lt": DatetimeMS(high)},
            "_id.series": {"$exists": True},
            f"{name}.count": {"$gt": 0},
            **summary_query(self.question.series),
        }
        collection = self.database.get_collection(level.collection, codec_options=documents.OPTIONS)
        order = {"$sort": {"start": 1 if ahead else -1}}
        group = {"$group": {"_id": "$_id.series", "summary": {"$first": "$$ROOT"}}}
        for found in collection.aggregate([{"$match": wanted}, order, group], collation=SIMPLE):
            summary = found["summary"]
            if not documents.is_of_series(self.policy, summary):
                continue
            series = documents.series_of(self.policy, summary)
            if selects(series, self.policy, self.question.series):
                yield series, documents.state_of(summary, self.policy, percents).values[name][1]


def _reading(edges: EdgesState, at: Literal[0, 1]) -> Reading | None:
    """Returns the first or the last reading; None where its value is unknown."""
    if not edges or edges[at][2] is None:
        return None
    when, _, value = edges[at]
    assert value is not None
    return when, value


@dataclass(frozen=True)
class _Points:
    """Makes the points of a series out of its states."""

    policy: Policy
    fields: FieldStatistics
    steps: Sequence[Span]
    covered: Sequence[bool]
    filling: Filling | None
    gaps: Mapping[str, int]

    def of(self, states: Mapping[int, State], outside: _Outside) -> list[Point]:
        """Returns the points. `states`: by step; closed, where they are of several series."""
        at_all = range(len(self.steps)) if self.filling else sorted(states)
        wanted = [at for at in at_all if self.covered[at]]
        around = {name: self._around(name, states, outside) for name in self.fields}
        return [self._point(at, states.get(at), around) for at in wanted]

    def _around(
        self, name: str, states: Mapping[int, State], outside: _Outside
    ) -> list[tuple[Reading | None, Reading | None]]:
        """Returns the last reading before each step and the first one behind it."""
        if self.filling is None or not self.filling.looks_around:
            return [(None, None)] * len(self.steps)
        before, after = outside.get(name, (None, None))
        held = [states[at].values[name][1] if at in states else () for at in range(len(self.steps))]
        befores, afters = list[Reading | None](), list[Reading | None]()
        for edges in held:
            befores.append(before)
            before = _reading(edges, 1) if edges else before
        for edges in reversed(held):
            afters.append(after)
            after = _reading(edges, 0) if edges else after
        return list(zip(befores, reversed(afters), strict=True))

    def _point(
        self,
        at: int,
        state: State | None,
        around: Mapping[str, Sequence[tuple[Reading | None, Reading | None]]],
    ) -> Point:
        span, is_filled = self.steps[at], state is None
        if state is None:
            empty = {name: tuple(kind.empty for kind in kinds) for name, kinds in self.fields.items()}
            state = State(0, empty)
        interval = coverage.interval_of(self.policy)
        complete = None if interval is None else coverage.measure(state.occupied, *span, interval)
        told = documents.statistics(closed(self.fields, state, span), self.fields, complete)
        for name, kinds in self.fields.items():
            if self.filling is not None and not state.values[name][0][0]:
                told["values"][name] |= self._filled(name, kinds, span, around[name][at])
        return Point(span, is_filled, told)

    def _filled(
        self, name: str, kinds: Sequence[Any], span: Span, around: tuple[Reading | None, Reading | None]
    ) -> Document:
        """Returns what a step without a number shows of a value field."""
        before, after = around
        assert self.filling is not None
        values = self.filling.over(span, before, after, self.gaps[name])
        if values is None:
            return {}
        found = {key: it if kinds[0].kept.shows(key) else None for key, it in values.items()}
        if before is not None and after is not None and is_step(before, after, self.gaps[name]):
            for kind in kinds:
                if isinstance(kind, Steps) and not kind.has_texts:
                    state = (None, before, before, None, kind.part(before, after, span))
                    found |= kind.shown(state, Moments.empty)
        return {**found, "filled": True}
