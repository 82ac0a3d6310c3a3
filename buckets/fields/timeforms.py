"""The forms that times have in documents, for decoding and for queries.

A time is a date. Besides dates, a field may hold numbers that count a unit since 1970, or ISO 8601 text. The
type says which of these a document holds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from typing import Any, get_args

import numpy as np
from bson.decimal128 import Decimal128
from numpy.typing import NDArray

from bucketwise.buckets.bson.types import DATE, DOUBLE, INT32, INT64, STRING
from bucketwise.buckets.fields.isotimes import ISO, OFFSET, PLAIN, WITH_OFFSET, date_text, iso_ms, read_iso
from bucketwise.buckets.fields.times import (
    DAY_MS,
    FIRST_MS,
    LAST_MS,
    NO_TIME,
    PER_SECOND,
    Unit,
    as_date,
    as_ms,
    as_number,
    from_numbers,
)
from bucketwise.buckets.layouts.layout import Cell, Element, Group, by_type
from bucketwise.config.policies import TimeUnit

Document = dict[str, Any]
_DTYPES = {DATE: "<i8", DOUBLE: "<f8", INT32: "<i4", INT64: "<i8"}
_UNIT_NOTES: dict[Unit | None, str] = {
    "s": " (numbers are seconds since 1970, not milliseconds)",
    "ms": " (numbers are milliseconds since 1970)",
    "us": " (numbers are microseconds since 1970)",
    "ns": " (numbers are nanoseconds since 1970)",
}
_NUMBERS = (DOUBLE, INT32, INT64)
#: A text's date is that of its own clock: at most so far from the UTC date of its instant.
_TEXT_MARGIN_MS = 2 * DAY_MS
#: The first text in the order of texts and the first in the order of time may be so far apart: each is within
#: a day of its own clock's day, and these days are in order.
UNSORTED_MS = 3 * DAY_MS
_MINUTE_MS = 60_000
#: Characters of a text's date and T, and a text that sorts behind all that may follow.
_DATE_T, _LAST_TEXT = len("0000-00-00T"), "["


@dataclass(frozen=True)
class TimeForm:
    """The form of a time that is no date: a number of this unit, or text. `is_plain`: texts are queried as if
    none had an offset from UTC. A text that has one is found by its own clock's date: at most a day off."""

    unit: Unit | None = None
    is_text: bool = False
    is_plain: bool = False

    @property
    def plain(self) -> TimeForm:
        """Returns the same form, with all texts treated as plain."""
        return replace(self, is_plain=self.is_text)

    @property
    def types(self) -> tuple[int, ...]:
        """Returns the BSON types that a time may have."""
        return (DATE, *(_NUMBERS if self.unit else ()), *((STRING,) if self.is_text else ()))

    @property
    def is_date(self) -> bool:
        """Returns whether a time is always a date."""
        return self == DATES

    def read(self, group: Group, cells: Sequence[Cell]) -> NDArray[np.int64]:
        """Returns times as n × k milliseconds. A time outside the years 1 to 9999, or NaN, or none at all, is
        NO_TIME."""
        if alike := group.of_one_type(cells):
            times = self._milliseconds(group, *alike)
        else:
            times = np.full((len(group.matrix), len(cells)), NO_TIME)
            for kind, at, elements in by_type(cells):
                group.put(times, at, self._milliseconds(group, kind, elements), elements)
        if times.size and (times.min() < FIRST_MS or times.max() > LAST_MS):
            times[(times < FIRST_MS) | (times > LAST_MS)] = NO_TIME
        return times

    def _milliseconds(self, group: Group, kind: int, elements: Sequence[Element]) -> NDArray[np.int64]:
        if kind == STRING:
            return read_iso(group, elements)
        raw = group.read(elements, _DTYPES[kind])
        return np.asarray(raw, dtype=np.int64) if kind == DATE else from_numbers(raw, self.unit or "s")

    def milliseconds(self, value: object) -> int | None:
        """Returns the milliseconds of a value as pymongo gives it; None where it is no time."""
        if isinstance(value, datetime):
            return as_ms(value)
        if isinstance(value, str) and self.is_text:
            return iso_ms(value)
        if self.unit is None or isinstance(value, bool) or not isinstance(value, int | float | Decimal128):
            return None
        number = float(str(value)) if isinstance(value, Decimal128) else value
        found = int(from_numbers(np.array([number]), self.unit)[0])
        return None if found == NO_TIME else found

    def finer(self, value: object, ms: int) -> int:
        """Returns by how many nanoseconds a value, as pymongo gives it, is apart from these milliseconds; of
        doubles whole microseconds, since they hold no more."""
        if isinstance(value, str):
            digits = re.sub(r"^.*\.([0-9]*).*$", r"\1", value) if "." in value else ""
            return int(digits.ljust(9, "0")[:9]) % 1_000_000
        if not isinstance(value, int | float) or self.unit is None:
            return 0
        exact = (Fraction(value) / PER_SECOND[self.unit] - Fraction(ms, 1000)) * 10**9
        return round(exact / 1000) * 1000 if isinstance(value, float) else int(exact)

    @property
    def unusable(self) -> str:
        """Returns the words with which a message rejects a value that is not a time of this form."""
        if self.is_text:
            return "no time: it is neither a date nor ISO 8601 text, of the years 1 to 9999"
        return "no time: it is outside the years 1 to 9999" + _UNIT_NOTES.get(self.unit, "")

    def is_whole_second(self, kind: int) -> bool:
        """Returns whether a value of this BSON type stands for its whole second."""
        return self.unit == "s" and kind in (INT32, INT64)

    def ranges(
        self, field: str, first_ms: int, last_ms: int, *, is_end: bool = False, is_sound: bool = False
    ) -> list[Document]:
        """Returns queries for a time in this field from first to last, one for each type. An array, which
        breaks its model, may meet several; so may text that is no time, but where `is_sound`. `is_end`: a
        whole second counts to its end."""
        found = self.roughly(field, first_ms, last_ms)
        if self.unit == "s" and is_end:
            found[1][field]["$gte"] = min(as_number(first_ms, "s"), first_ms // 1000)
        if self.is_text:
            span = field, first_ms, last_ms
            found[-1:] = [_without_offset(*span, is_sound=is_sound, is_plain=self.is_plain)]
            if not self.is_plain:
                found.append(_with_offset(*span, is_sound=is_sound))
        return found

    def roughly(self, field: str, first_ms: int, last_ms: int) -> list[Document]:
        """Returns queries for a time from first to last, one for each type; texts of nearby days meet them
        too."""
        bounds = self._bounds(first_ms, last_ms)
        return [{field: {"$gte": low, behind: high}} for low, behind, high in bounds]

    def is_roughly(self, value: str, first_ms: int, last_ms: int) -> Document:
        """Returns `is_within` as an expression."""
        bounds = self._bounds(first_ms, last_ms)
        return {"$or": [{"$and": [{"$gte": [value, it]}, {end: [value, high]}]} for it, end, high in bounds]}

    def _bounds(self, first_ms: int, last_ms: int) -> list[tuple[Any, str, Any]]:
        """Returns for each type the first value, and the last, or the one behind it."""
        found: list[tuple[Any, str, Any]] = [(as_date(first_ms), "$lte", as_date(last_ms))]
        if self.unit:
            found.append((as_number(first_ms, self.unit), "$lt", as_number(last_ms + 1, self.unit)))
        if self.is_text:
            margin = _TEXT_MARGIN_MS
            found.append((date_text(first_ms - margin), "$lt", date_text(last_ms + margin)))
        return found

    def untimed(self, field: str) -> list[Document]:
        """Returns queries for all that sorts before, between and after usable times. Unlike a query's, the
        comparisons of an expression go across types, and an index answers them: missing and null come before
        numbers, these before texts, these before arrays, these before dates. Of texts, each is looked at,
        but where all are taken for plain ones."""
        value = f"${field}"
        parts: list[Document] = [{"$lt": [value, as_date(FIRST_MS)]}, {"$gt": [value, as_date(LAST_MS)]}]
        if not self.is_date:
            low, high = self._edges
            between: Document = {"$and": [{"$gte": [value, high]}, parts[0]]}
            parts = [{"$lt": [value, low]}, between, parts[1]]
        found: list[Document] = [{"$expr": part} for part in parts]
        if self.is_text and not self.is_plain:
            found += [{field: {"$type": "string", "$not": ISO}}, *_outside_years(field)]
        return found

    def not_plain(self, field: str) -> Document:
        """Returns a query for texts that have an offset from UTC, or are no times."""
        return {field: {"$type": "string", "$not": PLAIN}}

    @property
    def _edges(self) -> tuple[Any, Any]:
        """Returns values that are no date and come before, or not before, all numbers or texts that are
        times."""
        if self.unit is None:
            return "0001", ":"
        return as_number(FIRST_MS, self.unit), as_number(LAST_MS + 1, self.unit)

    def sorted_from(self, ms: int, direction: int, value: object) -> int:
        """Returns what no time is beyond, where this one is the first (or last) in the order of an index.
        Texts without an offset from UTC are in order but for those of one day."""
        if not isinstance(value, str):
            return ms
        if OFFSET.search(value):
            return ms - direction * UNSORTED_MS
        day = ms // DAY_MS * DAY_MS
        return day if direction > 0 else day + DAY_MS - 1


def any_of(queries: list[Document]) -> Document:
    """Returns a query that is met where one of these is."""
    return queries[0] if len(queries) == 1 else {"$or": queries}


def _without_offset(
    field: str, first_ms: int, last_ms: int, *, is_sound: bool, is_plain: bool = False
) -> Document:
    """Returns a query for texts without an offset from UTC. They sort by their days as time does, so that the
    server looks into these only where a range cuts a day, or the text has to be sound."""
    first_ms, last_ms = max(first_ms, FIRST_MS), min(last_ms, LAST_MS)
    # Before 1970 digits beyond milliseconds are rounded up.
    begin, end = first_ms - (FIRST_MS < first_ms <= 0), last_ms + (last_ms >= 0)
    dates = {"$gte": date_text(begin), "$lt": date_text(last_ms + DAY_MS)}
    found: Document = {field: dates if is_plain else {**dates, "$not": OFFSET}}
    if is_sound:  # the server takes much for a date that is none here
        found = {field: {**dates, "$regex": ISO if is_plain else PLAIN}}
    is_whole = first_ms == begin and last_ms < end and begin % DAY_MS == end % DAY_MS == 0
    if is_whole and not is_sound:
        return found
    outside = [
        {field: {"$gte": _minute(begin)[:_DATE_T], "$lt": _minute(begin)}},
        {field: {"$gte": _minute(end) + _LAST_TEXT, "$lt": _minute(end)[:_DATE_T] + _LAST_TEXT}},
    ]
    examined: Document = {"$and": [{"$nor": outside}, _exactly(field, first_ms, last_ms, is_sound)]}
    return {"$and": [found, examined if is_sound else any_of([*_inside(field, first_ms, end), examined])]}


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


def _with_offset(field: str, first_ms: int, last_ms: int, *, is_sound: bool) -> Document:
    """Returns a query for texts with an offset from UTC: of those around, the server looks into each."""
    days = {"$gte": date_text(first_ms - DAY_MS), "$lt": date_text(last_ms + 2 * DAY_MS)}
    nearby = {field: {**days, "$regex": WITH_OFFSET if is_sound else OFFSET}}
    return {"$and": [nearby, _exactly(field, first_ms, last_ms, is_sound)]}


def _outside_years(field: str) -> list[Document]:
    """Returns queries for texts that their offset from UTC puts before the year 1 or after 9999."""
    time = _converted(field)
    return [
        {field: {"$lt": "0001-01-02", "$regex": WITH_OFFSET}, "$expr": {"$lt": [time, as_date(FIRST_MS)]}},
        {field: {"$gte": "9999-12-31", "$regex": WITH_OFFSET}, "$expr": {"$gt": [time, as_date(LAST_MS)]}},
    ]


def _converted(field: str) -> Document:
    """Returns an expression for the time that the server reads in a text; null where it reads none."""
    return {"$convert": {"input": f"${field}", "to": "date", "onError": None, "onNull": None}}


def _exactly(field: str, first_ms: int, last_ms: int, is_sound: bool) -> Document:
    """Returns a query for texts of times from first to last: the server looks into each. It also finds those
    that can't be read: they break their model, and must be reported."""
    inside = [{"$gte": ["$$time", as_date(first_ms)]}, {"$lte": ["$$time", as_date(last_ms)]}]
    found = {"$and": inside} if is_sound else {"$or": [{"$eq": ["$$time", None]}, {"$and": inside}]}
    return {"$expr": {"$let": {"vars": {"time": _converted(field)}, "in": found}}}


DATES = TimeForm()
_FORMS: dict[TimeUnit, TimeForm] = {"date": DATES, "iso": TimeForm(is_text=True)}
_FORMS |= {unit: TimeForm(unit) for unit in get_args(Unit)}


def form_of(unit: TimeUnit) -> TimeForm:
    """Returns the form of times of a unit. Dates are times in each of them."""
    return _FORMS[unit]
