"""When the slots of a bucket are: how long it is, where it may start, and which slots it has.

A slot is given by its place: how long after the bucket's start it begins, where no clock is changed.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from functools import cache

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.fields.clocks import Clock, clock_of
from bucketwise.buckets.fields.times import DAY_MS, NO_TIME
from bucketwise.config.models import SlotKeys, SlotsPolicy
from bucketwise.config.times import CALENDAR_DAYS, NEXT_UNIT, format_duration, length_of

_CLOCK = re.compile(r"(?P<h>\d\d)(?::(?P<m>\d\d)(?::(?P<s>\d\d))?|(?P<compact>\d\d))", re.ASCII)
#: Keys may be padded with zeros to so many digits, and to those of the last one.
_PADDED = 2
_HOUR_MS, _MINUTE_MS, _SECOND_MS = 3_600_000, 60_000, 1_000


@dataclass(frozen=True)
class SlotLevel:
    """Slots side by side: so many, each of this length. Keys are numbers, the first one this."""

    slots: int
    length: int  # milliseconds
    first: int = 0

    def place(self, key: str, before: int = 0) -> int | None:
        """Returns which slot a key stands for, from 0 on; None where it is none. `before`: how many slots of
        this level a bucket has before the first of these."""
        return self._counted(key, self.first, self.slots)

    def at(self, index: str) -> int | None:
        """Returns which slot a place of an array stands for; None where it is behind the last."""
        return int(index) if int(index) < self.slots else None

    def key(self, place: int, before: int = 0) -> str:
        """Returns the key of a slot."""
        return str(place + self.first)

    def keys(self, before: int = 0, *, in_array: bool = False) -> str:
        """Returns the keys, or places, that there are, for people."""
        if in_array:
            return f'"0" to "{self.slots - 1}"'
        return f'"{self.key(0, before)}" to "{self.key(self.slots - 1, before)}"'

    def _counted(self, key: str, first: int, most: int) -> int | None:
        if not (key.isascii() and key.isdigit() and len(key) <= _digits(self.first + most - 1)):
            return None
        place = int(key) - first
        return place if 0 <= place < self.slots else None


@cache
def _digits(last: int) -> int:
    """Returns how many digits the key of a slot may have, if the last one is called so."""
    return max(_PADDED, len(str(last)))


@dataclass(frozen=True)
class RunningLevel(SlotLevel):
    """Slots whose keys count on through the bucket."""

    whole: int = 0  # how many slots of this level a bucket has

    def place(self, key: str, before: int = 0) -> int | None:
        """Returns which slot a key stands for."""
        return self._counted(key, self.first + before, self.whole)

    def key(self, place: int, before: int = 0) -> str:
        """Returns the key of a slot."""
        return str(place + before + self.first)


@dataclass(frozen=True)
class ClockLevel(SlotLevel):
    """Slots whose keys are clock times: "07:30", "0730", or "07:30:00"."""

    def place(self, key: str, before: int = 0) -> int | None:
        """Returns which slot a clock time stands for."""
        found = _CLOCK.fullmatch(key)
        if found is None:
            return None
        hour, minute, second = int(found["h"]), int(found["m"] or found["compact"]), int(found["s"] or 0)
        ms = hour * _HOUR_MS + minute * _MINUTE_MS + second * _SECOND_MS
        is_one = minute < 60 and second < 60 and ms % self.length == 0
        return ms // self.length if is_one and ms // self.length < self.slots else None

    def key(self, place: int, before: int = 0) -> str:
        """Returns the clock time of a slot."""
        hour, rest = divmod(place * self.length, _HOUR_MS)
        minute, rest = divmod(rest, _MINUTE_MS)
        tail = f":{rest // _SECOND_MS:02}" if self.length % _MINUTE_MS else ""
        return f"{hour:02}:{minute:02}{tail}"


def levels_of(longest_ms: int, lengths: list[int], first: int, keys: SlotKeys) -> list[SlotLevel]:
    """Returns levels of slots of these lengths, outer first, in a bucket that is so long at most."""
    found: list[SlotLevel] = []
    for span, length in zip([longest_ms, *lengths], lengths, strict=False):
        slots = -(-span // length)
        if keys == "clock":
            found.append(ClockLevel(slots, length))
        elif keys == "running" and found:
            found.append(RunningLevel(slots, length, first, -(-longest_ms // length)))
        else:
            found.append(SlotLevel(slots, length, first))
    return found


Times = NDArray[np.int64]

#: Starts are multiples of this. Hours and days of zones with quarter-hour offsets work as well.
_QUARTER_MS, _ON_A_QUARTER = 900_000, "on a whole quarter of an hour"
#: The hours that a change of the clock adds to a day, at most.
_LONGEST_CHANGE_MS = 2 * 3_600_000
_MONTH_DAYS = 31
#: Months of these: where one begins.
_MONTH, _MS = "datetime64[M]", "datetime64[ms]"


class SlotTimes(ABC):
    """When the slots of a bucket are."""

    #: The longest that a bucket may be, in milliseconds.
    longest: int
    #: Places of slots are below this.
    room: int
    #: Whether buckets may lack slots that others have.
    differ: bool = True
    #: What the start of a bucket has to be, for people.
    start_rule: str

    @abstractmethod
    def misplaced(self, starts: Times) -> NDArray[np.bool_]:
        """Returns which buckets can't start there; NO_TIME can't either."""

    @abstractmethod
    def ends(self, starts: Times) -> Times:
        """Returns the first instant after each bucket."""

    @abstractmethod
    def times(self, starts: Times, places: Times) -> Times:
        """Returns when the slots at these places begin, (n, k); NO_TIME for one that a bucket doesn't
        have."""

    def why_lacking(self, start: int, place: int) -> str:
        """Returns why a bucket does not have a slot, for people."""
        return "the bucket ends before"


class EvenSlots(SlotTimes):
    """Buckets that are equally long."""

    differ = False

    def __init__(self, length_ms: int) -> None:
        self.longest = self.room = length_ms
        self._step = math.gcd(length_ms, _QUARTER_MS)
        step = format_duration(timedelta(milliseconds=self._step))
        rules = {60_000: "on a whole minute", _QUARTER_MS: _ON_A_QUARTER}
        self.start_rule = rules.get(self._step, f"on a multiple of {step}")

    def misplaced(self, starts: Times) -> NDArray[np.bool_]:
        """Returns which starts are not on a whole minute or quarter of an hour."""
        return np.asarray(starts % self._step != 0)

    def ends(self, starts: Times) -> Times:
        """Returns the first instant after each bucket."""
        return starts + self.longest

    def times(self, starts: Times, places: Times) -> Times:
        """Returns when slots begin."""
        return starts[:, None] + places


class CalendarSlots(SlotTimes):
    """Buckets of days, weeks or months of a clock. Slots follow each other from the bucket's start on: a day
    of 25 hours has 25."""

    def __init__(self, clock: Clock, days: int | None, *, at_midnight: bool = False) -> None:
        """`days`: how many a bucket has; None: a calendar month."""
        self._clock, self._days = clock, days
        self._at_midnight = at_midnight or days is None
        self.longest = (days or _MONTH_DAYS) * DAY_MS + (0 if clock.is_utc else _LONGEST_CHANGE_MS)
        self.room = self.longest
        midnight = f"midnight in {clock.name}{'' if days else ', of the first day of a month'}"
        self.start_rule = midnight if self._at_midnight else _ON_A_QUARTER

    def misplaced(self, starts: Times) -> NDArray[np.bool_]:
        """Returns which starts are not on a quarter of an hour; or not at midnight; or where no month
        begins."""
        return self._off_midnight(starts) if self._at_midnight else np.asarray(starts % _QUARTER_MS != 0)

    def _off_midnight(self, starts: Times) -> NDArray[np.bool_]:
        day = _day_of(self._clock.shown(starts))
        is_off = self._clock.since(day) != starts
        return np.asarray(is_off if self._days else is_off | (_month_of(day, 0) != day))

    def ends(self, starts: Times) -> Times:
        """Returns the first instant after each bucket, by the clock a day, a week or a month later."""
        ends = self._clock.since(self._shown_end(self._first_shown(starts)))
        return np.minimum(ends, starts + self.longest)

    def _first_shown(self, starts: Times) -> Times:
        """Returns what the clock shows at the start; midnight where that is skipped."""
        shown = self._clock.shown(starts)
        day = _day_of(shown)
        return np.where(self._clock.since(day) == starts, day, shown)

    def _shown_end(self, first: Times) -> Times:
        """Returns what the clock shows when a bucket ends that started when it showed `first`."""
        return first + self._days * DAY_MS if self._days else _month_of(first, 1)

    def times(self, starts: Times, places: Times) -> Times:
        """Returns when slots begin."""
        times = starts[:, None] + places
        ends = self.ends(starts)
        if places.size and (starts + int(places.max()) >= ends).any():
            times[times >= ends[:, None]] = NO_TIME
        return times


class ClockSlots(CalendarSlots):
    """Buckets of days, weeks or months of a clock, with slots called by what it shows. The hour that it shows
    twice is the first."""

    def __init__(self, clock: Clock, days: int | None) -> None:
        super().__init__(clock, days, at_midnight=True)
        self.room = (days or _MONTH_DAYS) * DAY_MS

    def times(self, starts: Times, places: Times) -> Times:
        """Returns when the clock first shows a time of each slot."""
        first = self._first_shown(starts)
        last = self._shown_end(first)
        times = starts[:, None] + places
        changed = np.flatnonzero(self._clock.since(last) - starts != last - first)
        if len(changed):
            found = self._instants(first[changed, None] + places)
            found[found >= starts[changed, None] + self.longest] = NO_TIME
            times[changed] = found
        if self._days is None and places.size:
            times[first[:, None] + places >= last[:, None]] = NO_TIME
        return times

    def _instants(self, shown: Times) -> Times:
        return self._clock.instants(shown)

    def why_lacking(self, start: int, place: int) -> str:
        """Returns why a bucket does not have a slot, for people."""
        first = int(self._first_shown(np.array([start]))[0])
        if first + place >= int(self._shown_end(np.array([first]))[0]):
            return super().why_lacking(start, place)
        return f"clocks in {self._clock.name} skipped that time"


class DaySlots(ClockSlots):
    """Buckets of weeks or months of a clock, with a slot for each day."""

    def _instants(self, shown: Times) -> Times:
        """Returns the first instants of days; NO_TIME for a day that the clock skips."""
        found = self._clock.since(shown)
        return np.where(self._clock.since(shown + DAY_MS) == found, NO_TIME, found)

    def why_lacking(self, start: int, place: int) -> str:
        """Returns why a bucket does not have a slot, for people."""
        why = super().why_lacking(start, place)
        return why.replace("that time", "that day")


def slot_units(policy: SlotsPolicy) -> tuple[str, ...]:
    """Returns how long the slots of each level are, outer first."""
    return policy.slot_levels or (policy.slot or "second",)


def slot_times_of(policy: SlotsPolicy) -> SlotTimes:
    """Returns when the slots of a policy's buckets are."""
    slot = slot_units(policy)[0]
    span = policy.span or NEXT_UNIT[slot]
    days, clock = CALENDAR_DAYS.get(span, 0), clock_of(policy.timezone)
    if slot == "day":
        return DaySlots(clock, days)
    if policy.slot_time == "local" or (policy.slot_keys == "clock" and clock.is_utc):
        return ClockSlots(clock, days)
    if days == 0 or (days and clock.is_utc):
        return EvenSlots(length_of(span) // timedelta(milliseconds=1))
    return CalendarSlots(clock, days, at_midnight=policy.slot_keys == "clock")


def _day_of(shown: Times) -> Times:
    """Returns the midnights before; NO_TIME for NO_TIME."""
    return np.where(shown == NO_TIME, NO_TIME, shown // DAY_MS * DAY_MS)


def _month_of(shown: Times, later: int) -> Times:
    """Returns where the month begins, or one so many later; NO_TIME, which numpy takes for no date, stays."""
    months = shown.astype(_MS).astype(_MONTH) + np.timedelta64(later, "M")
    return months.astype(_MS).astype(np.int64)
