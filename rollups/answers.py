"""Answers made of summaries, never of raw readings: the statistics of any range, and holes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial, reduce
from typing import Any, NamedTuple

import bson
from bson.datetime_ms import DatetimeMS
from pymongo.collection import Collection
from pymongo.database import Database

from bucketwise.buckets.bson.cursor import SIMPLE
from bucketwise.buckets.columns import Series
from bucketwise.buckets.fields.selectors import (
    Selector,
    check_selector,
    extended_json,
    selects,
    series_order,
    summary_query,
)
from bucketwise.buckets.fields.times import as_date
from bucketwise.buckets.models.series import series_key
from bucketwise.config.errors import BucketwiseError, UsageError
from bucketwise.config.policies import Policy
from bucketwise.config.times import format_duration
from bucketwise.rollups import progress
from bucketwise.rollups.calendar.levels import Level, Span, aligned_levels
from bucketwise.rollups.calendar.tiling import Tiling, TilingPiece, existing_windows, instant, tile
from bucketwise.rollups.calendar.windows import HIGHEST, HOUR, LOWEST, span_ms, to_ms
from bucketwise.rollups.standing import removed_summaries
from bucketwise.rollups.statistics import is_ordered, keeps_percentiles, statistics_of
from bucketwise.rollups.summaries import coverage, documents
from bucketwise.rollups.summaries.summary import State, closed, merge

Document = dict[str, Any]
_BATCH_SIZE = 500  # summaries in memory as documents


@dataclass(frozen=True)
class Question:
    """Tells what to summarize: the range [since, until), and how."""

    since: datetime
    until: datetime
    series: Selector = field(default_factory=dict)  # series fields and the text of their values
    percentiles: Sequence[float] | None = None  # any from 0 to 100, both included; None: the policy's own
    by_series: bool = True  # one state a series; else one of all together

    @property
    def range(self) -> Span:
        """Returns the range in milliseconds. Raises UsageError where there is none."""
        start, end = to_ms(self.since), to_ms(self.until)
        if not LOWEST <= start < end < HIGHEST:
            raise UsageError(
                f"{self.since} to {self.until}: the range is empty, or outside the years 1 to 9999"
            )
        return start, end


@dataclass(frozen=True)
class Answer:
    """The merged summaries of a range.

    `removed`: where somebody has removed summaries that it would be made of.
    `states`: the state, closed, over the range of each requested series that has a reading, sorted by series.
    If one answer for all series was requested, there is at most one state, that of the series (). The
    stretches in `tiling.missing` are not included.
    """

    policy: Policy
    since: int  # milliseconds
    until: int
    percentiles: tuple[float, ...]
    tiling: Tiling
    summaries: int  # how many were merged
    states: Sequence[tuple[Series, State]]
    removed: Sequence[TilingPiece] = ()

    @property
    def is_complete(self) -> bool:
        """Returns whether summaries cover the whole range."""
        return not self.missing

    @property
    def missing(self) -> list[TilingPiece]:
        """Returns the stretches without summaries, or without some of them, in the order of time."""
        return sorted([*self.tiling.missing, *self.removed], key=lambda it: (it.start, it.end))

    def statistics(self, state: State) -> Document:
        """Returns a state with the names of a summary: `count`, and in `values` each value field by its name.
        Where the policy expects an interval, also tells what is missing, unless the range itself is
        incomplete."""
        interval = coverage.interval_of(self.policy)
        completeness = None
        if interval is not None and self.is_complete:
            completeness = coverage.measure(state.occupied, self.since, self.until, interval)
        return documents.statistics(state, statistics_of(self.policy, self.percentiles), completeness)


def summarize(
    database: Database[Document],
    policy: Policy,
    question: Question,
    check: Callable[[], None] = lambda: None,
) -> Answer:
    """Returns the statistics of a range, equal to the bit to those of its readings.

    `check` is called regularly and raises if the call must stop. Memory grows with the number of series, not
    of windows. If days follow the readings' own clocks, hours answer; without hours, whole local dates do,
    and the range is then in those clocks' time.

    Raises UsageError if no whole windows make up the range, or if the policy keeps no percentiles;
    BucketwiseError if a summary cannot be used. A range that summaries cover only in part is answered as far
    as possible: see `Answer.tiling`.
    """
    check_selector(policy, question.series)
    percents = percentiles_of(policy, question.percentiles)
    start, end = question.range
    loaded = progress.load(database, policy)
    levels = {level.name: level for level in aligned_levels(policy)}
    available = [existing_windows(it, loaded.through, loaded.gone) for it in levels.values()]
    tiling = tile(available, start, end)
    fields, merged = statistics_of(policy, percents), dict[bytes, tuple[Series, State]]()
    count, steps = 0, is_ordered(fields)  # steps are those of one series
    for piece in tiling.pieces:
        level, selector = levels[piece.level], question.series
        for _, found, state in states_in(database, policy, level, piece, selector, percents):
            name = found if question.by_series or steps else ()
            key = series_key(name)
            merged[key] = (name, merge(fields, merged[key][1], state) if key in merged else state)
            count += 1
            if count % _BATCH_SIZE == 0:
                check()
    shown = [(name, closed(fields, state, (start, end))) for name, state in merged.values()]
    if not question.by_series and shown:
        shown = [((), reduce(partial(merge, fields), (state for _, state in shown)))]
    states = sorted(shown, key=lambda it: series_order(it[0]))
    removed = list(removed_within(database, policy, tiling))
    return Answer(policy, start, end, percents, tiling, count, states, removed)


def removed_within(database: Database[Document], policy: Policy, tiling: Tiling) -> Iterator[TilingPiece]:
    """Yields the stretches of which somebody has removed summaries, by UTC months."""
    used = [level for level in aligned_levels(policy) if tiling.windows(level.name)]
    for it in removed_summaries(database, policy, used):
        again = "their readings are gone" if it.is_lost else "a run makes again what readings give"
        reason = f"{it.summaries:,} {it.level.name} summaries were removed by somebody: {again}"
        for piece in tiling.pieces:
            start, end = max(it.span[0], piece.start), min(it.span[1], piece.end)
            if piece.level == it.level.name and start < end:
                yield TilingPiece(start, end, piece.level, 0, reason)


def percentiles_of(policy: Policy, requested: Sequence[float] | None) -> tuple[float, ...]:
    """Returns the percentiles that are asked for; None: those of the policy. Raises UsageError where there
    are none such."""
    if requested is None:
        return policy.rollup.percentiles if policy.rollup else ()
    for percent in requested:
        if not 0 <= percent <= 100:
            raise UsageError(
                f"there is no percentile {percent:g}: write numbers from 0 to 100, both included"
            )
    if requested and not keeps_percentiles(policy):
        remedy = (
            "Name them in `statistics` of its rollup"
            if policy.rollup is not None and policy.rollup.percentiles
            else "Add `percentiles = [50]` to its rollup; the next `bucketwise rollup` then recomputes its "
            "summaries"
        )
        raise UsageError(f"policy {policy.name} keeps no percentiles. {remedy}")
    return tuple(dict.fromkeys(requested))


def states_in(
    database: Database[Document],
    policy: Policy,
    level: Level,
    piece: TilingPiece,
    selector: Selector,
    percents: Sequence[float],
) -> Iterator[tuple[int, Series, State]]:
    """Yields when the windows of a piece begin, their series, and their states."""
    collection: Collection[Document] = database.get_collection(
        level.collection, codec_options=documents.OPTIONS
    )
    wanted = {
        "start": {"$gte": DatetimeMS(piece.start), "$lt": DatetimeMS(piece.end)},
        "_id.series": {"$exists": True},  # only summaries have such an `_id`
        **summary_query(selector),
    }
    window: Span | None = None
    fields = documents.state_projection(policy)
    for found in collection.find(wanted, fields, batch_size=_BATCH_SIZE, collation=SIMPLE):
        series = documents.series_of(policy, found)
        if not selects(series, policy, selector):
            continue
        start, end = to_ms(found["start"]), to_ms(found["end"])
        if window != (start, end):
            window = start, end
            if level.edges(start, start + 1) != [start, end]:
                raise _unusable(collection, found, "its window is not one of this policy's")
        try:
            state = documents.state_of(found, policy, percents)
        except ValueError as error:
            raise _unusable(collection, found, str(error)) from error
        yield start, series, state


def _unusable(collection: Collection[Document], found: Mapping[str, Any], why: str) -> BucketwiseError:
    start, end = (instant(to_ms(found[key])) for key in ("start", "end"))
    series = extended_json(found["_id"]["series"])
    return BucketwiseError(
        f"a summary in {collection.name}, of {series} from {start} to {end}, can't be used: "
        f"{why}. Was it made with other settings? `bucketwise rollup --since {start} --until {end}` "
        "recomputes it where its readings are live or archived"
    )


class Hole(NamedTuple):
    """A span [start, end), milliseconds, without a reading of a series."""

    start: int
    end: int
    series: dict[str, Any]
    collection: str

    def message(self, policy: Policy) -> str:
        """Returns a sentence that describes the hole: its series, start, end, and the expected interval."""
        named = ", ".join(f"{name}={extended_json(_at(self.series, name))}" for name in policy.series_names)
        of = f"of {named} " if named else ""
        mark = " local time" if aligned_levels(policy)[0].local else "Z"
        start, end = (as_date(ms).isoformat().replace("+00:00", mark) for ms in (self.start, self.end))
        seconds = (self.end - self.start) / 1000
        expected = format_duration(policy.expected_interval)
        return f"no reading {of}from {start} to {end}, {seconds:g} s; one is expected every {expected}"


class _Covered(NamedTuple):
    """How far the summaries of a series have been read."""

    reached: int  # everything before it has been read
    end: int  # of the last window


def longest_holes(database: Database[Document], policy: Policy, at_most: int) -> tuple[list[Hole], int]:
    """Returns the longest holes, in the order of time, and how many more there are.

    Reads daily summaries where they are made, and hourly ones after the last day; if days are local, hourly
    ones alone. A hole may span windows, and windows without a summary are part of it. There is none before a
    series' first reading, or after its last window."""
    shortest = span_ms(policy.max_hole) if policy.max_hole is not None else 0
    longest: list[tuple[int, int, Hole]] = []
    count = 0
    for count, hole in enumerate(_holes(database, policy, shortest), start=1):
        ranked = (hole.end - hole.start, -count, hole)
        if len(longest) < at_most:
            heapq.heappush(longest, ranked)
        else:
            heapq.heappushpop(longest, ranked)
    found = sorted((hole for _, _, hole in longest), key=lambda hole: hole.start)
    return found, count - len(found)


