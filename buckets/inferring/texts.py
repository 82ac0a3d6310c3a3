"""Finds the formats of texts that are times, as strptime has them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from bucketwise.buckets.fields.times import as_ms

#: Share of a field's texts that have to be times.
_NEARLY_ALL = 0.9
_LONGEST = 40
_PIECES = re.compile(r"[0-9]+|[^\W\d_]+|[^0-9A-Za-z]+")
#: A text that ends with an offset from UTC, or with UTC itself.
_WITH_ZONE = re.compile(r"[0-9](?:\.[0-9]+)? ?(?:Z|[+-][0-9]{2}:?[0-9]{2}|[+-][0-9]{2})$")
_TIME_OF_DAY = re.compile(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?( ?[AaPp][Mm])?")
_TIME_OF_DAY_BEFORE = re.compile(f"{_TIME_OF_DAY.pattern}(?=[^0-9:.])")
_WEEK = re.compile("[0-9]{4}(-?)W[0-9]{2}\\1[1-7](?![0-9])")
_BARE_TIME = re.compile(r"([01][0-9]|2[0-3])[0-5][0-9]([0-5][0-9])?")
#: Times since 1970 as text: how many digits they have, and their unit.
_EPOCHS = {10: "s", 13: "ms", 16: "us", 19: "ns"}
#: The years that a time may be of.
_YEARS = range(1980, 2101)


class TextForm(NamedTuple):
    """How texts tell a time: the format, and the unit of numbers that are written as text."""

    format: str
    unit: str | None = None

    def ms(self, text: str) -> int | None:
        """Returns the time of a text in milliseconds, by a clock of UTC where it names no zone; None for what
        is no time."""
        if self.format == "%s":
            if not (text.isascii() and text.isdigit()):
                return None
            per = {"ms": 1, "us": 1_000, "ns": 1_000_000}.get(self.unit or "s", 0)
            return int(text) // per if per else int(text) * 1000
        try:
            found = datetime.strptime(text, self.format)  # noqa: DTZ007 - it may tell no zone
        except (ValueError, re.error):  # an error of its pattern: one part comes twice
            return None
        return as_ms(found if found.tzinfo else found.replace(tzinfo=UTC)) if found.year in _YEARS else None


def is_local(text: str) -> bool:
    """Returns whether a text is what a clock showed: it has neither an offset from UTC nor Z."""
    return not _WITH_ZONE.search(text) or ":" not in text


def is_time_of_day(texts: Sequence[str]) -> bool:
    """Returns whether each of these texts is what a clock shows, without a day."""
    return bool(texts) and all(map(_TIME_OF_DAY.fullmatch, texts))


def is_bare_time_of_day(texts: Sequence[str]) -> bool:
    """Returns whether each of these texts is a time of day in digits alone: 0730, or 073000."""
    return bool(texts) and all(map(_BARE_TIME.fullmatch, texts))


def forms_of(texts: Sequence[str]) -> list[TextForm]:
    """Returns the formats that nearly all of the texts have, the likeliest first: two where days and months
    can't be told apart."""
    if not texts or len(texts[0]) > _LONGEST:
        return []
    found = []
    for form in dict.fromkeys(_possible(texts[0])):
        fitting = sum(form.ms(it) is not None for it in texts)
        if fitting >= _NEARLY_ALL * len(texts):
            found.append((fitting, form))
    most = max((it for it, _ in found), default=0)
    return [form for fitting, form in found if fitting == most]


def time_of_day_format(text: str) -> str:
    """Returns the format of what a clock shows."""
    return _format(_PIECES.findall(text), "HMSf")


