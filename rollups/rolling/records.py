"""What a roll-up records in MongoDB; or, in a dry run, leaves as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Protocol

from pymongo.client_session import ClientSession

from bucketwise.buckets.rules import SeriesRules
from bucketwise.buckets.source import Source
from bucketwise.config.policies import LevelName
from bucketwise.config.times import format_duration
from bucketwise.rollups.calendar.due import Calendar
from bucketwise.rollups.calendar.levels import Level, Span, expired_before, levels_of, sources_of
from bucketwise.rollups.calendar.windows import HIGHEST, LOWEST
from bucketwise.rollups.changes.drain import Stream
from bucketwise.rollups.changes.late import advance_bookmark, live_days, note_live
from bucketwise.rollups.context import RunContext
from bucketwise.rollups.progress import (
    Bookmark,
    HeldWindows,
    Progress,
    ended_by_rule,
    note_gone,
    set_gone,
    store,
    store_held,
)
from bucketwise.rollups.rolling.quarantine import Quarantine, UnrecordedQuarantine
from bucketwise.rollups.standing import (
    Standing,
    SummaryCount,
    count_changes,
    load_standing,
    month_of,
    months_in,
    span_of,
    store_counts,
    store_retentions,
)
from bucketwise.rollups.summaries.targets import SummaryDiff


@dataclass(frozen=True)
class MissingSummaries:
    """Summaries of one level and month that somebody has removed: how many, and how many of them stay lost
    since their readings are gone; None before anything was made again."""

    level: LevelName
    collection: str
    span: Span  # of the month
    missing: int
    lost: int | None = None


@dataclass
class Remaking:
    """Plans what one run makes again, and records what became of it. `is_deleted_early`: returns whether
    something removes raw data before an archive of the policy holds it."""

    context: RunContext
    loaded: Progress
    standing: Standing
    source: Source
    is_deleted_early: Callable[[], bool]
    _counts: dict[LevelName, SummaryCount] = field(default_factory=dict)  # those that have changed

    @cached_property
    def _levels(self) -> list[Level]:
        return levels_of(self.context.policy)

    @cached_property
    def _complete_from(self) -> list[int]:
        """Returns the instants (milliseconds) from which on all readings of the series of each rule are live
        or archived."""
        policy = self.context.policy
        if policy.archiving is not None and not self.is_deleted_early():
            return ended_by_rule(self.context.database, policy)
        first = None if self.is_deleted_early() else self.source.earliest()
        return [HIGHEST if first is None else first] * len(policy.lives)

    @cached_property
    def as_made_again(self) -> Progress:
        """Returns what was recorded, as it is once those summaries are made again that a longer `retain`
        brings back. Those that are past their time by the rule of their series are not."""
        kept = self.standing.retentions
        changed = {it.name for it in self._levels if kept.get(it.name) != self._text(it)}
        by_rule = {number: dict(lines) for number, lines in self.loaded.by_rule.items()}
        for number, policy in enumerate(SeriesRules(self.context.policy).policies):
            levels, lines = levels_of(policy), by_rule.get(number, {})
            for level in levels:
                if level.name in changed & lines.keys():
                    expired = expired_before(level, levels, self.context.now, self.loaded.through)
                    first = max(LOWEST if expired is None else expired, self._first_whole(level, number))
                    lines[level.name] = min(lines[level.name], first)
        return replace(self.loaded, by_rule=by_rule)

    @cached_property
    def _reopened(self) -> dict[LevelName, Span]:
        """Returns in which windows a longer `retain` brings summaries back."""
        found: dict[LevelName, Span] = {}
        for number, lines in self.as_made_again.by_rule.items():
            for level, start in lines.items():
                end = self.loaded.by_rule[number][level]
                if start < end:
                    before = found.get(level, (start, end))
                    # The window that ends with `start` is not gone.
                    found[level] = min(max(LOWEST, start - 1), before[0]), max(end, before[1])
        return found

    def _first_whole(self, level: Level, rule: int | None = None) -> int:
        """Returns the instant before which a window may end for some of its readings to be gone, of the
        series of a rule; None: of any."""
        start = max(self._complete_from) if rule is None else self._complete_from[rule]
        if not LOWEST < start < HIGHEST:
            return start
        low, high = level.edges(start + level.reach, start + level.reach + 1)[:2]
        return (low if low == start + level.reach else high) + 1

    @cached_property
    def missing(self) -> list[MissingSummaries]:
        """Returns what somebody has removed. Counts only where MongoDB's estimate has changed."""
        database, counts = self.context.database, self.standing.counts
        found: list[MissingSummaries] = []
        for level in self._levels:
            estimate = database[level.collection].estimated_document_count()
            known = counts.get(level.name)
            if known is None or not known.fits(estimate):
                months = months_in(database, level)
                count = (known or SummaryCount()).recounted(months, estimate)
                self._counts[level.name] = count
                found += [
                    MissingSummaries(level.name, level.collection, span_of(month), missing)
                    for month, missing in sorted(count.missing(months).items())
                ]
        return found

    @cached_property
    def spans(self) -> Mapping[LevelName, Sequence[Span]]:
        """Returns where each level is made again."""
        found = {name: [span] for name, span in self._reopened.items()}
        levels = {level.name: level for level in self._levels}
        for it in self.missing:
            level = levels[it.level]
            first = it.span[0] if self._has_finer(level, it.span) else self._first_whole(level)
            if first < it.span[1]:
                found.setdefault(it.level, []).append((max(first, it.span[0]), it.span[1]))
        return found

    def _has_finer(self, level: Level, span: Span) -> bool:
        """Returns whether finer summaries stand in all of a span, so that no reading is needed."""
        removed, gone = {(it.level, it.span) for it in self.missing}, self.as_made_again.gone
        return any(
            gone.get(finer.name, LOWEST) <= span[0] and (finer.name, span) not in removed
            for finer in sources_of(level, self._levels)
        )

    def begin(self) -> None:
        """Records what is there and what is missing, before anything is written and counted."""
        if self.missing or self._counts:
            store_counts(self.context.database, self.context.policy, self._counts)

    def made_again(self, level: LevelName, starts: Iterable[int]) -> Counter[str]:
        """Returns how many summaries came where some are lost, by month, of windows that were rolled up
        before. `starts`: when their windows begin."""
        lost = {**self.standing.counts, **self._counts}.get(level, SummaryCount()).lost
        through = self.loaded.through.get(level, HIGHEST)
        return Counter(month for it in starts if it < through and (month := month_of(it)) in lost)

    def finish(self) -> list[MissingSummaries]:
        """Records that all is made again that can be. Returns what was missing, and what of it is lost."""
        database, policy = self.context.database, self.context.policy
        if self._reopened:
            set_gone(database, policy, self.as_made_again.by_rule, self._reopened)
        kept = {level.name: self._text(level) for level in self._levels}
        if kept != self.standing.retentions:
            store_retentions(database, policy, kept)
        if not self.missing:
            return []
        counts = {name: it for name, it in load_standing(database, policy).counts.items() if it.wanted}
        settled = {name: it.settled() for name, it in counts.items()}
        store_counts(database, policy, settled)
        return [self._settled(it, settled[it.level], counts[it.level]) for it in self.missing]

    def _text(self, level: Level) -> str:
        """Returns how long a level is kept, by all rules of the policy."""
        rules = SeriesRules(self.context.policy)
        kept = [it.retain.by_level.get(level.name) if it.retain else None for it in rules.policies]
        said = [rules.scope(number) for number in range(rules.own)]
        return ", ".join([*map(format_duration, kept), *said])

    def _settled(self, it: MissingSummaries, after: SummaryCount, before: SummaryCount) -> MissingSummaries:
        month = month_of(it.span[0])
        lost = after.lost.get(month, 0) - before.lost.get(month, 0)
        return MissingSummaries(it.level, it.collection, it.span, it.missing, lost)