def _holes(database: Database[Document], policy: Policy, shortest: int) -> Iterator[Hole]:
    interval = coverage.interval_of(policy)
    if interval is None:
        return
    covered: dict[bytes, _Covered] = {}
    collection = ""
    for collection, summary in _summaries(database, policy):
        series = summary["_id"]["series"]
        key = bson.encode(series, codec_options=documents.OPTIONS)
        window = to_ms(summary["start"]), to_ms(summary["end"])
        spans = _spans(summary, window, interval)
        reached, end = covered.get(key, _Covered(spans[0][0], window[1]))
        for start, stop in spans:
            if start - reached > shortest:
                yield Hole(reached, start, series, collection)
            reached = max(reached, stop)
        covered[key] = _Covered(reached, max(end, window[1]))
    for key, (reached, end) in covered.items():
        if end - reached > shortest:
            yield Hole(reached, end, bson.decode(key, documents.OPTIONS), collection)


def _spans(summary: Mapping[str, Any], window: Span, interval: int) -> list[Span]:
    """Returns the spans that hold readings. If they are not known, returns the whole window, so that no
    hole is reported."""
    try:
        runs = coverage.unpack(summary.get("coverage"), window[0], interval)
    except ValueError:  # made with other settings, and yet to be made anew
        return [window]
    return [
        (max(start, window[0]), min(end, window[1])) for start, end in coverage.spans(runs, interval)
    ] or [window]


def _summaries(database: Database[Document], policy: Policy) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields each summary with the name of its collection, those of each series in the order of time."""
    after = LOWEST
    # Days first. Weeks and months do not contain each other: only where there is nothing finer.
    levels = aligned_levels(policy)
    for level in reversed([it for it in levels if not it.is_long] or levels[:1]):
        collection: Collection[Document] = database.get_collection(
            level.collection, codec_options=documents.OPTIONS
        )
        # An hour that reaches over the last day's end is in both.
        wanted = {"start": {"$gt": DatetimeMS(after - HOUR)}, "_id.series": {"$exists": True}}
        for summary in collection.find(wanted, {"start": 1, "end": 1, "coverage": 1}).sort("start", 1):
            after = max(after, to_ms(summary["end"]))
            yield level.collection, summary


def _at(series: Mapping[str, Any], name: str) -> Any:
    found: Any = series
    for part in name.split("."):
        found = found[part]
    return found
