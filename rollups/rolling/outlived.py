"""Decides which summaries stay although their readings are gone, because those were cleared away and
not withdrawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any, NamedTuple

import bson
from pymongo.database import Database

from bucketwise.buckets.decoding.local import LARGEST_MS
from bucketwise.buckets.fields.selectors import series_query
from bucketwise.buckets.models.series import series_key
from bucketwise.buckets.rules import SeriesRules
from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy
from bucketwise.rollups.calendar.due import Spans
from bucketwise.rollups.calendar.levels import Span
from bucketwise.rollups.progress import digest_of
from bucketwise.rollups.summaries.documents import OPTIONS, first_instants, is_of_series, series_of, value_at

Document = dict[str, Any]


class TtlRule(NamedTuple):
    """A rule by which MongoDB itself deletes documents, and after how long."""

    place: str
    after: timedelta


def rules(database: Database[Document], listed: Iterable[Document]) -> list[TtlRule]:
    """Returns the TTL indexes of collections as MongoDB lists them, and the expiry of native time-series
    collections."""
    found = []
    for info in listed:
        seconds = info.get("options", {}).get("expireAfterSeconds")
        if seconds is not None:
            found.append(TtlRule(f"{info['name']} (expireAfterSeconds)", timedelta(seconds=float(seconds))))
        if info["type"] == "view":
            continue
        for name, index in database[info["name"]].index_information().items():
            if "expireAfterSeconds" in index:
                after = timedelta(seconds=float(index["expireAfterSeconds"]))
                found.append(TtlRule(f"{info['name']}, index {name}", after))
    return found


def conflicts(source: Source) -> list[TtlRule]:
    """Returns the expiries that would delete a policy's buckets before they are archived."""
    archive = source.policy.archiving
    if archive is None:
        return []
    found = rules(source.collection.database, source.listed)
    lengths = [it.archive.after for it in source.policy.lives if it.archive is not None]
    return [expiry for expiry in found if any(it is None or expiry.after <= it for it in lengths)]


def deletes_before_archive(source: Source) -> bool:
    """Returns whether MongoDB deletes raw data before it is archived. Such deletes do not count as changes of
    readings."""
    if source.policy.archiving is None:
        return bool(rules(source.collection.database, source.listed))
    return bool(conflicts(source))


