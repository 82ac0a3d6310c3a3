"""Finds where readings are late or have changed, by a change stream or a scan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pymongo.database import Database

from bucketwise.buckets.fields.times import DAY_MS
from bucketwise.buckets.models import model_of
from bucketwise.buckets.source import Source
from bucketwise.config.errors import BucketwiseError
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.due import Calendar, Spans, widened
from bucketwise.rollups.calendar.levels import Span, base_levels, levels_of
from bucketwise.rollups.calendar.windows import HIGHEST, span_ms
from bucketwise.rollups.changes.collector import ChangeSet, flatten
from bucketwise.rollups.changes.drain import (
    Stream,
    StreamLostError,
    StreamUnavailableError,
    collections_of,
    may_stream,
    new_from,
    rolled_up_to,
)
from bucketwise.rollups.context import RunContext
from bucketwise.rollups.progress import Bookmark, Progress, load, store

Document = dict[str, Any]
Mode = Literal["stream", "scan"]
#: Spans of archived copies whose bucket is live.
ReturningSpans = Callable[[], Iterable[Span]]
_MAX_DAYS = 400  # a query each
_PRE_IMAGES = (
    "db.runCommand({collMod: %r, changeStreamPreAndPostImages: {enabled: true}}) makes later changes say so"
)


@dataclass(frozen=True)
class LateSpans:
    """Spans of time to look at again, in milliseconds, and where to continue next time.

    `changed`: the spans of a stream, by operation; None where it did not tell of all. `reason`: why more than
    that is looked at.
    """

    mode: Mode
    spans: Sequence[Span]
    changed: Mapping[str, Spans] | None = None
    events: int = 0
    reason: str | None = None
    bookmark: Bookmark | None = None


@dataclass(frozen=True)
class LateFinder:
    """Finds what has changed in windows that are rolled up.

    `is_deleted_early` returns whether something deletes raw data before it is archived. `known_changes`
    returns the changes that an earlier read of the stream has found.
    """

    context: RunContext
    source: Source
    calendar: Calendar
    stream: Stream
    is_deleted_early: Callable[[], bool]
    returning_spans: ReturningSpans
    known_changes: Callable[[], ChangeSet | None]

    def find(self, loaded: Progress) -> LateSpans:
        """Returns where to look again. `loaded`: what is rolled up, and where the stream was left.

        Raises BucketwiseError where the policy insists on a stream, and there is none.
        """
        policy = self.context.policy
        assert policy.rollup is not None
        if policy.rollup.late_data == "scan":
            return self._scan(loaded, None)
        if reason := model_of(policy).unstreamed:
            return self._scan(loaded, reason)
        try:
            return self._follow(loaded)
        except StreamUnavailableError as error:
            if policy.rollup.late_data == "stream":
                raise BucketwiseError(
                    f'policy {policy.name}: rollup.late_data = "stream", and there is no change stream to '
                    f'read: {error}. Fix that, or write "auto"; nothing was changed'
                ) from error
            return self._scan(loaded, f"there is no change stream to read: {error}")

    def _scan(self, loaded: Progress, reason: str | None) -> LateSpans:
        """Returns what ended within `recheck` before the last run: since then readings may have come late."""
        rollup = self.context.policy.rollup
        assert rollup is not None
        last_run = max(loaded.through.values(), default=HIGHEST)
        since = min(self.calendar.recheck_from, last_run - span_ms(rollup.recheck))
        # The bookmark stays: a stream may still continue from it.
        return LateSpans("scan", [(since, HIGHEST)], reason=reason, bookmark=loaded.bookmark)

    def _follow(self, loaded: Progress) -> LateSpans:
        through, existing = loaded.through, loaded.bookmark
        if not through:  # everything is read anyway
            return LateSpans("stream", [], bookmark=self._new_bookmark())
        if existing is None:
            return self._look_back(loaded, "no earlier run has left a bookmark in the change stream")
        # Asked here, and not as the run began: the stream is of the collections that are there now.
        live, collections = existing.live, collections_of(self.source)
        reached, check = rolled_up_to(self.context.policy, through), self.context.check
        try:
            if collections != existing.collections:
                raise StreamLostError("the collection was dropped, renamed or restored")
            changed = self.known_changes() or self.stream.drain(existing.token, reached, check)
            if changed.has_any_event and self.stream.leaves_marks:
                # Before another mark: what is live at the mark is live now, or came in since.
                live = live_days(self.source)
                changed = changed.then(self.stream.drain(changed.token, reached, check))
        except StreamLostError as error:
            reason = f"the change stream cannot resume from the last run's bookmark: {error}"
            return self._look_back(loaded, reason)
        live = [*live, *changed.all_spans, (new_from(self.context.policy, through), HIGHEST)]
        bookmark = Bookmark(changed.token, collections, Spans(live).spans)
        spans, looked_back = self._spans_to_check(changed, existing)
        return LateSpans("stream", flatten(spans), spans, changed.events, looked_back, bookmark)

    def _spans_to_check(
        self, changed: ChangeSet, existing: Bookmark
    ) -> tuple[Mapping[str, Spans], str | None]:
        """Returns the spans to check by operation: those that the events name, and all that was live at any
        time since if some events name none."""
        spans, unknown = dict(changed.spans), +changed.unknown
        if spans["delete"].spans or unknown["delete"]:
            if self.is_deleted_early():  # MongoDB's own deletes change no readings: summaries outlive them
                spans["delete"] = Spans(())
                del unknown["delete"]
            else:  # the archived copies of such a bucket count again
                spans["delete"] = Spans([*spans["delete"].spans, *self.returning_spans()])
        if not unknown:
            return spans, None
        were_live = [*existing.live, *changed.all_spans]  # or came in since: it may be gone from there again
        for operation in unknown:  # where a bucket moved from is not known: no proof for any summary
            counts_as = "update" if operation == "move" else operation
            spans[counts_as] = Spans([*spans[counts_as].spans, *were_live])
        return spans, (
            f"{unknown.total()} changes (deletes, replacements, moves) do not say what time they touched: "
            f"looked back over all that was live; {_PRE_IMAGES % self.context.policy.collection}"
        )

    def _look_back(self, loaded: Progress, reason: str) -> LateSpans:
        """Returns all spans that are live now or were live at the last bookmark."""
        bookmark = self._new_bookmark()
        were_live = loaded.bookmark.live if loaded.bookmark else ()
        return LateSpans(
            "stream",
            [*bookmark.live, *were_live],
            reason=f"{reason}: looked back over all that is live",
            bookmark=bookmark,
        )

    def _new_bookmark(self) -> Bookmark:
        """Returns a bookmark from here on. What was live before, or after, may be in summaries."""
        before = live_days(self.source)
        token, collections = self.stream.token_now(), collections_of(self.source)
        return Bookmark(token, collections, Spans([*before, *live_days(self.source)]).spans)


class ChangeWatch:
    """Checks whether something that is rolled up may have changed since. Reads the stream on from the
    bookmark of the last roll-up, and does not move that bookmark."""

    def __init__(
        self, database: Database[Document], policy: Policy, receipts: str, *, dry_run: bool = False
    ) -> None:
        loaded = load(database, policy)
        self._stream = Stream(policy, Source(database, policy), receipts, leaves_marks=not dry_run)
        self._levels = base_levels(levels_of(policy))
        self._bookmark = loaded.bookmark if may_stream(policy) else None
        self._token = self._bookmark.token if self._bookmark else None
        self._rolled_up_to = rolled_up_to(policy, loaded.through) if loaded.through else None
        self._changed = Spans(())

    @property
    def has_bookmark(self) -> bool:
        """Returns whether there is a bookmark to read on from."""
        return self._bookmark is not None

    def has_changed(
        self, start_ms: int, end_ms: int, check: Callable[[], None], *, if_unknown: bool = True
    ) -> bool:
        """Returns whether a window that overlaps the range has changed, or may have. Returns True if
        that is not known."""
        if self._bookmark is None or self._token is None:
            return if_unknown
        try:
            more = self._stream.drain(self._token, self._rolled_up_to, check)
        except StreamLostError:
            self._token = None
            return if_unknown
        except StreamUnavailableError:
            self._bookmark = None
            return if_unknown
        self._token = more.token
        unknown = self._bookmark.live if if_unknown and more.unknown.total() else ()
        self._changed = Spans([*self._changed.spans, *more.all_spans, *unknown])
        return any(self._changed.touch(*span) for span in widened(self._levels, [(start_ms, end_ms)]).spans)


def advance_bookmark(
    stream: Stream, bookmark: Bookmark, calendar: Calendar, check: Callable[[], None]
) -> Bookmark:
    """Returns the bookmark, once all windows of the calendar are rolled up: behind the summaries that this
    run has written, if nothing else has happened. Summaries are of the same database: without this, whoever
    reads the stream next would read past each of them."""
    through = {level.name: level.through(calendar.due_end) for level in calendar.levels}
    try:
        changed = stream.drain(bookmark.token, rolled_up_to(stream.policy, through), check)
    except (StreamLostError, StreamUnavailableError):
        return bookmark
    return bookmark if changed.has_any_event else replace(bookmark, token=changed.token)


def note_live(database: Database[Document], policy: Policy, live: Sequence[Span]) -> None:
    """Records what is live before summaries are written from it, while the bookmark stays. A bucket that has
    moved may be gone by the time its changes are read, and these do not say where it was meanwhile."""
    existing = load(database, policy)
    if existing.bookmark is not None:
        both = Spans([*existing.bookmark.live, *live]).spans
        store(database, policy, replace(existing, bookmark=replace(existing.bookmark, live=both)))


def live_days(source: Source) -> Sequence[Span]:
    """Returns the UTC days that live buckets cover; days that follow each other make one span. Where there
    are very many, and where a bucket may be of any length, the last span holds the rest. Where times are
    text, adjacent days count as well, so that no text need be read."""
    days: list[Span] = []
    margin = DAY_MS if source.has_texts else 0
    source, length = source.rough, source.model.length_ms
    max_days = 0 if length is None else _MAX_DAYS
    begun = source.days_begun(max_days + 1)
    if begun is not None:
        longest = -(-(length or 1) // DAY_MS) * DAY_MS
        days = [(it, it + DAY_MS + longest) for it in begun[:max_days]]
        at = next(iter(begun[max_days:]), None)
    else:
        at = source.earliest()
        while at is not None and len(days) < max_days:
            days.append((at // DAY_MS * DAY_MS, (at // DAY_MS + 1) * DAY_MS))
            at = source.earliest(days[-1][1])
    rest = [(at, HIGHEST)] if at is not None else []
    return Spans((start - margin, end + margin) for start, end in (*days, *rest)).spans
