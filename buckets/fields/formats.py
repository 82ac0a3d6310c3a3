"""Times written as text of a strptime format: `%d.%m.%Y %H:%M`.

Texts are read as Python's `datetime.strptime` reads them: digits may be unpadded where something stands
between them, names are English, in upper or lower case. Where numbers stand next to each other, each has all
its digits. Fractions of a second may have up to nine digits, which are cut off behind milliseconds.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from bucketwise.buckets.fields.clocks import Clock, days_placed
from bucketwise.buckets.fields.distinct import distinct_rows
from bucketwise.buckets.fields.isoforms import Integers, Texts, days_before, month_length, number
from bucketwise.buckets.fields.times import DAY_MS, LAST_TEXT, NO_TIME, PER_SECOND, Unit
from bucketwise.config.times import tokens_of

MONTHS = tuple(it.lower() for it in calendar.month_name[1:])
_DAYS = tuple(it.lower() for it in calendar.day_name)
Document = dict[str, Any]
_SPACE = r"[ \t\n\r\f\v]+"


class Directive(NamedTuple):
    """A directive of a format, which stands for a part of a time."""

    part: str  # the name of the number or text; "" where it tells nothing
    wide: str  # a pattern for all its digits, or its text
    narrow: str = ""  # one for fewer digits; "" where there are never fewer
    low: int = 0
    high: int = 0

    @property
    def is_number(self) -> bool:
        """Returns whether it is written in digits alone."""
        return self.high > 0


def _names(names: tuple[str, ...]) -> str:
    return "|".join(sorted(names, key=len, reverse=True))


DIRECTIVES = {
    "Y": Directive("year", "(?!0000)[0-9]{4}", low=1, high=9999),
    "y": Directive("short_year", "[0-9]{2}", low=0, high=99),
    "m": Directive("month", "1[0-2]|0[1-9]", "1[0-2]|0?[1-9]", 1, 12),
    "d": Directive("day", "3[01]|[12][0-9]|[0 ][1-9]", "3[01]|[12][0-9]|[0 ]?[1-9]", 1, 31),
    "H": Directive("hour", "2[0-3]|[01][0-9]", "2[0-3]|[01]?[0-9]", 0, 23),
    "I": Directive("half_hour", "1[0-2]|0[1-9]", "1[0-2]|0?[1-9]", 1, 12),
    "M": Directive("minute", "[0-5][0-9]", "[0-5]?[0-9]", 0, 59),
    "S": Directive("second", "[0-5][0-9]", "[0-5]?[0-9]", 0, 59),
    "j": Directive(
        "day_of_year",
        "36[0-6]|3[0-5][0-9]|[12][0-9]{2}|0[1-9][0-9]|00[1-9]",
        "36[0-6]|3[0-5][0-9]|[12][0-9]{2}|0?[1-9][0-9]|0{0,2}[1-9]",
        1,
        366,
    ),
    "G": Directive("iso_year", "(?!0000)[0-9]{4}", low=1, high=9999),
    "V": Directive("week", "5[0-3]|[1-4][0-9]|0[1-9]", "5[0-3]|[1-4][0-9]|0?[1-9]", 1, 53),
    "u": Directive("weekday", "[1-7]", low=1, high=7),
    "f": Directive("fraction", "[0-9]{1,9}", high=999_999_999),
    "s": Directive("epoch", "-?[0-9]{1,18}"),
    "b": Directive("short_name", _names(tuple(it[:3] for it in MONTHS))),
    "B": Directive("name", _names(MONTHS)),
    "p": Directive("half", "am|pm"),
    "a": Directive("", _names(tuple(it[:3] for it in _DAYS))),
    "A": Directive("", _names(_DAYS)),
    "z": Directive("offset", ""),
    "Z": Directive("", "utc|gmt"),
}
#: The parts of `%z`.
_OFFSET = {
    "sign": "[+-]",
    "zone_hour": "[01][0-9]|2[0-3]",
    "zone_minute": "[0-5][0-9]",
    "zone_second": "[0-5][0-9]",
}
#: From year to fraction: texts of these in their order, each with all its digits, sort as time does.
_IN_ORDER = ("Y", "m", "d", "H", "M", "S", "f")
_UNIT_MS = {"Y": 0, "m": 0, "d": DAY_MS, "H": 3_600_000, "M": 60_000, "S": 1000, "f": 1}


class TimeFormat:
    """A strptime format, as a pattern for MongoDB and for Python, and as what reads many texts at once."""

    def __init__(self, text: str, unit: Unit = "s") -> None:
        """`unit`: of `%s`."""
        self.text = text
        self.unit: Unit = unit
        self._tokens = tokens_of(text)
        self.letters = [it.directive for it in self._tokens if it.directive]
        #: The names of the pattern's groups, in their order.
        self.groups = [it for letter in self.letters for it in _groups_of(letter)]
        self.pattern = re.compile(f"^{''.join(self._patterns(is_form=False))}$(?!\n)", re.IGNORECASE)
        self._form = re.compile("".join(self._patterns(is_form=True)).encode(), re.IGNORECASE)

    @property
    def is_absolute(self) -> bool:
        """Returns whether texts tell instants by themselves, whatever the clock."""
        return bool({"z", "Z", "s"}.intersection(self.letters))

    @property
    def has_hours(self) -> bool:
        """Returns whether texts tell more than a day. A day begins where its clock skips midnight as well."""
        return not {"H", "I"}.isdisjoint(self.letters)

    @property
    def is_sorted(self) -> bool:
        """Returns whether texts with all their digits sort as time does."""
        return (
            self.letters == list(_IN_ORDER[: len(self.letters)])
            and bool(self.letters)
            and not ("f" in self.letters and self._tokens[-1].directive != "f")
        )

    def sorts_under(self, collation: Mapping[str, Any]) -> bool:
        """Returns whether texts that sort as time does do so under a collation. They differ in digits alone,
        whose order is that of all collations; and so is the order of numbers that have as many digits."""
        return not (collation.get("numericOrdering") and "f" in self.letters)

    @property
    def is_of_digits(self) -> bool:
        """Returns whether texts are of digits alone, and sort, so that whole numbers may stand for them."""
        is_bare = all(it.directive for it in self._tokens)
        return self.is_sorted and is_bare and "f" not in self.letters

    def numbers(self, low: str, high: str) -> dict[str, int]:
        """Returns what meets the whole numbers from one text of digits to before another, as a query has it.
        `low`: "" where there is no first. `high`: no digits where there is no last."""
        least, end = (10 ** (len(self.rendered(0)) - 1 + it) for it in (0, 1))
        first = int(low or 0) if low.isdigit() or not low else end
        return {"$gte": max(first, least), "$lt": int(high) if high.isdigit() else end}

    @property
    def step_ms(self) -> int:
        """Returns the milliseconds from one text that sorts, and tells a day, to the next."""
        return _UNIT_MS[self.letters[-1]]

    @property
    def sorting(self) -> re.Pattern[str]:
        """Returns the pattern of texts that have all their digits."""
        pieces = [
            f"({DIRECTIVES[it.directive].wide.replace('[0 ]', '0')})" if it.directive else re.escape(it.text)
            for it in self._tokens
        ]
        return re.compile(f"^{''.join(pieces)}$(?!\n)")

    def rendered(self, ms: int) -> str:
        """Returns the first text, in their order, of a time that is not before these milliseconds; for years
        beyond 9999 what sorts behind all of them."""
        step = _UNIT_MS[self.letters[-1]]
        day = np.datetime64(-(-ms // DAY_MS), "D") if step == 0 else None
        if step == 0 and day is not None:
            unit = "Y" if self.letters[-1] == "Y" else "M"
            floor = day.astype(f"datetime64[{unit}]")
            at = floor if floor == day else floor + 1
        else:
            at = np.datetime64(-(-ms // step) * step, "ms")
        iso = str(at.astype("datetime64[ms]"))
        if iso.startswith("-") or iso < "0001":
            iso = "0001-01-01T00:00:00.000"
        if iso[4] != "-":
            return LAST_TEXT
        parts = dict(zip(_IN_ORDER, re.split("[-T:.]", iso), strict=True))
        parts["f"] = parts["f"].rstrip("0") or "0"
        return "".join(parts.get(it.directive, it.text) for it in self._tokens)

    def parse(self, texts: Texts, clock: Clock) -> Integers:
        """Returns m times in milliseconds since 1970; NO_TIME for what is no time. `texts`: with zeros behind
        shorter ones. `clock`: the one that texts without an offset show."""
        digits = (texts >= ord("0")) & (texts <= ord("9"))
        forms, which = distinct_rows(np.where(digits, np.uint8(ord("0")), texts))
        found = np.full(len(texts), NO_TIME)
        for at, form in enumerate(forms):
            match = self._form.fullmatch(form.rstrip(b"\0"))
            if match is not None:
                rows = np.flatnonzero(which == at)
                found[rows] = self._of_form(texts[rows], match)
        if self.is_absolute:
            return found
        return clock.instants(found) if self.has_hours else days_placed(clock, found)

    def fraction(self, text: str) -> str:
        """Returns the digits of a second's fraction in a text; none where there are none."""
        match = self.pattern.search(text) if "f" in self.letters else None
        return match["fraction"] if match else ""

    def _of_form(self, texts: Texts, match: re.Match[bytes]) -> Integers:
        """Texts that differ in their digits alone."""
        part = {}
        for letter in self.letters:
            for name in _groups_of(letter):
                if match[name] is not None and (DIRECTIVES[letter].is_number or name.startswith("zone_")):
                    part[name] = number(texts, *_digits_of(match, name))
        if "s" in self.letters:
            return self._epoch(texts, match)
        return _milliseconds(part, match, len(texts))

    def _epoch(self, texts: Texts, match: re.Match[bytes]) -> Integers:
        is_negative = match["epoch"].startswith(b"-")
        start, end = match.span("epoch")
        count = number(texts, start + is_negative, end)
        return epoch_ms(-count if is_negative else count, self.unit)

    def _patterns(self, *, is_form: bool) -> Iterator[str]:
        """Yields the patterns of all pieces. `is_form`: of forms of texts, in which every digit is 0."""
        numbers = [it.directive != "" and DIRECTIVES[it.directive].is_number for it in self._tokens]
        beside = {i for i, both in enumerate(pairwise(numbers)) if all(both)}
        for i, token in enumerate(self._tokens):
            if not token.directive:
                yield _SPACE.join(map(re.escape, re.split(_SPACE, token.text)))
                continue
            directive = DIRECTIVES[token.directive]
            wide = directive.wide if i in beside or i - 1 in beside else directive.narrow or directive.wide
            if token.directive == "z":
                yield _offset_pattern(is_form=is_form)
            elif not directive.part:
                yield f"(?:{directive.wide})"
            else:
                yield f"(?P<{directive.part}>{_form_of(wide, token.directive) if is_form else wide})"


