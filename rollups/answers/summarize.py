"""Answers any range by merging summaries: days where they fit, hours for the rest. Never reads raw
readings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bson.datetime_ms import DatetimeMS
from pymongo.collection import Collection
from pymongo.database import Database

from bucketwise.buckets.columns import Series
from bucketwise.buckets.fields.selectors import (
    Selector,
    check_selector,
    extended_json,
    selects,
    series_order,
    summary_query,
)
from bucketwise.buckets.models.series import series_key
from bucketwise.config.errors import BucketwiseError, UsageError
from bucketwise.config.policies import Policy
from bucketwise.rollups import progress
from bucketwise.rollups.calendar.levels import Level, Span, aligned_levels
from bucketwise.rollups.calendar.tiling import Tiling, TilingPiece, existing_windows, instant, tile
from bucketwise.rollups.calendar.windows import HIGHEST, LOWEST, to_ms
from bucketwise.rollups.standing import Removed, removed_summaries
from bucketwise.rollups.statistics import statistics_of
from bucketwise.rollups.summaries import coverage, documents
from bucketwise.rollups.summaries.summary import State, merge

Document = dict[str, Any]
_BATCH_SIZE = 500  # summaries in memory as documents


@dataclass(frozen=True)
class Question:
    """What to summarize: the range [since, until), and how."""

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
    `states`: the state over the range of each requested series that has a reading, sorted by series. If one
    answer for all series was requested, there is at most one state, that of the series (). The stretches in
    `tiling.missing` are not included.
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
    percents = _percentiles(policy, question.percentiles)
    start, end = question.range
    loaded = progress.load(database, policy)
    levels = {level.name: level for level in aligned_levels(policy)}
    available = [existing_windows(it, loaded.through, loaded.gone) for it in levels.values()]
    tiling = tile(available, start, end)
    fields, merged = statistics_of(policy, percents), dict[bytes, tuple[Series, State]]()
    count = 0
    for piece in tiling.pieces:
        level, selector = levels[piece.level], question.series
        for found, state in _states(database, policy, level, piece, selector, percents):
            name = found if question.by_series else ()
            key = series_key(name)
            merged[key] = (name, merge(fields, merged[key][1], state) if key in merged else state)
            count += 1
            if count % _BATCH_SIZE == 0:
                check()
    states = sorted(merged.values(), key=lambda it: series_order(it[0]))
    used = [level for level in levels.values() if tiling.windows(level.name)]
    removed = list(_removed(removed_summaries(database, policy, used), tiling))
    return Answer(policy, start, end, percents, tiling, count, states, removed)


def _removed(found: Iterable[Removed], tiling: Tiling) -> Iterator[TilingPiece]:
    """Yields the stretches of which somebody has removed summaries, by UTC months."""
    for it in found:
        again = "their readings are gone" if it.is_lost else "a run makes again what readings give"
        reason = f"{it.summaries:,} {it.level.name} summaries were removed by somebody: {again}"
        for piece in tiling.pieces:
            start, end = max(it.span[0], piece.start), min(it.span[1], piece.end)
            if piece.level == it.level.name and start < end:
                yield TilingPiece(start, end, piece.level, 0, reason)


def _percentiles(policy: Policy, requested: Sequence[float] | None) -> tuple[float, ...]:
    kept = policy.rollup.percentiles if policy.rollup else ()
    if requested is None:
        return kept
    for percent in requested:
        if not 0 <= percent <= 100:
            raise UsageError(
                f"there is no percentile {percent:g}: write numbers from 0 to 100, both included"
            )
    if requested and not kept:
        raise UsageError(
            f"policy {policy.name} keeps no percentiles. Add `percentiles = [50]` to its rollup; the next "
            "`bucketwise rollup` then recomputes its summaries"
        )
    return tuple(dict.fromkeys(requested))


def _states(
    database: Database[Document],
    policy: Policy,
    level: Level,
    piece: TilingPiece,
    selector: Selector,
    percents: Sequence[float],
) -> Iterator[tuple[Series, State]]:
    collection: Collection[Document] = database.get_collection(
        level.collection, codec_options=documents.OPTIONS
    )
    wanted = {
        "start": {"$gte": DatetimeMS(piece.start), "$lt": DatetimeMS(piece.end)},
        "_id.series": {"$exists": True},  # only summaries have such an `_id`
        **summary_query(selector),
    }
    window: Span | None = None
    for found in collection.find(wanted, documents.state_projection(policy), batch_size=_BATCH_SIZE):
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
        yield series, state


def _unusable(collection: Collection[Document], found: Mapping[str, Any], why: str) -> BucketwiseError:
    start, end = (instant(to_ms(found[key])) for key in ("start", "end"))
    series = extended_json(found["_id"]["series"])
    return BucketwiseError(
        f"a summary in {collection.name}, of {series} from {start} to {end}, can't be used: "
        f"{why}. Was it made with other settings? `bucketwise rollup --since {start} --until {end}` "
        "recomputes it where its readings are live or archived"
    )
