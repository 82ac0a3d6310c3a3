"""Times that are ISO 8601 text: a date, or a date and a time of day with or without an offset from UTC.

This reads text as `$convert` of MongoDB 6.0 and later does, so that the server finds what is decoded. Text
without an offset is what a clock showed. Digits beyond milliseconds are cut off towards 1970, as the server
cuts them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.types import STRING
from bucketwise.buckets.fields.clocks import UTC_CLOCK, Clock, all_shown, days_placed, placed
from bucketwise.buckets.fields.distinct import distinct_rows
from bucketwise.buckets.fields.timeforms import Bounds, Document, TimeForm, any_of
from bucketwise.buckets.fields.times import DAY_MS, FIRST_MS, LAST_MS, LAST_TEXT, NO_TIME, as_date
from bucketwise.buckets.layouts.layout import Element, Group, by_size, read_bytes

Texts = NDArray[np.uint8]  # m × width, ASCII, with zeros behind shorter ones
Integers = NDArray[np.int64]

#: Forms of texts, in which every digit is written 0.
_FORM = re.compile(
    rb"(?P<year>0000)-(?P<month>00)-(?P<day>00)"
    rb"(?:[T ](?P<hour>00):(?P<minute>00)(?::(?P<second>00)(?:\.(?P<fraction>0{1,9}))?)?"
    rb"(?:(?P<utc>Z)|(?P<sign>[+-])(?P<zone_hour>00)(?::?(?P<zone_minute>00))?)?)?"
)
_LEAP_YEAR = r"([0-9][0-9](0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
_OF_ANY_YEAR = "(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31"
_DATE = f"([0-9]{{4}}-({_OF_ANY_YEAR})|{_LEAP_YEAR}-02-29)"
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?"
_UTC_OFFSET = r"[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?"
#: The same as a pattern for MongoDB, from year 0 on: what it does not match, no query by time may find.
ISO = re.compile(f"^{_DATE}([T ]{_CLOCK}(Z|{_UTC_OFFSET})?)?$")


class Kinds(NamedTuple):
    """Patterns that tell plain texts, which sort as time does, from others."""

    plain: re.Pattern[str]
    with_offset: re.Pattern[str]  # of the others
    offset: re.Pattern[
        str
    ]  # tells these from the plain ones. It never backtracks: the server applies it often


#: Texts of a clock of UTC: plain without an offset from UTC, except Z. The others have a sign behind a colon.
OF_UTC = Kinds(
    re.compile(f"^{_DATE}([T ]{_CLOCK}Z?)?$"),
    re.compile(f"^{_DATE}[T ]{_CLOCK}{_UTC_OFFSET}$"),
    re.compile(r":[^+-]*[+-]"),
)
#: Texts of another clock: plain without an offset, and without Z.
OF_ZONE = Kinds(
    re.compile(f"^{_DATE}([T ]{_CLOCK})?$"),
    re.compile(f"^{_DATE}[T ]{_CLOCK}(Z|{_UTC_OFFSET})$"),
    re.compile(r":[^+Z-]*[+Z-]"),
)
_NUMBERS = [name for name in _FORM.groupindex if name not in ("sign", "utc")]
_LIMITS = {"month": (1, 12), "hour": (0, 23), "minute": (0, 59), "second": (0, 59)}
_LIMITS |= {"zone_hour": (0, 23), "zone_minute": (0, 59)}
_ZERO, _NINE = b"09"
#: Bytes of a text's value around its characters: its length, and a zero.
_AROUND = 5
#: A text of more characters is no time.
_LONGEST = 40


def read_iso(group: Group, elements: Sequence[Element], clock: Clock) -> Integers:
    """Returns the texts of these elements as n × k milliseconds since 1970; NO_TIME for what is no time."""
    found = np.full((len(group.matrix), len(elements)), NO_TIME)
    for size, at in by_size(elements).items():
        if 0 < (width := size - _AROUND) <= _LONGEST:
            texts = read_bytes(group.matrix, [elements[i].start + 4 for i in at], width)
            found[:, at] = parse(texts.reshape(-1, width), clock).reshape(len(found), len(at))
    return found


def iso_ms(text: str, clock: Clock = UTC_CLOCK) -> int | None:
    """Returns the milliseconds since 1970 of an ISO 8601 text; None if it is not a time."""
    raw = text.encode()
    if not 0 < len(raw) <= _LONGEST:
        return None
    ms = int(parse(np.frombuffer(raw, dtype=np.uint8)[None, :], clock)[0])
    return None if ms == NO_TIME else ms


def parse(texts: Texts, clock: Clock = UTC_CLOCK) -> Integers:
    """Returns m times in milliseconds since 1970; NO_TIME for what is no time. `clock`: the one that texts
    without an offset show."""
    digits = (texts >= _ZERO) & (texts <= _NINE)
    forms, which = distinct_rows(np.where(digits, np.uint8(_ZERO), texts))
    found = np.full(len(texts), NO_TIME)
    for number, form in enumerate(forms):
        match = _FORM.fullmatch(form.rstrip(b"\0"))
        if match is not None:
            rows = np.flatnonzero(which == number)
            found[rows] = _of_form(texts[rows], match, clock)
    return found


def _of_form(texts: Texts, match: re.Match[bytes], clock: Clock) -> Integers:
    """Texts that differ in their digits alone."""
    part = {name: number(texts, *match.span(name)) for name in _NUMBERS if match[name]}
    sane = np.ones(len(texts), dtype=np.bool_)
    for name, (low, high) in _LIMITS.items():
        if name in part:
            sane &= (part[name] >= low) & (part[name] <= high)
    month = np.clip(part["month"], 1, 12)
    sane &= (part["day"] >= 1) & (part["day"] <= month_length(part["year"], month)) & (part["year"] >= 1)
    seconds = days_before(part["year"], month) + part["day"] - 1
    for name, units in (("hour", 24), ("minute", 60), ("second", 60)):
        seconds = seconds * units + part.get(name, np.int64(0))
    micros = (seconds - _offset(part, match)) * 1_000_000 + _micros(part, match)
    ms = np.where(micros < 0, -(-micros // 1000), micros // 1000)
    ms = np.where(sane, ms, NO_TIME)
    if clock.is_utc or match["utc"] or match["sign"]:
        return ms
    return clock.instants(ms) if match["hour"] else days_placed(clock, ms)


def _micros(part: dict[str, Integers], match: re.Match[bytes]) -> Integers:
    length = len(match["fraction"] or b"")
    if not length:
        return np.zeros_like(part["year"])
    return np.asarray(part["fraction"] * 10 ** max(0, 6 - length) // 10 ** max(0, length - 6))


def _offset(part: dict[str, Integers], match: re.Match[bytes]) -> Integers:
    """Returns the seconds by which the clock is ahead of UTC."""
    none = np.zeros_like(part["year"])
    seconds = (part.get("zone_hour", none) * 60 + part.get("zone_minute", none)) * 60
    return -seconds if match["sign"] == b"-" else seconds


def number(texts: Texts, start: int, end: int) -> Integers:
    """Returns the number that the digits in these columns are, of each text."""
    found = np.zeros(len(texts), dtype=np.int64)
    for column in range(start, end):
        found = found * 10 + (texts[:, column].astype(np.int64) - _ZERO)
    return found


def days_before(year: Integers, month: Integers) -> Integers:
    """Returns the days from 1970-01-01 to the first of the month."""
    months = (year - 1970) * 12 + month - 1
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def month_length(year: Integers, month: Integers) -> Integers:
    """Returns the number of days of the month."""
    return days_before(year, month + 1) - days_before(year, month)


def date_text(ms: int) -> str:
    """Returns the UTC date of an instant, as text that sorts among times; for years beyond 9999 what sorts
    behind all of them."""
    day = np.datetime64(0, "D") + np.timedelta64(ms // DAY_MS, "D")
    text = str(day)
    if text.startswith("-") or text < "0001":
        return "0001"
    return text if len(text) == len("0000-00-00") else LAST_TEXT


#: A text's date is that of its own clock: at most so far from the UTC date of its instant.
_TEXT_MARGIN_MS = 2 * DAY_MS
#: The first text in the order of texts and the first in the order of time may be so far apart: each is within
#: a day of its own clock's day, and these days are in order.
UNSORTED_MS = 3 * DAY_MS
_MINUTE_MS = 60_000
#: Characters of a text's date and T.
_DATE_T = len("0000-00-00T")


class IsoForm(TimeForm):
    """Times that are ISO 8601 text. A text that has an offset from UTC is found by its own clock's date: at
    most a day off where all are taken for plain ones, without an offset."""

    kinds: ClassVar[tuple[int, ...]] = (STRING,)
    has_texts: ClassVar[bool] = True

    def __init__(self, clock: Clock = UTC_CLOCK, *, is_plain: bool = False) -> None:
        """`clock`: the one that texts without an offset show."""
        self.is_plain = is_plain
        self._clock = clock
        self._kinds = OF_UTC if clock.is_utc else OF_ZONE

    def _read_other(self, group: Group, kind: int, elements: Sequence[Element]) -> NDArray[np.int64]:
        return read_iso(group, elements, self._clock)

    def _ms_of(self, value: object) -> int | None:
        return iso_ms(value, self._clock) if isinstance(value, str) else None

    def finer(self, value: object, ms: int) -> int:
        """Returns the nanoseconds of a text beyond its milliseconds."""
        if not isinstance(value, str):
            return 0
        digits = re.sub(r"^.*\.([0-9]*).*$", r"\1", value) if "." in value else ""
        return int(digits.ljust(9, "0")[:9]) % 1_000_000

    @property
    def unusable(self) -> str:
        """Returns the words with which a message rejects a text."""
        skipped = "" if self._clock.is_utc else f", that clocks of {self._clock.name} have shown"
        return f"no time: it is neither a date nor ISO 8601 text, of the years 1 to 9999{skipped}"

    @property
    def plain(self) -> TimeForm:
        """Returns the same form, with all texts taken for plain ones."""
        return IsoForm(self._clock, is_plain=True)

    rough = plain

    def ranges(
        self, field: str, first_ms: int, last_ms: int, *, is_end: bool = False, is_sound: bool = False
    ) -> list[Document]:
        """Returns queries for dates, and for texts."""
        dates = self.roughly(field, first_ms, last_ms)[0]
        found = [dates, self._without_offset(field, first_ms, last_ms, is_sound=is_sound)]
        if not self.is_plain:
            found.append(self._with_offset(field, first_ms, last_ms, is_sound=is_sound))
        return found

    def _other_bounds(self, first_ms: int, last_ms: int) -> list[Bounds]:
        margin = _TEXT_MARGIN_MS
        return [Bounds(date_text(first_ms - margin), "$lt", date_text(last_ms + margin))]

    @property
    def _usable(self) -> list[Bounds]:
        """Returns all texts from the year 1 on: `untimed` looks at each, but where all are taken for plain
        ones."""
        dates = self._bounds(FIRST_MS, LAST_MS)[0]
        return [Bounds("0001", "$lt", {"$literal": {}}), dates]

    def untimed(self, field: str) -> list[Document]:
        """Returns queries for all that is no date, and no ISO 8601 text."""
        found = super().untimed(field)
        if not self.is_plain:
            found += [{field: {"$type": "string", "$not": ISO}}, *self._outside_years(field)]
        return found

    def not_plain(self, field: str) -> Document:
        """Returns a query for texts that have an offset from UTC, or are no times."""
        return {field: {"$type": "string", "$not": self._kinds.plain}}

    def sorted_from(self, ms: int, direction: int, value: object) -> int:
        """Returns what no time is beyond, where this one is the first (or last) in the order of an index.
        Texts without an offset from UTC are in order but for those of one day."""
        if not isinstance(value, str):
            return ms
        if self._kinds.offset.search(value):
            return ms - direction * UNSORTED_MS
        day = int(self._clock.shown(np.array([ms]))[0]) // DAY_MS * DAY_MS
        if direction > 0:
            return placed(self._clock, day)
        return placed(self._clock, day + DAY_MS) - 1

    def placed(self, value: object) -> int | None:
        """Returns the time of a value; of a text that its clock skipped, that of the change."""
        found = self.milliseconds(value)
        if found is None and isinstance(value, str) and (shown := iso_ms(value)) is not None:
            return placed(self._clock, shown)
        return found

    def _without_offset(self, field: str, first_ms: int, last_ms: int, *, is_sound: bool) -> Document:
        """Returns a query for texts without an offset from UTC. They sort by their days as time does, so that
        the server looks into these only where a range cuts a day, or the text has to be sound."""
        first_ms, last_ms = all_shown(self._clock, first_ms, last_ms)
        first_ms, last_ms = max(first_ms, FIRST_MS), min(last_ms, LAST_MS)
        # Before 1970 digits beyond milliseconds are rounded up.
        begin, end = first_ms - (FIRST_MS < first_ms <= 0), last_ms + (last_ms >= 0)
        dates = {"$gte": date_text(begin), "$lt": date_text(last_ms + DAY_MS)}
        found: Document = {field: dates if self.is_plain else {**dates, "$not": self._kinds.offset}}
        if is_sound:  # the server takes much for a date that is none here
            found = {field: {**dates, "$regex": ISO if self.is_plain else self._kinds.plain}}
        is_whole = first_ms == begin and last_ms < end and begin % DAY_MS == end % DAY_MS == 0
        if is_whole and not is_sound:
            return found
        outside = [
            {field: {"$gte": _minute(begin)[:_DATE_T], "$lt": _minute(begin)}},
            {field: {"$gte": _minute(end + _MINUTE_MS), "$lt": date_text(end + DAY_MS)}},
        ]
        examined: Document = {"$and": [{"$nor": outside}, _exactly(field, first_ms, last_ms, is_sound)]}
        return {"$and": [found, examined if is_sound else any_of([*_inside(field, first_ms, end), examined])]}

    def _with_offset(self, field: str, first_ms: int, last_ms: int, *, is_sound: bool) -> Document:
        """Returns a query for texts with an offset from UTC: of those around, the server looks into each."""
        days = {"$gte": date_text(first_ms - DAY_MS), "$lt": date_text(last_ms + 2 * DAY_MS)}
        nearby = {field: {**days, "$regex": self._kinds.with_offset if is_sound else self._kinds.offset}}
        return {"$and": [nearby, _exactly(field, first_ms, last_ms, is_sound)]}

    def _outside_years(self, field: str) -> list[Document]:
        """Returns queries for texts that their offset from UTC puts before the year 1 or after 9999."""
        time, pattern = _converted(field), self._kinds.with_offset
        return [
            {field: {"$lt": "0001-01-02", "$regex": pattern}, "$expr": {"$lt": [time, as_date(FIRST_MS)]}},
            {field: {"$gte": "9999-12-31", "$regex": pattern}, "$expr": {"$gt": [time, as_date(LAST_MS)]}},
        ]


def _inside(field: str, first_ms: int, end_ms: int) -> list[Document]:
    """Queries for what lies between as it is sorted: whole days, and whole minutes behind a T."""
    begin = -(-first_ms // _MINUTE_MS) * _MINUTE_MS
    low = _minute(begin) if begin % DAY_MS else date_text(begin)
    return [
        {field: {"$gte": low, "$lt": date_text(end_ms)}},
        {field: {"$gte": max(low, _minute(end_ms)[:_DATE_T]), "$lt": _minute(end_ms)}},
    ]


def _minute(ms: int) -> str:
    """Returns how the texts of this minute begin, where a T stands between date and time."""
    hour, minute = divmod(ms % DAY_MS // _MINUTE_MS, 60)
    return f"{date_text(ms)}T{hour:02}:{minute:02}"


def _converted(field: str) -> Document:
    """Returns an expression for the time that the server reads in a text; null where it reads none."""
    return {"$convert": {"input": f"${field}", "to": "date", "onError": None, "onNull": None}}


def _exactly(field: str, first_ms: int, last_ms: int, is_sound: bool) -> Document:
    """Returns a query for texts of times from first to last: the server looks into each. It also finds those
    that can't be read: they break their model, and must be reported."""
    inside = [{"$gte": ["$$time", as_date(first_ms)]}, {"$lte": ["$$time", as_date(last_ms)]}]
    found = {"$and": inside} if is_sound else {"$or": [{"$eq": ["$$time", None]}, {"$and": inside}]}
    return {"$expr": {"$let": {"vars": {"time": _converted(field)}, "in": found}}}
