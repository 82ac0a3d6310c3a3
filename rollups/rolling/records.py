"""What a roll-up records in MongoDB; or, in a dry run, leaves as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from pymongo.client_session import ClientSession

from bucketwise.buckets.source import Source
from bucketwise.config.policies import LevelName
from bucketwise.rollups.calendar.due import Calendar
from bucketwise.rollups.calendar.levels import Level
from bucketwise.rollups.changes.late import advance_bookmark, live_days, note_live
from bucketwise.rollups.changes.stream import Stream
from bucketwise.rollups.context import RunContext
from bucketwise.rollups.progress import Bookmark, Progress, note_gone, store
from bucketwise.rollups.rolling.quarantine import Quarantine, UnrecordedQuarantine
from bucketwise.rollups.rolling.remaking import MissingSummaries, Remaking
from bucketwise.rollups.standing import count_changes
from bucketwise.rollups.summaries.months import month_of
from bucketwise.rollups.summaries.targets import SummaryDiff


class Records(Protocol):
    """Where a run writes its results."""

    @property
    def quarantine(self) -> Quarantine:
        """Returns where broken buckets are reported and recorded."""

    def apply(self, changes: SummaryDiff) -> None:
        """Writes the summaries that differ."""

    def save(self, progress: Progress) -> None:
        """Stores how far the policy is rolled up. Everything that it claims must have been written before."""

    def note_gone(self, before: Mapping[LevelName, int]) -> None:
        """Records that summaries of windows that ended before these instants are never made."""

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

    def note_gone(self, before: Mapping[LevelName, int]) -> None:
        """Records before when no summaries are made; milliseconds, by level."""
        if before:
            note_gone(self.context.database, self.context.policy, before)

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

    def note_gone(self, before: Mapping[LevelName, int]) -> None:
        """Leaves what is recorded of gone summaries as it is."""

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
