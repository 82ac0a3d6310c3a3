"""Summaries that are kept though their readings are gone: those were cleared away, not taken back."""

from __future__ import annotations

from dataclasses import dataclass, field

import bson

from buckets.covered import value_at
from buckets.source import Source
from config.policies import Policy
from rollups.documents import OPTIONS, milliseconds
from rollups.due import Span, Spans


@dataclass
class Worn:
    """Tells windows whose raw data was cleared away from those that lost readings.

    Never worn is a window that ended at or after `recheck_from` (milliseconds): what goes so early goes on
    purpose. Of older ones, two kinds are:

    - all readings are gone, and no change stream told of it (`told`): the collection may have been dropped;
    - the oldest ones are gone, nothing of the series is older, and the policy archives nothing: something
      else removes raw data by age. (Where it does archive, that is what does, and the archive has it.)
    """

    source: Source
    policy: Policy
    recheck_from: int
    told: Spans = field(default_factory=lambda: Spans(()))  # where a change stream told of changes
    _oldest: dict[bytes, int | None] = field(default_factory=dict)

    def is_worn(self, window: Span, standing: bytes, computed: bytes | None) -> bool:
        """Whether the standing summary, as BSON, stays in place of the one that its readings give now."""
        if window[1] >= self.recheck_from:
            return False
        if computed is None and not self.told.touch(*window):
            return True
        if self.policy.archive is not None and self.policy.archive.to != "none":
            return False
        was, now = bson.decode(standing, OPTIONS), bson.decode(computed, OPTIONS) if computed else {}
        if computed and (now["count"] >= was["count"] or not self._front_is_gone(was, now)):
            return False
        oldest = self._oldest_of(was)
        return oldest is None or oldest >= window[0]

    def _front_is_gone(self, was: dict[str, object], now: dict[str, object]) -> bool:
        for name in (f"{value}.first_at" for value in self.policy.value_fields):
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
