"""The options of a roll-up, what the archive adds to it, and what it reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.columns import Quarantined
from bucketwise.buckets.fields.times import EVER, TimeRange
from bucketwise.config.policies import LevelName, Policy
from bucketwise.rollups.calendar.levels import Span
from bucketwise.rollups.calendar.windows import HIGHEST, LOWEST
from bucketwise.rollups.changes.late import LateSpans
from bucketwise.rollups.changes.shared import SharedChanges
from bucketwise.rollups.rolling.remaking import MissingSummaries
from bucketwise.rollups.rolling.slices import SliceReader
from bucketwise.rollups.summaries.targets import Counts


def no_report(_at: int) -> None:
    """Takes no note of how far a roll-up has come."""


@dataclass(frozen=True)
class RollupOptions:
    """Which windows to roll up, and how.

    Without a range and without `whole`: what is not rolled up yet, and what has changed since, or may have.
    """

    within: TimeRange = EVER  # if it is bounded: exactly the due windows that touch it
    whole: bool = False  # all due windows, but for those whose summaries have gone by their `retain`
    trusted_spans: Sequence[Span] = ()  # spans whose windows are taken as they stand
    is_deleted_early: bool = False  # something removes raw data that the reader does not find in an archive
    dry_run: bool = False  # only count what would be written
    shared: SharedChanges | None = None  # the policy's changes, as far as they are known already
    reached: Callable[[int], None] = no_report  # up to which instant all that is asked for is written

    @property
    def range(self) -> Span | None:
        """Returns the range asked for, in milliseconds; None where none was."""
        if not self.within.is_bounded:
            return None
        return max(LOWEST, self.within.start_ms), min(HIGHEST, self.within.end_ms)

    @property
    def is_catch_up(self) -> bool:
        """Returns whether what is due is rolled up, and what has changed since."""
        return self.range is None and not self.whole


#: All that is due.
CATCH_UP = RollupOptions()


def same_instant(at: int) -> int | None:
    """Returns the instant: there may be something at any."""
    return at


def none_restored(_batch: Batch) -> list[int]:
    """Returns nothing: no live bucket is a restored one."""
    return []


@dataclass(frozen=True)
class Archived:
    """The archived half of a policy's readings, and how it is read together with the live one."""

    reader: SliceReader  # reads slices of what is live and what is archived
    receipts: str  # the collection that gets a receipt in each transaction that deletes
    span: Span | None = None  # holds all archived readings
    superseded: Callable[[], Iterable[Span]] = tuple  # spans of the copies of live buckets
    earliest: Callable[[int], int | None] = same_instant  # at or after an instant: nothing is before it
    restored: Callable[[Batch], list[int]] = none_restored  # which live buckets of a batch are restored ones

    def next(self, at: int) -> int | None:
        """Returns an instant at or after `at`, and nothing archived lies between; None where nothing is later
        either."""
        if self.span is None or at >= self.span[1]:
            return None
        return self.earliest(max(at, self.span[0]))


@dataclass
class RollupReport:
    """What a roll-up did, or would do. `readings`: those in the windows looked at, each once."""

    counts: dict[LevelName, Counts] = field(default_factory=dict)  # of each level, the finest first
    readings: int = 0
    finite: Counter[str] = field(default_factory=Counter)  # value field -> how many of them hold a number
    late: LateSpans | None = None  # None: a range was asked for
    outdated: int = 0  # summaries that stay as earlier settings made them, since their readings are gone
    gone: int = 0  # summaries of readings that somebody took out, and that are not archived
    missed: int = 0  # summaries that lack late readings, since something else removed the other ones
    quarantined: list[Quarantined] = field(default_factory=list)  # the first thousand
    quarantined_total: int = 0
    missing: list[MissingSummaries] = field(default_factory=list)  # that somebody had removed
    commits: set[str] = field(default_factory=set)  # commits of the archive that were read whole

    def of(self, level: LevelName) -> Counts:
        """Returns the counts of a level, which begin at zero."""
        return self.counts.setdefault(level, Counts())

    @property
    def hourly(self) -> Counts:
        """Returns the counts of the hourly level."""
        return self.counts.get("hourly", Counts())

    @property
    def daily(self) -> Counts:
        """Returns the counts of the daily level."""
        return self.counts.get("daily", Counts())

    @property
    def written(self) -> int:
        """Returns how many summaries were written, of all levels."""
        return sum(counts.written for counts in self.counts.values())

    @property
    def kept(self) -> int:
        """Returns how many summaries stay unchecked, of all levels, since something else removed their
        readings."""
        return sum(counts.kept for counts in self.counts.values())

    def empty_fields(self, policy: Policy) -> list[str]:
        """Returns the value fields in which no reading held a finite number, though some has to."""
        return [name for name in policy.numeric_names if self.readings and not self.finite[name]]
