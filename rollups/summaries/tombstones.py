"""Tombstones of summaries: what is past its `retain`, since when, and what may be removed by now. Pure.

A tombstone is on all summaries of a level whose windows ended before an instant. Runs place a later one every
now and then, so that few are recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

from bucketwise.config.durations import format_duration
from bucketwise.rollups.calendar.windows import span_ms

#: After tombstones are lifted, there is so long to change the policy before their grace begins again.
LIFTED_FOR = timedelta(days=30)
NEVER = -(2**62)
#: A run places a tombstone if the one before is this old: a day, or this share of the grace.
_PACE, _PACES = timedelta(days=1), 8


class Tombstone(NamedTuple):
    """A tombstone on the windows that ended `before` an instant, and when it was placed; milliseconds."""

    before: int
    at: int


class Lift(NamedTuple):
    """What ends after `since` stays until `until`, and has its grace from then on; milliseconds."""

    since: int
    until: int


@dataclass(frozen=True)
class Retention:
    """How long the summaries of one level stay, at one instant. `past`: those whose windows ended before it
    are past their time (milliseconds)."""

    keep: timedelta
    grace: timedelta
    now: int
    past: int

    @property
    def text(self) -> str:
        """Returns how long summaries stay, as the policy file writes it."""
        return format_duration(self.keep)


@dataclass(frozen=True)
class Tombstones:
    """The tombstones of one level, the oldest first. They count only under the length that placed them."""

    keep: str | None = None
    placed: Sequence[Tombstone] = ()
    lifts: Sequence[Lift] = ()

    def counting(self, rule: Retention) -> Sequence[Tombstone]:
        """Returns the tombstones that count under a rule."""
        return self.placed if self.keep == rule.text else ()

    def covered(self, rule: Retention) -> int:
        """Returns the instant before which windows are under a tombstone."""
        return min(rule.past, max((it.before for it in self.counting(rule)), default=NEVER))

    def removable(self, rule: Retention) -> int:
        """Returns the instant before which summaries may be removed: they are past their time, and their
        tombstone has stood for the grace. A lift keeps what it is for, and all later ones."""
        grace = span_ms(rule.grace)
        due = [it.before for it in self.counting(rule) if it.at + grace <= rule.now]
        ripe = max(due, default=NEVER) if grace else rule.past
        kept = [it.since + 1 for it in self.lifts if rule.now < it.until + grace]
        return min([rule.past, ripe, *kept])

    def after_run(self, rule: Retention) -> Tombstones:
        """Returns the tombstones once a run has placed what is due, and forgotten what is of no use."""
        grace = span_ms(rule.grace)
        standing = [it for it in self.counting(rule) if it.at <= rule.now]
        ripe = [it for it in standing if it.at + grace <= rule.now]
        standing = standing[max(0, len(ripe) - 1) :]
        pace = min(span_ms(_PACE), grace // _PACES)
        if grace and (not standing or standing[-1].at + pace <= rule.now):
            standing.append(Tombstone(rule.past, rule.now))
        lifts = tuple(it for it in self.lifts if rule.now < it.until + grace)
        return Tombstones(rule.text, tuple(standing), lifts)

    def lifted(self, since: int, now: int) -> Tombstones:
        """Returns the tombstones with those on what ends after an instant lifted."""
        return replace(self, lifts=(*self.lifts, Lift(since, now + span_ms(LIFTED_FOR))))

    def is_lifted(self, since: int, rule: Retention) -> bool:
        """Returns whether what ends after an instant is lifted already."""
        return any(it.since <= since and rule.now < it.until for it in self.lifts)