def _possible(text: str) -> Iterator[TextForm]:
    """Yields the formats that a text may have."""
    if text.isascii() and text.isdigit() and len(text) in _EPOCHS:
        unit = _EPOCHS[len(text)]
        yield TextForm("%s", None if unit == "s" else unit)
    if clock := _TIME_OF_DAY_BEFORE.match(text):  # the day follows
        before, day = time_of_day_format(clock[0]), _PIECES.findall(text[clock.end() :])
        yield from (TextForm(before + _format(day, order)) for order in _orders(day))
        return
    if week := _WEEK.match(text):
        yield TextForm(f"%G{week[1]}W%V{week[1]}%u{_format(_PIECES.findall(text[week.end() :]), 'HMSf')}")
    pieces = _PIECES.findall(text)
    for order in _orders(pieces):
        yield TextForm(_format(pieces, f"{order}HMSf"))
    for letters in _COMPACT.get(len(pieces[0]), ()) if pieces and pieces[0].isdigit() else ():
        yield TextForm(letters + _format(pieces[1:], "HMSf"))


#: Runs of digits that are a date, or a date and a time of day, by their length.
_COMPACT = {
    6: ("%y%m%d",),
    8: ("%Y%m%d",),
    10: ("%y%m%d%H%M", "%Y%m%d%H"),
    12: ("%Y%m%d%H%M", "%y%m%d%H%M%S"),
    14: ("%Y%m%d%H%M%S",),
}


def _orders(pieces: list[str]) -> Iterator[str]:
    """Yields the orders in which year, month and day may stand, by their directives."""
    numbers = [it for it in pieces if it.isdigit()]
    months = [it for it in pieces if it.isalpha() and _is_month(it)]
    if months:
        letter = "b" if len(months[0]) == 3 else "B"
        before = pieces[: pieces.index(months[0])]
        if any(len(it) == 4 for it in before if it.isdigit()):
            yield f"Y{letter}d"
        elif any(it.isdigit() for it in before):
            yield from (f"d{letter}Y", f"d{letter}y")
        else:
            yield from (f"{letter}dY", f"{letter}dHMSY", f"{letter}dy")
    elif list(map(len, numbers[:2])) == [4, 3]:
        yield "Yj"
    elif len(numbers) >= 3 and len(numbers[0]) == 4:
        yield "Ymd"
    elif len(numbers) >= 3:
        year = "Y" if len(numbers[2]) == 4 else "y"
        separator = pieces[pieces.index(numbers[0]) + 1]
        yield from (f"dm{year}", f"md{year}") if separator != "." else (f"dm{year}",)
    elif sorted(map(len, numbers)) == [2, 4] and len(pieces) == 3:
        yield "Ym" if len(numbers[0]) == 4 else "mY"


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def _is_month(text: str) -> bool:
    return text[:3].lower() in _MONTHS


def _format(pieces: list[str], parts: str) -> str:
    """Returns the format of a text whose pieces are these parts of a time, by their directives."""
    left = list(parts)
    is_twelve = any(it.lower() in ("am", "pm") for it in pieces)
    found = []
    for place, piece in enumerate(pieces):
        if piece.isdigit() and len(piece) in (4, 6) and left[:1] == ["H"]:
            found.append("%H%M%S"[: len(piece)])
            left = left[len(piece) // 2 :]
        elif piece.isdigit():
            is_offset = place and pieces[place - 1].strip() in ("+", "-") and left and left[0] in "MSf"
            if is_offset or not left:
                return _with_offset(found)
            found.append(f"%{left.pop(0)}".replace("%H", "%I" if is_twelve else "%H"))
        elif piece.isalpha() and left and left[0] in "bB" and _is_month(piece):
            found.append(f"%{left.pop(0)}")
        elif piece.lower() in ("am", "pm"):
            found.append("%p")
        elif piece.isalpha() and len(piece) > 2 and place == 0:
            found.append("%a" if len(piece) == 3 else "%A")
        elif piece == "Z" and place == len(pieces) - 1:
            found.append("%z")
        else:
            found.append(piece.replace("%", "%%"))
    return "".join(found)


def _with_offset(found: list[str]) -> str:
    """Returns the format of a text that ends with its offset from UTC: its sign was taken for a separator."""
    sign = found.pop()
    return "".join([*found, sign[:-1], "%z"])
