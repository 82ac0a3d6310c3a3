"""Plans a roll-up: what is not rolled up yet, what has changed since, or a range."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.columns import Quarantined
from bucketwise.buckets.decoding.decode import Decoded, decode_live
from bucketwise.buckets.decoding.plausible import Plausible
from bucketwise.buckets.fields.times import LAST_MS
from bucketwise.buckets.source import Source
from bucketwise.config.policies import LevelName
from bucketwise.rollups.calendar.due import Calendar, Spans
from bucketwise.rollups.calendar.levels import Span
from bucketwise.rollups.calendar.parts import ExistingSummaries
from bucketwise.rollups.calendar.windows import HIGHEST, LOWEST
from bucketwise.rollups.changes.collector import ChangeSet
from bucketwise.rollups.changes.late import LateFinder, LateSpans
from bucketwise.rollups.changes.stream import Stream
from bucketwise.rollups.context import RunContext
from bucketwise.rollups.progress import Bookmark, Progress
from bucketwise.rollups.rolling.options import Archived, RollupOptions
from bucketwise.rollups.rolling.records import Records
from bucketwise.rollups.rolling.remaking import Remaking
from bucketwise.rollups.ttl import deletes_before_archive


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

    def plan(self) -> RollupPlan:
        """Returns the windows that are due. Raises BucketwiseError where the policy's changes can't be
        read."""
        span = self.options.range
        if span is not None:
            self.records.note_live(self.source)
            # Other hours of a day that it touches may have changed: no stream was read.
            existing = replace(self._existing, uncertain=self.calendar.days_of([span]))
            return RollupPlan({level.name: [span] for level in self.calendar.levels}, existing)
        if self.options.whole:
            gone, trusted_spans = self.loaded.gone, Spans(self.options.trusted_spans)
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

    @cached_property
    def _existing(self) -> ExistingSummaries:
        # Clipped: a run with a later `--now` than this one's has recorded more than is true now.
        known, ends = self.loaded.through, self._ends
        through = {name: min(known[name], end) for name, end in ends.items() if name in known}
        return ExistingSummaries(through, self.loaded.gone)

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
            self.archived.superseded,
            self._known_changes,
        )
        late = finder.find(Progress(dict(through), loaded.bookmark))
        self.source.look_at_texts()  # not before: what comes in from now on is for the next run to hear of
        is_empty = not through and self.archived.span is None and self.source.earliest() is None
        quarantine = self.records.quarantine
        found = chain(self.source.untimed(), self._too_late())
        quarantine.add(chain.from_iterable(map(self._quarantined_in, found)))
        changed = [*late.spans, *quarantine.recheck(self.source, self._decoded)]
        remade = self.remaking.spans
        existing = self._existing
        if late.mode == "scan":  # if it begins in the middle of a day
            existing = replace(existing, uncertain=self.calendar.days_of(late.spans))
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

    def __init__(self, plan: RollupPlan, calendar: Calendar, save: Callable[[Progress], None]) -> None:
        self._through = dict(plan.existing.through)
        self._bookmark = plan.interim_bookmark
        self._moves = plan.late is not None
        self._may_save = self._moves and not plan.is_empty
        self._calendar = calendar
        self._save = save

    def begin(self) -> None:
        """Stores the progress so far, with the bookmark to read on from, before the first summary is
        written."""
        if self._moves and self._through:
            self._save(Progress(self._through, self._bookmark))

    def reach(self, end: int) -> None:
        """Moves the watermark: all windows that end by then are rolled up."""
        if not self._may_save:
            return
        for level in self._calendar.levels:
            reached = level.through(min(end, self._calendar.due_end))
            self._through[level.name] = max(self._through.get(level.name, reached), reached)
        self._save(Progress(self._through, self._bookmark))

    def finish(self, bookmark: Bookmark | None) -> None:
        """Stores that all is done, with the bookmark from which the next run reads the stream."""
        self._bookmark = bookmark
        self.reach(self._calendar.due_end)


def _interim(old: Bookmark | None, new: Bookmark | None) -> Bookmark | None:
    """Returns the bookmark until all is done: the next run must find the same changes, and where what is live
    now was."""
    if old is None or new is None:
        return old
    return replace(old, live=Spans([*old.live, *new.live]).spans)
