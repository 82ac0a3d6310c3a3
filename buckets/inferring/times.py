"""Finds the fields that hold times, and their form."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

from bson.datetime_ms import DatetimeMS
from bson.objectid import ObjectId
from bson.timestamp import Timestamp

from bucketwise.buckets.fields.isoforms import iso_ms
from bucketwise.buckets.fields.timeforms import second_of
from bucketwise.buckets.fields.times import DAY_MS, PER_SECOND, as_ms
from bucketwise.buckets.inferring.fields import (
    BOOKKEEPING,
    SERIES,
    TIME,
    as_float,
    hints,
    is_number,
    is_text,
    is_whole,
    non_null,
    words_of,
)
from bucketwise.buckets.inferring.texts import (
    TextForm,
    forms_of,
    is_bare_time_of_day,
    is_local,
    is_time_of_day,
    time_of_day_format,
)
from bucketwise.config.policies import TimeUnit

#: Directives of the parts of a time, their limits, and the names that fields have for them.
_PARTS = {
    "%Y": (1900, 2200, "y yr yy yyyy year jahr annee ano anno"),
    "%m": (1, 12, "m mo mon mm mth month monat mois mes mese"),
    "%d": (1, 31, "d dd dy dom day tag jour dia giorno dayofmonth"),
    "%H": (0, 23, "h hh hr hour std stunde heure hora ora hourofday"),
    "%M": (0, 59, "m mi mm mn min minute minutes minuto"),
    "%S": (0, 59, "s ss sec second seconds sek sekunde seconde secondo"),
}
#: The parts of a sample's time within its bucket, outer first, and the unit of each.
_WITHIN = {"h": "%H", "m": "%M", "s": "%S"}
_NO_LETTERS = re.compile("[^a-z]")


class ClockParts(NamedTuple):
    """Fields of the day, or of the month alone, and of the time of day, outer first; none where they are not
    told so."""

    day: tuple[str, ...] = ()
    clock: tuple[str, ...] = ()

    @property
    def clock_format(self) -> str:
        """Returns the format of the time of day, joined by spaces."""
        return " ".join(["%H", "%M", "%S"][: len(self.clock)])

    @property
    def format(self) -> str:
        """Returns the format of all parts, joined by spaces."""
        return " ".join([*["%Y", "%m", "%d"][: len(self.day)], *self.clock_format.split()])


def parts_in(fields: Mapping[str, Sequence[Any]]) -> ClockParts:
    """Returns the fields of these that are parts of a time, by their names and values."""
    found: dict[str, str] = {}
    for directive in _PARTS:
        for path, values in fields.items():
            if path not in found.values() and _is_part(path, non_null(values), directive):
                found[directive] = path
                break
    clock: list[str] = []
    for directive in ("%H", "%M", "%S"):
        if directive not in found:
            break
        clock.append(found[directive])
    day = tuple(found[it] for it in ("%Y", "%m", "%d") if it in found)
    is_month = not clock and list(found) == ["%Y", "%m"]
    return ClockParts(day if len(day) == 3 or is_month else (), tuple(clock))


def units_within(fields: Mapping[str, Sequence[Any]]) -> dict[str, str]:
    """Returns the fields of samples that tell hour, minute and second within a bucket, outer first, each with
    its unit; none if there are not several."""
    found: dict[str, str] = {}
    for unit, directive in _WITHIN.items():
        for path, values in fields.items():
            if path not in found and _is_part(path, non_null(values), directive):
                found[path] = unit
                break
    return found if len(found) > 1 else {}


def _is_part(path: str, values: Sequence[Any], directive: str) -> bool:
    """Returns whether a field is called like a part of a time, and holds nothing else."""
    low, high, names = _PARTS[directive]
    name = _NO_LETTERS.sub("", path.rpartition(".")[2].lower())
    if name not in names.split() or not values:
        return False
    numbers = [int(it) if is_text(it) and it.isascii() and it.isdigit() else it for it in values]
    return all(is_whole(it) and low <= it <= high for it in numbers)


#: Seconds since 1970 between which a number may be a time: the years 1980 to 2100.
_EARLIEST, _LATEST = 315_532_800, 4_102_444_800
#: Share of a field's values that have to be times.
_NEARLY_ALL = 0.9
_PER_SECOND: dict[TimeUnit, int] = dict(PER_SECOND.items())
#: So many `_id`s tell whether they were made one by one.
_LEAST_IDS = 3
#: Names of days, and of times of day, in some languages.
_DAYS = words_of("datum fecha jour giorno data dia tag dt yyyymmdd ymd")
_CLOCKS = words_of("time tm clock hhmm hhmmss uhrzeit zeit heure hora ora tijd")
#: Names of texts alone that are a time of day: numbers called so are measured.
_SHORT_CLOCKS = words_of("t h hm hms")
_SIX_DIGITS, _SHORT_YEAR = re.compile("[0-9]{6}"), TextForm("%y%m%d%H%M")
#: Forms that are told by the type or the text of a value, and not by its size.
_SURE = ("date", "iso", "timestamp")


@dataclass(frozen=True)
class Form:
    """How a value tells a time: its unit, or the format of its text."""

    unit: TimeUnit | None
    format: str | None = None

    @property
    def keys(self) -> dict[str, Any]:
        """Returns what follows `time_` or `sample_time_` in the keys of a policy; nothing for dates."""
        said = {"format": self.format, "unit": None if self.unit == "date" else self.unit}
        return {key: it for key, it in said.items() if it is not None}

    @property
    def is_sure(self) -> bool:
        """Returns whether it is more than numbers that may be times by their size."""
        return self.unit in _SURE or self.format is not None


@dataclass(frozen=True)
class Time:
    """A field of times, or several that tell one together: its path, and its values in milliseconds; None
    where it has none. `is_local`: it is what a clock showed, in a zone that it does not name. `others`: forms
    that fit as well. `told_by_others`: the times that these tell."""

    path: str  # of several: the first
    form: Form
    values: list[int | None]
    rank: tuple[bool, ...]  # the higher, the likelier it is the time of readings
    is_local: bool = False
    others: tuple[Form, ...] = ()
    told_by_others: tuple[int, ...] = ()
    paths: tuple[str, ...] = ()  # of several

    @property
    def is_sure(self) -> bool:
        """Returns whether it is more than numbers that may be times by their size."""
        return self.form.is_sure or hints(self.path, TIME)

    @property
    def is_day(self) -> bool:
        """Returns whether it is text that tells days, and no time of day."""
        is_text_form = self.form.format is not None or self.form.unit == "iso"
        return is_text_form and all(it % DAY_MS == 0 for it in non_null(self.values))

    @property
    def all_told(self) -> list[int]:
        """Returns the times that it tells by any of its forms."""
        return [*non_null(self.values), *self.told_by_others]

    @property
    def used(self) -> tuple[str, ...]:
        """Returns all its fields."""
        return self.paths or (self.path,)

    def keys(self, name: str = "time") -> dict[str, Any]:
        """Returns the keys of a policy that say its form. `name`: what they begin with."""
        return {f"{name}_{key}": it for key, it in self.form.keys.items()}


def times_in(
    fields: dict[str, list[Any]], indexed: Sequence[str] = (), *, by_name: bool = False
) -> list[Time]:
    """Returns the fields that hold times, the likeliest first. `indexed`: fields that begin an index.
    `by_name`: any number is taken for seconds if its field is named like a time."""
    found = []
    for path, values in fields.items():
        forms = _forms(values, path)
        if not forms and by_name and hints(path, TIME) and all(map(is_number, non_null(values))):
            forms = [Form("s")]
        if forms:
            found.append(_time(path, forms, values, path in indexed))
    joined = list(_joined(fields, found, indexed))
    parts = {path for it in joined for path in it.paths}
    has_clock = any(_is_number_of_clock(path, it) for path, it in fields.items())
    alone = [it for it in found if it.path not in parts and not (has_clock and it.is_day)]
    found = [*joined, *alone]
    sure = [it for it in found if it.is_sure]
    sure += [it for it in found if it not in sure and any(is_day_of(day, it) for day in sure)]
    return sorted(sure or found, key=lambda it: it.rank, reverse=True)


#: A day may begin at midnight of another clock than that of the times in it.
_DAY_AT_MOST = 27 * 3_600_000


def is_of(time: Time, step: int) -> bool:
    """Returns whether a time tells days or hours alone: all lie whole steps of milliseconds apart, days by a
    clock that may change."""
    values = non_null(time.values)
    leeway = 3_600_000 if step == DAY_MS else 0
    return all(abs((it - values[0] + step // 2) % step - step // 2) <= leeway for it in values)


def is_day_of(day: Time, time: Time) -> bool:
    """Returns whether one time tells the day of the other, and nothing more."""
    pairs = [pair for pair in zip(day.values, time.values, strict=True) if None not in pair]
    within = sum(a is not None and b is not None and 0 <= b - a < _DAY_AT_MOST for a, b in pairs)
    is_all = within >= _NEARLY_ALL * len(day.values) > 0
    return is_all and day.path != time.path and is_of(day, DAY_MS) and not is_of(time, DAY_MS)


def _time(path: str, forms: list[Form], values: Sequence[Any], is_indexed: bool) -> Time:
    form, *others = forms
    texts = [it for it in values if is_text(it)]
    return Time(
        path,
        form,
        [ms_of(it, form) for it in values],
        _rank(path, form, is_indexed),
        is_local=form.format != "%s"
        and (any(map(is_local, texts)) or (form.format is not None and not texts)),
        others=tuple(others),
        told_by_others=tuple(non_null(ms_of(it, other) for other in others for it in values)),
    )


def _rank(path: str, form: Form, is_indexed: bool) -> tuple[bool, ...]:
    is_named = hints(path, TIME)
    return (
        is_indexed,
        not hints(path, BOOKKEEPING),
        form.is_sure or is_named,
        form.unit in ("date", "timestamp"),
        is_named,
    )


def _joined(fields: dict[str, list[Any]], found: Sequence[Time], indexed: Sequence[str]) -> Iterator[Time]:
    """Yields times of several fields: a day as text with the time of day beside it, or their parts as
    numbers."""
    days = [it for it in found if it.is_local and it.is_day]
    clocks = [path for path, it in fields.items() if _is_clock(path, non_null(it))]
    parts = parts_in(fields)
    for day in days:
        forms = [it.format or "%Y-%m-%d" for it in (day.form, *day.others)]
        if clocks:
            (text,) = [str(it) for it in non_null(fields[clocks[0]])][:1]
            joined = [f"{it} {time_of_day_format(text)}" for it in forms]
            yield _of_several((day.path, clocks[0]), joined, fields, indexed)
        elif parts.clock:
            joined = [f"{it} {parts.clock_format}" for it in forms]
            yield _of_several((day.path, *parts.clock), joined, fields, indexed)
    if parts.day and not days:
        yield _of_several((*parts.day, *parts.clock), [parts.format], fields, indexed)


def _is_clock(path: str, held: Sequence[Any]) -> bool:
    texts = list(map(str, held))
    names = _CLOCKS | _SHORT_CLOCKS if all(map(is_text, held)) else _CLOCKS
    return is_time_of_day(texts) or (hints(path, names) and is_bare_time_of_day(texts))


def _is_number_of_clock(path: str, values: Sequence[Any]) -> bool:
    """Returns whether a field tells the time of day in numbers that lack digits: 730 for 07:30. No format
    reads them, and the day beside them is not the whole time."""
    texts = [_as_text(it) for it in non_null(values) if is_whole(it)]
    is_bare = is_bare_time_of_day([it.zfill(4 if len(it) <= 4 else 6) for it in texts])
    return hints(path, _CLOCKS) and len(set(map(len, texts))) > 1 and is_bare


def _of_several(
    paths: tuple[str, ...], texts: Sequence[str], fields: dict[str, list[Any]], indexed: Sequence[str]
) -> Time:
    columns = zip(*(fields[it] for it in paths), strict=True)
    rows = [None if None in row else " ".join(map(_as_text, row)) for row in columns]
    told = [[None if row is None else form.ms(row) for row in rows] for form in map(TextForm, texts)]
    first, *others = (Form(None, it) for it in texts)
    return Time(
        paths[0],
        first,
        told[0],
        (*_rank(paths[0], first, paths[0] in indexed), True),
        is_local=True,
        others=tuple(others),
        told_by_others=tuple(non_null(it for other in told[1:] for it in other)),
        paths=paths,
    )


def _as_text(value: Any) -> str:
    return str(int(value)) if is_whole(value) else str(value)


def times_of_ids(fields: dict[str, list[Any]]) -> list[Time]:
    """Returns the times that are in ObjectIds, those of `_id` first, if these were not made at once."""
    named = {path: it for path, it in fields.items() if path == "_id" or not hints(path, SERIES)}
    return [
        Time(path, _OF_IDS, [ms_of(it, _OF_IDS) for it in held], _rank(path, _OF_IDS, True))
        for path, held in sorted(named.items(), key=lambda it: it[0] != "_id")
        if _tell_times(non_null(held))
    ]


_OF_IDS = Form("objectid")


def _tell_times(ids: Sequence[Any]) -> bool:
    """Returns whether most ids were made in seconds of their own, or none comes again after another one, as
    those that documents of one instant share."""
    if len(ids) < _LEAST_IDS or not all(isinstance(it, ObjectId) for it in ids):
        return False
    seconds = list(map(second_of, ids))
    count = len(set(seconds))
    is_unlike = 2 * count >= len(seconds) or _LEAST_IDS <= count == len(list(groupby(ids)))
    return is_unlike and sum(_EARLIEST <= it <= _LATEST for it in seconds) >= _NEARLY_ALL * len(seconds)


def _forms(values: Sequence[Any], path: str) -> list[Form]:
    """Returns the forms that the times of a field may have; none if it holds none. Dates may be among
    numbers."""
    held = non_null(values)
    dates = sum(isinstance(it, datetime | DatetimeMS) for it in held)
    enough = _NEARLY_ALL * len(held)
    if not held:
        return []
    if dates >= enough:
        return [Form("date")]
    if sum(isinstance(it, Timestamp) for it in held) >= enough:
        return [Form("timestamp")]
    numbers = [it for it in held if is_number(it)]
    if dates + len(numbers) >= enough:
        if unit := _counted(numbers, path):
            return [Form(unit)]
        return [Form(None, it) for it in _dates_of_digits(numbers, path)]
    texts = [it for it in held if is_text(it)]
    if all(map(_SIX_DIGITS.fullmatch, texts)) and not hints(path, TIME | _DAYS):
        return []
    if dates + sum(iso_ms(it) is not None for it in texts) >= enough:
        return [Form("iso")]
    return [_text_form(it) for it in forms_of(texts)] if len(texts) >= enough else []


def _dates_of_digits(numbers: Sequence[Any], path: str) -> list[str]:
    """Returns the formats of whole numbers that are dates by their digits: 20250131134500. A day alone has to
    be named like a time."""
    if not numbers or not all(map(is_whole, numbers)):
        return []
    texts = [_as_text(it) for it in numbers]
    found = [it.format for it in forms_of(texts) if it.format.startswith("%Y")]
    return found if len(texts[0]) in (12, 14) or (len(texts[0]) == 8 and hints(path, TIME | _DAYS)) else []


def _text_form(form: TextForm) -> Form:
    unit = next((it for it in _PER_SECOND if it == form.unit), None)
    return Form(unit, form.format)


def _counted(numbers: list[Any], path: str) -> TimeUnit | None:
    floats = [as_float(it) for it in numbers]
    if numbers and all(is_whole(it) and _SHORT_YEAR.ms(_as_text(it)) is not None for it in numbers):
        return None  # 2506030915: in 2049 as seconds
    for unit, per in PER_SECOND.items():
        plausible = sum(_EARLIEST * per <= it <= _LATEST * per for it in floats)
        if plausible >= _NEARLY_ALL * len(floats) and (hints(path, TIME) or all(map(is_whole, numbers))):
            return unit
    return None


def ms_of(value: Any, form: Form) -> int | None:
    """Returns a time in milliseconds, rounded down; None for none."""
    if isinstance(value, datetime):
        return as_ms(value)
    if isinstance(value, DatetimeMS):
        return int(value)
    if isinstance(value, Timestamp):
        return value.time * 1000
    if isinstance(value, ObjectId):
        return second_of(value) * 1000
    if isinstance(value, str):
        return TextForm(form.format, form.unit).ms(value) if form.format else iso_ms(value)
    if form.format and is_whole(value):
        return TextForm(form.format, form.unit).ms(_as_text(value))
    per = None if form.unit is None else _PER_SECOND.get(form.unit)
    if per is None or not is_number(value):
        return None
    if isinstance(value, int):
        return value * 1000 // per
    number = as_float(value) * 1000 / per
    return math.floor(number) if math.isfinite(number) else None