@dataclass
class OutlivedSummaries:
    """Decides which summaries stay because their raw data was cleared away, and which have lost readings.

    Where something clears raw data that the policy does not archive (`is_deleted_early`: a TTL index, another
    policy's archive), a summary stays if its window holds less than it says. Else none stays whose window
    ended at or after `recheck_from` (milliseconds): what goes so early goes on purpose. Others stay where:

    - No delete, update or move was reported, and all readings are gone, or most, or the oldest, or all
      changes are known: then those went before, and what is left came late. This holds for a range that is
      asked for, and for settings that have changed, as well.
    - One was reported, but the policy archives nothing, so that something else removes raw data by age, the
      oldest first; and the window has lost its own oldest, with nothing of its series older. (A policy that
      archives has archived what goes by age.)

    Where a hold has kept summaries of readings that were deleted or moved, its release is as if that were
    reported then (`released`: the windows).
    """

    source: Source
    policy: Policy
    recheck_from: int
    is_deleted_early: Callable[[], bool]
    is_asked_for: bool  # somebody wants just this range computed
    changed: Mapping[str, Spans] | None = None  # by operation; None: there was no change stream
    #: Before when (milliseconds) archived readings of the series of each rule have gone.
    ended_by_rule: Callable[[], Sequence[int]] = lambda: ()
    archived_next: Callable[[int], int | None] = lambda _: None  # see `Archived.next`
    released: Mapping[bytes, Spans] = field(default_factory=dict)
    missed: int = 0  # summaries that stay although readings came late into their windows
    outdated: int = 0  # summaries that stay as earlier settings made them
    gone: int = 0  # summaries that stay although somebody took their readings out before they were archived
    _oldest: dict[bytes, int | None] = field(default_factory=dict)
    _made_anew: dict[Span, bool] = field(default_factory=dict)

    def is_made_anew(self, window: Span, is_local: bool) -> bool:
        """Returns whether anything is live or archived of the window of a summary that was made with other
        settings: then other summaries hold it. `is_local`: the window goes by the readings' own clocks."""
        reach = LARGEST_MS if is_local else 0
        span = window[0] - reach, window[1] + reach
        if span not in self._made_anew:
            found = (self.source.earliest(span[0]), self.archived_next(span[0]))
            self._made_anew[span] = any(at is not None and at < span[1] for at in found)
        return self._made_anew[span]

    def has_ended(self, span: Span, existing: bytes, computed: bytes | None) -> bool:
        """Returns whether a summary stays because the archived readings of its time were deleted by
        `retain.archive`. That is so if it lies entirely before that deletion: the readings that are
        left may be late ones. `span`: where its readings may lie."""
        if not self._ended or span[0] >= max(self._ended):
            return False
        ended_before = self._ended_of(existing)
        if span[0] >= ended_before:
            return False
        has_ended = span[1] <= ended_before or computed is None or _count(computed) < _count(existing)
        return has_ended and self._note_late(span, computed)

    @cached_property
    def _ended(self) -> Sequence[int]:
        return self.ended_by_rule()

    @cached_property
    def _rules(self) -> SeriesRules:
        return SeriesRules(self.policy)

    def _ended_of(self, existing: bytes) -> int:
        """Returns before when archived readings of a summary's series have gone."""
        summary = bson.decode(existing, OPTIONS) if self._rules.own else {}
        if not summary or not is_of_series(self.policy, summary):
            return max(self._ended)
        return self._rules.longest(series_of(self.policy, summary), self._ended)

    def is_released(self, existing: bytes, window: Span) -> bool:
        """Returns whether only holds have kept a summary, or what it is made of, and others stand now."""
        summary = bson.decode(existing, OPTIONS) if self.released else {}
        if not summary or not is_of_series(self.policy, summary):
            return False
        spans = self.released.get(digest_of(series_key(series_of(self.policy, summary))))
        return spans is not None and spans.touch(*window)

    def has_outlived(
        self, window: Span, existing: bytes, computed: bytes | None, is_released: bool = False
    ) -> bool:
        """Returns whether the existing summary, as BSON, stays instead of the one computed from the
        readings that are left."""
        before, after = bson.decode(existing, OPTIONS), bson.decode(computed, OPTIONS) if computed else None
        if after is not None and after["count"] >= before["count"]:
            return False
        if self.is_deleted_early():
            return self._note_late(window, computed)
        is_withdrawn = is_released or self._has_event("move", window)
        if window[1] >= self.recheck_from or (after is None and is_withdrawn):
            return False
        if is_released or any(self._has_event(it, window) for it in ("delete", "update", "move")):
            is_purge = self.policy.archiving is None and self._front_is_gone(before, after)
            return is_purge and self._is_oldest(before, window)
        is_left = self.changed is not None or self._front_is_gone(before, after) or _is_remnant(before, after)
        self.gone += is_left and self.policy.archiving is not None
        return is_left and self._note_late(window, computed)

    def _note_late(self, window: Span, computed: bytes | None) -> bool:
        """Returns True: a summary stays. Counts it as missed if readings came late into its window, or if its
        range is asked for."""
        is_late = any(self._has_event(operation, window) for operation in ("insert", "update", "move"))
        self.missed += computed is not None and (is_late or self.is_asked_for)
        return True

    def _has_event(self, operation: str, window: Span) -> bool:
        return self.changed is not None and self.changed[operation].touch(*window)

    def _front_is_gone(self, before: dict[str, Any], after: dict[str, Any] | None) -> bool:
        if after is None:
            return True
        old, new = first_instants(self.policy, before), first_instants(self.policy, after)
        return any(name not in new or at < new[name] for name, at in old.items())

    def _is_oldest(self, summary: dict[str, object], window: Span) -> bool:
        """Returns whether no live bucket of the summary's series covers an instant before the window."""
        names = self.policy.series_names
        series = series_query(self.policy, tuple(value_at(summary, f"_id.series.{name}") for name in names))
        key = bson.encode(series, codec_options=OPTIONS)
        if key not in self._oldest:
            self._oldest[key] = self.source.earliest_of(series)
        oldest = self._oldest[key]
        return oldest is None or oldest >= window[0]


def _is_remnant(before: dict[str, Any], after: dict[str, Any] | None) -> bool:
    """Returns whether less than half of a window's readings are left."""
    return after is None or 2 * after["count"] < before["count"]


def _count(summary: bytes) -> int:
    return int(bson.decode(summary, OPTIONS)["count"])