class Records(Protocol):
    """The records in which a run writes its results."""

    @property
    def quarantine(self) -> Quarantine:
        """Returns where broken buckets are reported and recorded."""

    def apply(self, changes: SummaryDiff) -> None:
        """Writes the summaries that differ."""

    def save(self, progress: Progress) -> None:
        """Stores how far the policy is rolled up. Everything that it claims must have been written before."""

    def note_gone(self, before: Mapping[LevelName, int], rule: int) -> None:
        """Records that summaries of windows that ended before these instants are never made, of the series
        of a rule."""

    def store_held(self, held: HeldWindows) -> None:
        """Records of which windows only holds keep summaries."""

    def begin(self, remaking: Remaking) -> None:
        """Records which summaries are there and which are missing."""

    def finish(self, remaking: Remaking) -> list[MissingSummaries]:
        """Records that all is made again that can be. Returns what was missing."""

    def note_live(self, source: Source) -> None:
        """Adds the days of live buckets to those that the standing bookmark has."""

    def advance_bookmark(self, stream: Stream, bookmark: Bookmark, calendar: Calendar) -> Bookmark:
        """Returns the bookmark behind the summaries that this run has written."""


@dataclass(frozen=True)
class RunRecords:
    """Records of a run: writes everything."""

    context: RunContext
    quarantine: Quarantine
    remaking: Remaking

    def apply(self, changes: SummaryDiff) -> None:
        """Writes the summaries that differ, and deletes those that have no readings any more."""
        if changes.replaced or changes.deleted:
            put = (bytes(identity.raw) for identity, _ in changes.replaced)
            self.context.listener(changes.collection, put, (bytes(it.raw) for it in changes.deleted))
        changes.apply(self.context.policy, self.context.guard, partial(self._count, changes.level))

    def _count(
        self, level: Level, added: Sequence[int], removed: Sequence[int], session: ClientSession
    ) -> None:
        counts = Counter(map(month_of, added))
        counts.subtract(map(month_of, removed))
        again = self.remaking.made_again(level.name, added)
        count_changes(self.context.database, self.context.policy, level, counts, session, again)

    def save(self, progress: Progress) -> None:
        """Stores how far the policy is rolled up."""
        store(self.context.database, self.context.policy, progress)

    def note_gone(self, before: Mapping[LevelName, int], rule: int) -> None:
        """Records before when no summaries of a rule are made; milliseconds, by level."""
        note_gone(self.context.database, self.context.policy, before, rule=rule)

    def store_held(self, held: HeldWindows) -> None:
        """Records of which windows only holds keep summaries."""
        store_held(self.context.database, self.context.policy, held)

    def begin(self, remaking: Remaking) -> None:
        """Records which summaries are there and which are missing."""
        remaking.begin()

    def finish(self, remaking: Remaking) -> list[MissingSummaries]:
        """Records that all is made again that can be. Returns what was missing, and what of it is lost."""
        return remaking.finish()

    def note_live(self, source: Source) -> None:
        """Records on which days there are live buckets."""
        note_live(self.context.database, self.context.policy, live_days(source))

    def advance_bookmark(self, stream: Stream, bookmark: Bookmark, calendar: Calendar) -> Bookmark:
        """Reads the change stream on from a bookmark, and returns the bookmark behind it."""
        return advance_bookmark(stream, bookmark, calendar, self.context.check)