def _form_of(pattern: str, letter: str) -> str:
    """Returns the pattern of a directive's forms: as many zeros as it may have digits."""
    directive = DIRECTIVES[letter]
    if letter == "s":
        return "-?0{1,18}"
    if letter == "f":
        return "0{1,9}"
    if not directive.is_number:
        return pattern
    width = len(str(directive.high))
    if pattern == directive.wide:
        return "00| 0" if letter == "d" else f"0{{{width}}}"
    return "00?| 0" if letter == "d" else f"0{{1,{width}}}"


def _offset_pattern(*, is_form: bool) -> str:
    parts = {name: ("00" if is_form and name != "sign" else it) for name, it in _OFFSET.items()}
    sign, hour, minute, second = (f"(?P<{name}>{it})" for name, it in parts.items())
    return f"(?:{sign}{hour}:?{minute}(?::?{second})?|(?-i:Z))"


def _groups_of(letter: str) -> tuple[str, ...]:
    if letter == "z":
        return tuple(_OFFSET)
    return (DIRECTIVES[letter].part,) if DIRECTIVES[letter].part else ()


def _digits_of(match: re.Match[bytes], name: str) -> tuple[int, int]:
    start, end = match.span(name)
    return (start + 1 if match[name].startswith(b" ") else start), end


