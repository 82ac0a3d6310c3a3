"""Plans a roll-up: what is not rolled up yet, what has changed since, or a range."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

from bson.datetime_ms import DatetimeMS
from pymongo.database import Database

from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.columns import Quarantined
from bucketwise.buckets.decoding.decode import Decoded, decode_live
from bucketwise.buckets.decoding.soundness import Plausible
from bucketwise.buckets.fields.times import EVER, LAST_MS, TimeRange
from bucketwise.buckets.source import Source
from bucketwise.config.policies import LevelName, Policy
from bucketwise.config.written import fingerprint
from bucketwise.rollups.calendar.due import Calendar, ExistingSummaries, Spans
from bucketwise.rollups.calendar.levels import Span
from bucketwise.rollups.calendar.windows import HIGHEST, LOWEST, to_ms
from bucketwise.rollups.changes.collector import ChangeSet
from bucketwise.rollups.changes.drain import SharedChanges, Stream
from bucketwise.rollups.changes.late import LateFinder, LateSpans
from bucketwise.rollups.context import Document, RunContext
from bucketwise.rollups.progress import Bookmark, HeldWindow, HeldWindows, Progress, progress_collection
from bucketwise.rollups.rolling.outlived import deletes_before_archive
from bucketwise.rollups.rolling.records import MissingSummaries, Records, Remaking
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
    leaving: Sequence[Span] = ()  # spans of archived readings that are about to be replaced
    reached: Callable[[int], None] = no_report  # up to which instant all that is asked for is written
    leaves_unreadable: bool = False  # windows of which the archive can't be read stay, where that is allowed

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
    returning_spans: Callable[[], Iterable[Span]] = tuple  # spans of the copies of live buckets
    earliest: Callable[[int], int | None] = same_instant  # at or after an instant: nothing is before it
    restored: Callable[[Batch], list[int]] = none_restored  # which live buckets of a batch are restored ones

    def next(self, at: int) -> int | None:
        """Returns an instant at or after `at`, and nothing archived lies between; None where nothing is later
        either."""
        if self.span is None or at >= self.span[1]:
            return None
        return self.earliest(max(at, self.span[0]))


@dataclass(frozen=True)
class LeftWindows:
    """Windows that stay as they are, in a span of time (milliseconds), and why they can't be made anew.
    `slice`: what of it is recorded, and tried again."""

    span: Span
    slice: Span
    reason: str


@dataclass
class RollupReport:
    """Tells what a roll-up did, or would do. `readings`: those in the windows looked at, each once."""

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
    left: list[LeftWindows] = field(default_factory=list)  # their archived readings can't be read
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


class Backfill:
    """How far the summaries of a range are computed again. Times are in milliseconds.

    `begins`: where this call begins, which is later than the range where an earlier call was cut off.
    """

    def __init__(
        self, database: Database[Document], policy: Policy, span: Span, length: int, *, restart: bool
    ) -> None:
        """`length`: that of a slice; so often it is stored how far the call came. `restart`: forgets how far
        an earlier one came."""
        self._collection = progress_collection(database)
        self._id = {"backfill": policy.identity}
        self._request = {
            "fingerprint": fingerprint(policy),
            "since": DatetimeMS(span[0]),
            "until": DatetimeMS(span[1]),
        }
        self._span, self._length = span, length
        found = self._collection.find_one({"_id": self._id, **self._request})
        reached = span[0] if found is None else to_ms(found["reached"])
        self.begins = reached if reached < span[1] else span[0]
        self.total = self._slices(span[1] - 1) + 1
        self.before = self._slices(self.begins)
        self._stored = self.before
        if restart and self.before:
            self.begins, self.before = span[0], 0
            self._store(span[0])

    def reach(self, at: int) -> None:
        """Stores, once a slice, that all windows of the range that end by then are written."""
        if self._slices(at) > self._stored:
            self._store(min(at, self._span[1]))

    def finish(self) -> None:
        """Records that all windows are written. The next call starts over."""
        self._store(self._span[1])

    def _store(self, at: int) -> None:
        self._stored = self._slices(at)
        document = {"_id": self._id, **self._request, "reached": DatetimeMS(at)}
        self._collection.replace_one({"_id": self._id}, document, upsert=True)

    def _slices(self, at: int) -> int:
        """Returns how many slices are over by then."""
        return (at - self._span[0]) // self._length


@dataclass(frozen=True)
class RollupPlan:
    """What to roll up, and how far the policy was rolled up before. Every due window that overlaps its
    level's `spans` is checked. `late` is None if a range or everything was requested; then neither the
    watermark nor the bookmark moves."""

    spans: Mapping[LevelName, Sequence[Span]]
    existing: ExistingSummaries = field(default_factory=ExistingSummaries)
    late: LateSpans | None = None
    interim_bookmark: Bookmark | None = None  # stands until all is done
    is_empty: bool = False  # the source may yet be filled with old readings: its first run is still to come


@dataclass(frozen=True)
class Planner:
    """Plans a roll-up of one policy. `loaded`: how far it is rolled up."""

    context: RunContext
    options: RollupOptions
    archived: Archived
    calendar: Calendar
    loaded: Progress
    source: Source
    records: Records
    remaking: Remaking
    plausible: Plausible  # times of live buckets
    under: Sequence[str] = ()  # the digests of the holds that stand
    released: Sequence[Span] = ()  # of what only holds keep, where others stood when it was last tried

    def plan(self) -> RollupPlan:
        """Returns the windows that are due. Raises BucketwiseError where the policy's changes can't be
        read."""
        span = self.options.range
        if span is not None:
            self.records.note_live(self.source)
            # Other hours of a day that it touches may have changed: no stream was read.
            uncertain = self.calendar.days_of([span, *self._left])
            existing = replace(self._existing, uncertain=uncertain)
            return RollupPlan({level.name: [span] for level in self.calendar.levels}, existing)
        if self.options.whole:
            gone, trusted_spans = self.loaded.wholly, Spans(self.options.trusted_spans)
            names = [level.name for level in self.calendar.levels]
            wanted = {name: list(trusted_spans.gaps(gone.get(name, LOWEST), HIGHEST)) for name in names}
            # Where everything is looked at, no summary is taken as it stands.
            return RollupPlan(wanted, self._existing if trusted_spans.spans else ExistingSummaries())
        return self._catch_up()

    @cached_property
    def is_deleted_early(self) -> bool:
        """Returns whether something else deletes raw data before an archive of the policy holds it."""
        return self.options.is_deleted_early or deletes_before_archive(self.source)

    @cached_property
    def stream(self) -> Stream:
        """Returns the change stream of the source. A dry run leaves no marks in it."""
        leaves_marks = not self.options.dry_run
        return Stream(self.context.policy, self.source, self.archived.receipts, leaves_marks=leaves_marks)

    @property
    def _left(self) -> list[Span]:
        """Returns the windows that are made anew whatever has changed."""
        return [*self.loaded.left, *self.released]

    @cached_property
    def _existing(self) -> ExistingSummaries:
        # Clipped: a run with a later `--now` than this one's has recorded more than is true now.
        known, ends = self.loaded.through, self._ends
        through = {name: min(known[name], end) for name, end in ends.items() if name in known}
        return ExistingSummaries(through, self.loaded.gone, Spans(self._left))

    @cached_property
    def _ends(self) -> dict[LevelName, int]:
        """Returns where the last window of each level that is over ends."""
        return {level.name: level.through(self.calendar.due_end) for level in self.calendar.levels}

    def _catch_up(self) -> RollupPlan:
        loaded, through = self.loaded, self._existing.through
        finder = LateFinder(
            self.context,
            self.source,
            self.calendar,
            self.stream,
            lambda: self.is_deleted_early,
            self.archived.returning_spans,
            self._known_changes,
        )
        late = finder.find(Progress(dict(through), loaded.bookmark))
        self.source.look_at_texts()  # not before: what comes in from now on is for the next run to hear of
        is_empty = not through and self.archived.span is None and self.source.earliest() is None
        quarantine = self.records.quarantine
        found = chain(self.source.untimed(), self._too_late())
        quarantine.add(chain.from_iterable(map(self._quarantined_in, found)))
        changed = [*late.spans, *quarantine.recheck(self.source, self._decoded), *self._left]
        remade = self.remaking.spans
        existing = self._existing
        if late.mode == "scan":  # if it begins in the middle of a day
            existing = replace(existing, uncertain=self.calendar.days_of([*late.spans, *self._left]))
        return RollupPlan(
            {
                name: [(through.get(name, LOWEST), end), *changed, *remade.get(name, ())]
                for name, end in self._ends.items()
            },
            existing,
            late,
            _interim(loaded.bookmark, late.bookmark) if through else late.bookmark,
            is_empty,
        )

    def _known_changes(self) -> ChangeSet | None:
        """Returns what a read for several policies has told of this one, since it was rolled up."""
        shared = self.options.shared
        return None if shared is None else shared.take(self.context.policy, self.loaded)

    def _too_late(self) -> Iterable[Batch]:
        """Returns the live buckets that are later than is plausible: no window of theirs is due."""
        return self.source.ending(self.plausible.last + 1, LAST_MS + 1)

    def _decoded(self, batch: Batch) -> Iterator[Decoded]:
        return decode_live(batch, self.context.policy, self.archived.restored, self.plausible)

    def _quarantined_in(self, batch: Batch) -> list[Quarantined]:
        return [broken for it in self._decoded(batch) for broken in it.quarantined]


class Watermark:
    """How far the policy is rolled up, moved as the plan is carried out."""

    def __init__(
        self,
        plan: RollupPlan,
        calendar: Calendar,
        records: Records,
        before: Progress,
        released: Sequence[Span],
    ) -> None:
        """`before`: how far it was rolled up. `released`: see `Planner`."""
        self._through = dict(plan.existing.through)
        self._left_before, self._left = before.left, list[Span]()
        self._held, self._tried, self._again = before.held, released, set[HeldWindow]()
        self._bookmark = plan.interim_bookmark
        self._moves = plan.late is not None
        self._may_save = self._moves and not plan.is_empty
        self._calendar = calendar
        self._save, self._store_held = records.save, records.store_held

    def begin(self) -> None:
        """Stores the progress so far, with the bookmark to read on from, before the first summary is
        written."""
        if self._moves and self._through:
            self._save(self._progress)

    def leave(self, span: Span) -> None:
        """Takes note that the windows which touch a span stay as they are, and are to be tried again."""
        self._left.append(span)

    def hold(self, windows: Collection[HeldWindow], under: Sequence[str]) -> None:
        """Takes note that only holds keep summaries of these windows."""
        self._again.update(windows)
        if not set(windows) <= self._held.windows:
            under_before = self._held.under if self._held.windows else under
            self._held = HeldWindows(self._held.windows | set(windows), under_before)
            self._store_held(self._held)

    def reach(self, end: int) -> None:
        """Moves the watermark: all windows that end by then are rolled up."""
        if not self._may_save:
            return
        for level in self._calendar.levels:
            reached = level.through(min(end, self._calendar.due_end))
            self._through[level.name] = max(self._through.get(level.name, reached), reached)
        self._save(self._progress)

    @property
    def _progress(self) -> Progress:
        left = Spans([*self._left_before, *self._left]).spans
        return Progress(self._through, self._bookmark, left=left)

    def finish(self, bookmark: Bookmark | None, under: Sequence[str]) -> None:
        """Stores that all is done but for the windows that this run has left, with the bookmark from which
        the next run reads the stream."""
        self._bookmark, self._left_before = bookmark, ()
        if self._tried:
            left = Spans(self._left)
            stay = {it for it in self._held.windows if left.touch(it.start, it.end)} | self._again
            self._held = HeldWindows(stay, self._held.under if left.spans else under)
            self._store_held(self._held)
        self.reach(self._calendar.due_end)


def _interim(old: Bookmark | None, new: Bookmark | None) -> Bookmark | None:
    """Returns the bookmark until all is done: the next run must find the same changes, and where what is live
    now was."""
    if old is None or new is None:
        return old
    return replace(old, live=Spans([*old.live, *new.live]).spans)
