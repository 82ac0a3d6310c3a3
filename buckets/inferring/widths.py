"""How long slots and their buckets are, weighed by evidence: how many slots there are, what the first is
called, and how far the documents of a series lie apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bucketwise.buckets.fields.clocks import with_midnights
from bucketwise.buckets.fields.times import as_date

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
#: Starts are multiples of this at least: midnights of all zones are.
_QUARTER = 15 * MINUTE
#: How long the bucket of a month is.
_MONTHS = range(28 * DAY - HOUR, 31 * DAY + HOUR + 1)
#: Units in which slots and buckets are told, with their names.
_NAMES = {SECOND: "second", MINUTE: "minute", HOUR: "hour", DAY: "day", 7 * DAY: "week", 31 * DAY: "month"}
#: Widths that people choose: others have to fill their bucket.
_USUAL = {
    *(SECOND * it for it in (1, 5, 10, 15, 30)),
    *(MINUTE * it for it in (1, 5, 10, 15, 30)),
    HOUR,
    DAY,
}
_WIDTHS = sorted(
    {unit * it for unit in (SECOND, MINUTE) for it in (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30)}
    | {HOUR * it for it in (1, 2, 3, 4, 6, 8, 12)}
    | {DAY}
)
_SPANS = [MINUTE, HOUR, DAY, 7 * DAY, 31 * DAY]
#: Lengths of buckets that only documents so far apart suggest.
_OTHER_SPANS = [*(MINUTE * it for it in (2, 5, 10, 15, 20, 30)), *(HOUR * it for it in (2, 3, 4, 6, 8, 12))]
#: Share of a bucket's slots that are there, if nothing but their number tells what they are.
_LEAST = 0.4
#: Of slots of which a usual bucket has nearly all: see `emptiness`.
NEARLY_FULL = 0.1


class Width(NamedTuple):
    """Slots of one length in a bucket of another, in milliseconds, and what the first one is called."""

    slot: int
    span: int
    first: int = 0

    @property
    def room(self) -> int:
        """Returns how many slots a bucket has; of a month, at most."""
        return self.span // self.slot

    @property
    def keys(self) -> dict[str, Any]:
        """Returns the keys of a policy."""
        keys: dict[str, Any] = {"slot": _written(self.slot)}
        if self.slot == HOUR:
            keys = {"slot_levels": ["hour"]}
        if (self.slot, self.span) not in ((SECOND, MINUTE), (MINUTE, HOUR), (HOUR, DAY)):
            keys["span"] = _written(self.span)
        if self.first:
            keys["first_slot"] = self.first
        return keys

    @property
    def words(self) -> str:
        """Returns what these slots are, for people."""
        slot = f"{_NAMES[self.slot]}s" if self.slot in _NAMES else f"slots of {_written(self.slot)}"
        named = _NAMES.get(self.span)
        begin = f", the first of them called {self.first}" if self.first else ""
        article = "an" if named == "hour" else "a"
        return f"{slot} of {f'{article} {named}' if named else _written(self.span)}{begin}"


def _written(ms: int) -> str:
    if ms in _NAMES:
        return _NAMES[ms]
    for letter, unit in (("h", HOUR), ("m", MINUTE)):
        if ms % unit == 0:
            return f"{ms // unit}{letter}"
    return f"{ms // SECOND}s"


@dataclass(frozen=True)
class Places:
    """The slots of one level in all documents: the lowest and the highest key of any, the highest of each
    document, and whether they are keys."""

    lowest: int
    highest: int
    each: Sequence[int]
    is_keyed: bool

    def count(self, first: int) -> int:
        """Returns how many slots a usual document has, if the first is called so."""
        ordered = sorted(self.each)
        return ordered[(3 * len(ordered)) // 4 if len(ordered) > 4 else len(ordered) // 2] - first + 1

    def median(self, first: int) -> int:
        """Returns how many slots half of the documents have at most, if the first is called so."""
        return sorted(self.each)[(len(self.each) - 1) // 2] - first + 1


@dataclass(frozen=True)
class Spacing:
    """Where buckets start, in milliseconds, and how far those of a series lie apart; None where each series
    has but one. `is_day`: a start tells no time of day."""

    starts: Sequence[int]
    gap: int | None
    is_day: bool = False

    def may_be(self, span: int) -> bool:
        """Returns whether buckets of this length may start there."""
        if span % DAY:
            return not self.is_day and self._on(min(span, _QUARTER))
        if span == 31 * DAY and not all(_starts_month(it) for it in self.starts):
            return False
        return self._on(_QUARTER) and (self.gap is not None or bool(with_midnights(self.starts)))

    def _on(self, step: int) -> bool:
        return sum(it % step == 0 for it in self.starts) >= 0.9 * len(self.starts)

    def reaches(self, span: int) -> bool:
        """Returns whether buckets of this length reach to the next one, or nearly: others would leave half of
        the time out."""
        if self.gap is None:
            return True
        return self.gap in _MONTHS if span == 31 * DAY else self._fits(span) and 2 * span > self.gap

    def _fits(self, span: int) -> bool:
        leeway = HOUR if span % DAY == 0 else 0
        return self.gap is None or span - leeway <= self.gap


def _starts_month(start: int) -> bool:
    """Returns whether a month begins about then, in any zone."""
    return as_date(start + 14 * HOUR).day in (1, 2)


def widths_of(places: Places, spacing: Spacing) -> list[Width]:
    """Returns what the slots may be, the likeliest first: what reaches from one document to the next, or all
    that their number allows if nothing does."""
    spans = [*_SPANS, *([spacing.gap] if spacing.gap in _OTHER_SPANS else [])]
    possible = [it for it in spans if spacing.may_be(it)]
    reaching = [it for it in possible if spacing.reaches(it)]
    if spacing.gap is None or not reaching:
        shorter = [it for it in possible if spacing.gap is None or it <= spacing.gap]
        found = [it for first in _firsts(places) for it in _by_count(places, shorter, first)]
        return sorted(found, key=lambda it: (emptiness(it, places), -it.span, -it.first))
    found = [it for first in _firsts(places) for span in reaching for it in _of_span(places, span, first)[:1]]
    found.sort(key=lambda it: (emptiness(it, places), -it.span, -it.first))
    found = [it for it in found if it.slot == found[0].slot]
    if not found or emptiness(found[0], places) < NEARLY_FULL:
        return found
    shorter = [it for it in possible if 2 * it <= spacing.gap]
    full = [it for it in _by_count(places, shorter, found[0].first) if it.slot in _USUAL]
    return [*(it for it in reversed(full) if emptiness(it, places) == 0), *found]


def _firsts(places: Places) -> list[int]:
    """Returns what the first slot may be called. Where slots fill a bucket both ways, it is the lowest."""
    if not places.is_keyed or places.lowest != 1:
        return [0]
    return [0, 1]


def _of_span(places: Places, span: int, first: int) -> list[Width]:
    """Returns the widths of slots in buckets of a length, those with fewest slots first: one that all slots
    fill comes before all others."""
    count = places.count(first)
    fitting = [
        Width(slot, span, first)
        for slot in reversed(_WIDTHS)
        if slot < span and (DAY if span % DAY == 0 else span) % slot == 0 and (slot < DAY or span > DAY)
    ]
    fitting = [it for it in fitting if places.median(first) <= it.room and _holds(it, places)]
    if span == 31 * DAY:
        fitting = [it for it in fitting if it.slot == DAY]
    full = [it for it in fitting if it.room == count or places.median(first) == it.room < count]
    reached = [it for it in fitting if it.room == places.highest - first + 1]
    return full or reached or [it for it in fitting if it.slot in _USUAL]


def _holds(width: Width, places: Places) -> bool:
    """Returns whether a bucket has all these slots: on a day on which clocks are put back it has more."""
    more = HOUR // width.slot if width.span == DAY else 0
    return places.highest - width.first < width.room + more


def _by_count(places: Places, spans: Sequence[int], first: int) -> Iterator[Width]:
    """Yields the widths that slots may have by their number alone."""
    count = places.count(first)
    for span in spans:
        for it in _of_span(places, span, first)[:1]:
            if count >= _LEAST * it.room:
                yield it


def emptiness(width: Width, places: Places) -> float:
    """Returns how far the slots of a usual document are from all that a bucket has."""
    count = max(1, places.count(width.first))
    return max(0.0, math.log(width.room / count))  # days on which clocks are put back have more


def spacing_words(gap: int) -> str:
    """Returns how far documents lie apart, for people."""
    if gap in _MONTHS and gap % (7 * DAY):
        return "a month"
    if abs(gap - DAY) <= HOUR:
        return "a day"
    return {MINUTE: "a minute", HOUR: "an hour", 7 * DAY: "a week"}.get(gap) or _written(gap)
