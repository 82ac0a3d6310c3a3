"""Times written as ISO 8601 text: a date, or a date and a time of day with or without an offset from UTC.

This reads text as `$convert` of MongoDB 6.0 and later does, so that the server finds what is decoded. Text
without an offset is what a clock showed. Digits beyond milliseconds are cut off towards 1970, as the server
cuts them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.fields.clocks import Clock
from bucketwise.buckets.fields.distinct import distinct_rows
from bucketwise.buckets.fields.localbounds import UTC, days_placed
from bucketwise.buckets.fields.times import DAY_MS, NO_TIME
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


def iso_ms(text: str, clock: Clock = UTC) -> int | None:
    """Returns the milliseconds since 1970 of an ISO 8601 text; None if it is not a time."""
    raw = text.encode()
    if not 0 < len(raw) <= _LONGEST:
        return None
    ms = int(parse(np.frombuffer(raw, dtype=np.uint8)[None, :], clock)[0])
    return None if ms == NO_TIME else ms


def parse(texts: Texts, clock: Clock = UTC) -> Integers:
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
    return text if len(text) == len("0000-00-00") else ":"
