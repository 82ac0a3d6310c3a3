"""Summaries that are kept though their readings are gone: those were cleared away, not withdrawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import bson

from buckets.models.covered import value_at
from buckets.source import Source
from config.policies import Policy
from rollups.calendar.due import Spans
from rollups.calendar.levels import Span
from rollups.summaries.documents import OPTIONS, milliseconds


@dataclass
class Worn:
    """Tells windows whose raw data was cleared away from those that lost readings.

    Where something clears raw data that the policy does not archive (`clears`: a TTL index, another policy's
    archive), any window is worn that has less than its summary tells. Else none is that ended at or after
    `recheck_from` (milliseconds): what goes so early goes on purpose. Of older ones:

    - All readings are gone, and nothing told that they went: the collection may have been dropped. Where just
      this range is asked for (`is_asked_for`), only if nothing is older.
    - The policy archives nothing, so that something else removes raw data by age, the oldest first. Worn then
      is what has lost its own oldest, with nothing of its series older; and where the change stream tells of
      no delete or update, so that they went before. (A policy that archives has archived what goes by age.)
    """

    source: Source
    policy: Policy
    archived_from: int | None  # milliseconds; None: nothing is archived
    recheck_from: int
    clears: Callable[[], bool]
    is_asked_for: bool  # somebody wants just this range computed
    changed: Mapping[str, Spans] | None = None  # by operation; None: there was no change stream
    ended: Callable[[], int | None] = lambda: None  # before it (milliseconds), archived readings have gone
    _oldest: dict[bytes, int | None] = field(default_factory=dict)

    def has_ended(self, span: Span, standing: bytes, computed: bytes | None) -> bool:
        """Returns whether a summary stays because archived readings of its time have gone by
        `retain.archive`. One that lies wholly before that end does: its readings may be late ones that say
        nothing of the others. `span`: where its readings may lie."""
        ended = self._ended
        if ended is None or span[0] >= ended:
            return False
        return span[1] <= ended or computed is None or _count(computed) < _count(standing)

    @cached_property
    def _ended(self) -> int | None:
        return self.ended()

    def is_worn(self, window: Span, standing: bytes, computed: bytes | None) -> bool:
        """Returns whether the standing summary, as BSON, stays in place of the one that its readings give
        now."""
        was, now = bson.decode(standing, OPTIONS), bson.decode(computed, OPTIONS) if computed else None
        if now is not None and now["count"] >= was["count"]:
            return False
        if self.clears():
            return True
        if window[1] >= self.recheck_from or (now is None and self._has("move", window)):
            return False
        told = any(self._has(operation, window) for operation in self.changed or ())
        if now is None and not told and not self.is_asked_for:
            return True
        if self.policy.archive is not None and self.policy.archive.to != "none":
            is_first = self.archived_from is None or self.archived_from >= window[0]
            return now is None and not told and is_first and self._nothing_is_older(was, window)
        if self.changed is not None and not self._has("delete", window) and not self._has("update", window):
            return True
        front_is_gone = now is None or self._front_is_gone(was, now)
        return front_is_gone and self._nothing_is_older(was, window)

    def _has(self, operation: str, window: Span) -> bool:
        return self.changed is not None and self.changed[operation].touch(*window)

    def _front_is_gone(self, was: dict[str, object], now: dict[str, object]) -> bool:
        for name in (f"{value}.first_at" for value in self.policy.value_names):
            old, new = value_at(was, name), value_at(now, name)
            if old is not None and (new is None or milliseconds(old) < milliseconds(new)):
                return True
        return False

    def _nothing_is_older(self, summary: dict[str, object], window: Span) -> bool:
        """Returns whether no live bucket of the summary's series covers an instant before the window."""
        series = {
            field: {"$eq": value_at(summary, f"_id.series.{name}")}
            for name, field in self.policy.stored_series.items()
        }
        key = bson.encode(series, codec_options=OPTIONS)
        if key not in self._oldest:
            self._oldest[key] = self.source.earliest_of(series)
        oldest = self._oldest[key]
        return oldest is None or oldest >= window[0]


def _count(summary: bytes) -> int:
    return int(bson.decode(summary, OPTIONS)["count"])