def epoch_ms(count: Integers, unit: Unit) -> Integers:
    """Returns milliseconds since 1970, cut off towards it; NO_TIME for what is far outside the years that
    have names."""
    per = PER_SECOND[unit]
    if per == 1:
        far = np.abs(count) > 10**12
        return np.where(far, NO_TIME, np.where(far, 0, count) * 1000)
    per //= 1000
    return np.asarray(np.sign(count) * (np.abs(count) // per), dtype=np.int64)


def _milliseconds(part: dict[str, Integers], match: re.Match[bytes], size: int) -> Integers:
    none, sane = np.zeros(size, dtype=np.int64), np.ones(size, dtype=np.bool_)
    for directive in DIRECTIVES.values():
        if directive.part in part:
            sane &= (part[directive.part] >= directive.low) & (part[directive.part] <= directive.high)
    for name, high in (("zone_hour", 23), ("zone_minute", 59), ("zone_second", 59)):
        sane &= part.get(name, none) <= high
    year = part.get("year", none)
    if "short_year" in part:
        year = part["short_year"] + np.where(part["short_year"] < 69, 2000, 1900)
    named = match.groupdict()
    month = np.clip(part.get("month", none + _month_of(named)), 1, 12)
    day = part.get("day", none + 1)
    sane &= day <= month_length(year, month)
    days = days_before(year, month) + day - 1
    if "day_of_year" in part:
        days = days_before(year, none + 1) + part["day_of_year"] - 1
        sane &= days < days_before(year + 1, none + 1)
    if "week" in part:
        days = _first_monday(part["iso_year"]) + 7 * part["week"] + part["weekday"] - 8
        sane &= days < _first_monday(part["iso_year"] + 1)
    hour = part.get("hour", none)
    if "half_hour" in part:
        hour = part["half_hour"] % 12 + (12 if named["half"].lower() == b"pm" else 0)
    seconds = ((days * 24 + hour) * 60 + part.get("minute", none)) * 60 + part.get("second", none)
    offset = (part.get("zone_hour", none) * 60 + part.get("zone_minute", none)) * 60 + part.get(
        "zone_second", none
    )
    seconds = seconds + (offset if named.get("sign") == b"-" else -offset)
    ms = seconds * 1000 + _thousandths(part.get("fraction", none), len(named.get("fraction") or b""))
    return np.where(sane, ms, NO_TIME)


def _first_monday(year: Integers) -> Integers:
    """Returns the days from 1970 to the Monday of a year's first week, which has the fourth of January."""
    fourth = days_before(year, np.ones_like(year)) + 3
    return np.asarray(fourth - (fourth + 3) % 7)


def _month_of(named: dict[str, bytes]) -> int:
    text = (named.get("short_name") or named.get("name") or b"jan").decode().lower()
    return 1 + next(i for i, month in enumerate(MONTHS) if month.startswith(text[:3]))


def _thousandths(fraction: Integers, length: int) -> Integers:
    return np.asarray(fraction * 10 ** max(0, 3 - length) // 10 ** max(0, length - 3))


@lru_cache(64)
def format_of(text: str, unit: Unit = "s") -> TimeFormat:
    """Returns a strptime format."""
    return TimeFormat(text, unit)


def time_expression(format: TimeFormat, text: Document) -> Document:
    """Returns an expression for the time in a text, as if its clock were one of UTC; null for what is no text
    of the format."""
    pattern = format.pattern.pattern.replace("(?P<", "(?<")
    match = {"$regexFind": {"input": text, "regex": pattern, "options": "i"}}
    read = _epoch(format) if "s" in format.letters else _date(format)
    held: Document = {"$let": {"vars": {"part": "$$match.captures"}, "in": read}}
    return {
        "$let": {
            "vars": {"match": match},
            "in": {"$cond": [{"$eq": [{"$ifNull": ["$$match", None]}, None]}, None, held]},
        }
    }


def _epoch(format: TimeFormat) -> Document:
    number: Document = {"$toLong": {"$arrayElemAt": ["$$part", 0]}}
    per = PER_SECOND[format.unit]
    ms: Document = {"$multiply": [number, 1000]}
    if per > 1:
        per //= 1000
        ms = {"$divide": [{"$subtract": [number, {"$mod": [number, per]}]}, per]}
    return {"$convert": {"input": {"$toLong": {"$round": ms}}, "to": "date", "onError": None}}


#: The parts of a day that its week tells, as MongoDB names them.
_OF_WEEKS = {"isoWeekYear": "iso_year", "isoWeek": "week", "isoDayOfWeek": "weekday"}


def _date(format: TimeFormat) -> Document:
    """Returns an expression for the date of the parts of a text; null where there is no such day."""
    at = {name: {"$arrayElemAt": ["$$part", i]} for i, name in enumerate(format.groups)}
    number: dict[str, Any] = {name: {"$toInt": {"$trim": {"input": it}}} for name, it in at.items()}
    parts: Document = {"year": number.get("year")}
    if "short_year" in at:
        century = {"$cond": [{"$lt": [number["short_year"], 69]}, 2000, 1900]}
        parts["year"] = {"$add": [number["short_year"], century]}
    parts |= {name: number[name] for name in ("month", "day", "hour", "minute", "second") if name in at}
    for name in {"short_name", "name"} & at.keys():
        starts = {"$substrCP": [{"$toLower": at[name]}, 0, 3]}
        parts["month"] = {"$add": [1, {"$indexOfArray": [[it[:3] for it in MONTHS], starts]}]}
    if "half_hour" in at:
        afternoon = {"$cond": [{"$eq": [{"$toLower": at["half"]}, "pm"]}, 12, 0]}
        parts["hour"] = {"$add": [{"$mod": [number["half_hour"], 12]}, afternoon]}
    if "day_of_year" in at:
        parts |= {"month": 1, "day": number["day_of_year"]}
    if "fraction" in at:
        digits = {"$substrCP": [{"$concat": [at["fraction"], "00"]}, 0, 3]}
        parts["millisecond"] = {"$toInt": digits}
    same = {"$eq": [{"$year": "$$date"}, parts["year"]]}
    if "day" in at:
        same = {"$eq": [{"$dayOfMonth": "$$date"}, number["day"]]}
    if "week" in at:
        parts |= {name: number[part] for name, part in _OF_WEEKS.items()}
        parts.pop("year")
        same = {"$eq": [{"$isoWeekYear": "$$date"}, number["iso_year"]]}
    time = {"$subtract": ["$$date", _offset(at)]} if "sign" in at else "$$date"
    return {
        "$let": {"vars": {"date": {"$dateFromParts": parts}}, "in": {"$cond": [same, time, None]}},
    }


def _offset(at: dict[str, Document]) -> Document:
    """Returns an expression for the milliseconds by which a text's clock is ahead of UTC."""
    hour, minute, second = (
        {"$toInt": {"$ifNull": [at[it], "0"]}} for it in ("zone_hour", "zone_minute", "zone_second")
    )
    minutes = {"$add": [{"$multiply": [hour, 60]}, minute]}
    seconds = {"$add": [{"$multiply": [minutes, 60]}, second]}
    return {"$multiply": [seconds, {"$cond": [{"$eq": [at["sign"], "-"]}, -1000, 1000]}]}
