"""Where late and changed readings may be: told by a change stream, or looked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pymongo.database import Database

from buckets.source import Source
from buckets.times import DAY_MS
from config.errors import BucketwiseError
from config.policies import Policy
from rollups.due import Calendar, KindName, Span, Spans, kinds_of, widened
from rollups.progress import Bookmark, Progress, load, store
from rollups.stream import Changed, LostError, Stream, UnavailableError, collections_of
from rollups.windows import HIGHEST

Document = dict[str, Any]
Mode = Literal["stream", "scan"]
_MOST_DAYS = 400  # a query each
_PRE_IMAGES = (
    "db.runCommand({collMod: %r, changeStreamPreAndPostImages: {enabled: true}}) lets later ones tell it"
)


@dataclass(frozen=True)
class Late:
    """Spans of time to look at again, in milliseconds, and where to go on from next time.

    `told`: those of which a stream told that something changed there. `reason`: why it is not just those.
    """

    mode: Mode
    spans: Sequence[Span]
    told: Sequence[Span] = ()
    events: int = 0
    reason: str | None = None
    bookmark: Bookmark | None = None


def find_late(
    database: Database[Document],
    policy: Policy,
    source: Source,
    loaded: Progress,
    calendar: Calendar,
    *,
    books: str,
    check: Callable[[], None],
    dry_run: bool,
) -> Late:
    """`loaded`: what is rolled up, and where the stream was left. `books`: see `rollups.stream`.

    Raises BucketwiseError where the policy insists on a stream, and there is none.
    """
    assert policy.rollup is not None
    recheck = (calendar.recheck_from, HIGHEST)
    if policy.rollup.late_data == "scan":
        return Late("scan", [recheck])
    if policy.model == "timeseries":
        return Late("scan", [recheck], reason="native time-series collections have no change streams")
    finder = _Finder(database, policy, source, loaded, calendar, Stream(database, policy, source, books))
    try:
        return finder.find(check, dry_run=dry_run)
    except UnavailableError as error:
        if policy.rollup.late_data == "stream":
            raise BucketwiseError(
                f'policy {policy.name}: rollup.late_data = "stream", and there is no change stream to read: '
                f'{error}. Mend that, or write "auto"; nothing was changed'
            ) from error
        return Late("scan", [recheck], reason=f"there is no change stream to read: {error}")


class Watch:
    """Tells whether what was rolled up may have changed since. Reads the stream on from the last roll-up's
    bookmark, and leaves that where it is."""

    def __init__(self, database: Database[Document], policy: Policy, books: str) -> None:
        loaded = load(database, policy)
        self._stream = Stream(database, policy, Source(database, policy), books)
        self._kinds = kinds_of(policy)
        self._bookmark = loaded.bookmark
        self._token = loaded.bookmark.token if loaded.bookmark else None
        self._rolled_up_to = _rolled_up_to(policy, loaded.through) if loaded.through else None
        self._changed = Spans(())

    def has_changed(self, start_ms: int, end_ms: int, check: Callable[[], None]) -> bool:
        """Whether a window that the range touches may have: also where nothing can tell."""
        if self._bookmark is None or self._token is None:
            return True
        try:
            more = self._stream.drain(self._token, self._rolled_up_to, check, dry_run=False)
        except (LostError, UnavailableError):
            self._token = None
            return True
        self._token = more.token
        unknown = self._bookmark.live if more.unknown else ()
        self._changed = Spans([*self._changed.spans, *more.spans.spans, *unknown])
        return any(self._changed.touch(*span) for span in widened(self._kinds, [(start_ms, end_ms)]).spans)


def _rolled_up_to(policy: Policy, through: Mapping[KindName, int]) -> int:
    """A reading at or after it lies in no window that is rolled up."""
    return max(through[kind.name] + kind.reach for kind in kinds_of(policy))


@dataclass(frozen=True)
class _Finder:
    database: Database[Document]
    policy: Policy
    source: Source
    loaded: Progress
    calendar: Calendar
    stream: Stream

    def find(self, check: Callable[[], None], *, dry_run: bool) -> Late:
        through, standing = self.loaded.through, self.loaded.bookmark
        if not through:  # everything is read anyway
            return Late("stream", [], bookmark=self._anew())
        if standing is None:
            return self._look_back("no earlier run has left a bookmark in the change stream")
        # Before the mark: what is live at the mark was live now, or came in since.
        live, collections = live_days(self.source), collections_of(self.database, self.policy)
        try:
            if collections != standing.collections:
                raise LostError("the collection is another one than it was: dropped, renamed or restored")
            changed = self.stream.drain(
                standing.token, _rolled_up_to(self.policy, through), check, dry_run=dry_run
            )
        except LostError as error:
            return self._look_back(f"the change stream does not go on from the last run's bookmark: {error}")
        spans = list(changed.spans.spans)
        live = [*live, *spans, (min(through.values()), HIGHEST)]
        bookmark = Bookmark(changed.token, collections, Spans(live).spans)
        more, reason = self._unknown(changed, standing)
        return Late("stream", spans + more, spans + more, changed.events, reason, bookmark)

    def _unknown(self, changed: Changed, standing: Bookmark) -> tuple[list[Span], str | None]:
        """What to look at for changes that did not tell what time they touched."""
        if not changed.unknown:
            return [], None
        told = f"{changed.unknown} changes (deletes, replacements, moves) do not tell what time they touched"
        hint = _PRE_IMAGES % self.policy.collection
        if changed.unknown == changed.deleted and self._expires():
            # MongoDB's own deletes are no changes of the readings: summaries outlive them.
            reason = f"{told}, and a TTL index deletes there: looked back over `recheck`; {hint}"
            return [(self.calendar.recheck_from, HIGHEST)], reason
        return list(standing.live), f"{told}: looked back over all that was live; {hint}"

    def _expires(self) -> bool:
        names = [self.policy.collection, *([self.policy.overflow.collection] if self.policy.overflow else [])]
        indexes = (index for name in names for index in self.database[name].list_indexes())
        return any("expireAfterSeconds" in index for index in indexes)

    def _look_back(self, reason: str) -> Late:
        """Over all that is live, or was."""
        bookmark = self._anew()
        was = self.loaded.bookmark.live if self.loaded.bookmark else ()
        return Late(
            "stream",
            [*bookmark.live, *was],
            reason=f"{reason}: looked back over all that is live",
            bookmark=bookmark,
        )

    def _anew(self) -> Bookmark:
        """From here on. What was live before, or after, may be in summaries."""
        before = live_days(self.source)
        token, collections = self.stream.token_now(), collections_of(self.database, self.policy)
        return Bookmark(token, collections, Spans([*before, *live_days(self.source)]).spans)


def note_live(database: Database[Document], policy: Policy, source: Source) -> None:
    """Before summaries are written from what is live now, and the bookmark stays: a bucket that has moved may
    be gone by the time its changes are read, and these do not tell where it was meanwhile."""
    standing = load(database, policy)
    if standing.bookmark is not None:
        live = Spans([*standing.bookmark.live, *live_days(source)]).spans
        store(database, policy, replace(standing, bookmark=replace(standing.bookmark, live=live)))


def live_days(source: Source) -> Sequence[Span]:
    """The UTC days that live buckets cover, those that follow each other as one span. Where there are very
    many, the last span holds the rest."""
    days: list[Span] = []
    at = source.earliest()
    while at is not None and len(days) < _MOST_DAYS:
        days.append((at // DAY_MS * DAY_MS, (at // DAY_MS + 1) * DAY_MS))
        at = source.earliest(days[-1][1])
    return Spans([*days, *([(at, HIGHEST)] if at is not None else [])]).spans