@dataclass(frozen=True)
class DryRunRecords:
    """Records of a dry run: writes nothing, and only counts."""

    quarantine: Quarantine

    def apply(self, changes: SummaryDiff) -> None:
        """Leaves the summaries as they are."""

    def save(self, progress: Progress) -> None:
        """Leaves the progress as it is."""

    def note_gone(self, before: Mapping[LevelName, int], rule: int) -> None:
        """Leaves what is recorded of gone summaries as it is."""

    def store_held(self, held: HeldWindows) -> None:
        """Leaves what is recorded of held summaries as it is."""

    def begin(self, remaking: Remaking) -> None:
        """Leaves what was counted as it is."""

    def finish(self, remaking: Remaking) -> list[MissingSummaries]:
        """Returns what is missing."""
        return remaking.missing

    def note_live(self, source: Source) -> None:
        """Leaves the bookmark as it is."""

    def advance_bookmark(self, _stream: Stream, bookmark: Bookmark, _calendar: Calendar) -> Bookmark:
        """Returns the bookmark as it is: a dry run does not move it."""
        return bookmark


def records_of(context: RunContext, remaking: Remaking, *, dry_run: bool) -> Records:
    """Returns the records that a run of this kind writes to."""
    if dry_run:
        return DryRunRecords(UnrecordedQuarantine(context.database, context.policy, context.now))
    return RunRecords(context, Quarantine(context.database, context.policy, context.now), remaking)
