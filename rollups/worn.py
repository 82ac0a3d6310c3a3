"""Raw data that something else removed by age, a TTL index say: its summaries outlive it."""

from __future__ import annotations

from dataclasses import dataclass, field

import bson

from buckets.covered import value_at
from buckets.source import Source
from config.policies import Policy
from rollups.documents import OPTIONS, milliseconds
from rollups.due import Span


@dataclass
class Worn:
    """Tells windows whose readings went by age from those that lost readings in their midst.

    Age takes a series' oldest readings first. So a window is worn where its own oldest are gone, and nothing
    of its series is older, live or archived. One that ended at or after `recheck_from` (milliseconds) is not:
    what goes so early goes on purpose.
    """

    source: Source
    policy: Policy
    archived_from: int | None  # milliseconds; None: nothing is archived
    recheck_from: int
    _oldest: dict[bytes, int | None] = field(default_factory=dict)

    def is_worn(self, window: Span, standing: bytes, computed: bytes | None) -> bool:
        """Whether the standing summary, as BSON, tells of more than the one that its readings give now."""
        if window[1] >= self.recheck_from:
            return False
        if self.archived_from is not None and self.archived_from < window[0]:
            return False
        was, now = bson.decode(standing, OPTIONS), bson.decode(computed, OPTIONS) if computed else {}
        if computed and (now["count"] >= was["count"] or not self._front_is_gone(was, now)):
            return False
        oldest = self._oldest_of(was)
        return oldest is None or oldest >= window[0]

    def _front_is_gone(self, was: dict[str, object], now: dict[str, object]) -> bool:
        for name in (f"{field}.first_at" for field in self.policy.value_fields):
            old, new = value_at(was, name), value_at(now, name)
            if old is not None and (new is None or milliseconds(old) < milliseconds(new)):
                return True
        return False

    def _oldest_of(self, summary: dict[str, object]) -> int | None:
        """The first instant that a live bucket of the summary's series covers."""
        series = {name: {"$eq": value_at(summary, name)} for name in self.policy.series_fields}
        key = bson.encode(series, codec_options=OPTIONS)
        if key not in self._oldest:
            self._oldest[key] = self.source.earliest_of(series)
        return self._oldest[key]
