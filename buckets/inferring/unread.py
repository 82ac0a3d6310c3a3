"""Fields that seem to tell times in a way that no policy reads: what one could read beside them is not the
whole time."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from bucketwise.buckets.fields.times import DAY_MS
from bucketwise.buckets.inferring.fields import (
    BOOKKEEPING,
    NUMBERED,
    SERIES,
    hints,
    is_number,
    is_text,
    is_whole,
    listed,
    nameless,
    non_null,
    quoted,
    words,
    words_of,
)
from bucketwise.buckets.inferring.proposal import NEARLY_ALL, Evidence, grouped
from bucketwise.buckets.inferring.texts import is_bare_time_of_day, is_time_of_day
from bucketwise.buckets.inferring.times import Time, is_of, times_in

#: What fields are called that count from another instant than 1970, or in another unit; and whole names.
_COUNTED = words_of("epoch unix excel julian mjd millis uptime ticks")
_CALLED = words_of(
    "ts tm dt time times timestamp date datetime year month week day hour datum zeit jahr monat woche tag "
    "stunde fecha ano mes semana dia hora annee mois semaine jour heure data anno mese giorno ora tijd"
)
_LIKE_DATE = re.compile(
    r"(?<![0-9])(19|20)[0-9]{2}(?![0-9]{1,2}(?![0-9])|-?[0-9]{3})|(?<!\w)[0-9]{1,2}[./-][0-9]{1,2}(?!\w)"
)
_DIGIT, _DIGITS = re.compile("[0-9]"), re.compile("[0-9]+")
#: So many different values that never come again are no chance. Numbers that count from far away are large.
_LEAST, _LARGE = 3, 10_000
#: Of arrays that are dates: year, month and day.
_PARTS = (range(1980, 2101), range(1, 13), range(1, 32))
#: What an extended JSON that was never read as such calls a date.
_DOLLAR_DATE = "$date"


class _Step(NamedTuple):
    """A step of time, what fields are called that tell a place in it, and how many places it may have."""

    name: str
    length: int
    called: frozenset[str]
    counts: set[int]


_STEPS = (
    _Step(
        "day",
        DAY_MS,
        words_of(
            "hour hr hh he minute min period slot interval quarter time tm clock uhrzeit stunde heure hora"
        ),
        {*(23, 24, 25), *(46, 48, 50), 72, *(92, 96, 100), 144, 288, 1440},
    ),
    _Step("hour", 3_600_000, words_of("minute min m mi mm period slot interval quarter"), {60}),
)
_MONTHS = words_of("jan feb mar apr may jun jul aug sep oct nov dec")
#: So many values whose names differ in so many digits alone are times.
_MANY, _LONG = 12, 4


def unread(time: Time, series: Sequence[str], values: Sequence[str], evidence: Evidence) -> str | None:
    """Returns what speaks against readings at a time of their document: other fields that belong to it, or
    values that are places in it; None where nothing does. `series`, `values`: what is taken for these."""
    is_unlikely = time.form.unit == "objectid" or hints(time.path, BOOKKEEPING)
    if is_unlikely and (found := _like_times(evidence)):
        return (
            f"{listed(found)} seems to tell times, in a form that no policy reads. If {quoted(time.path)} "
            "tells them, write a policy with it as time_field"
        )
    step = next((it for it in _STEPS if is_of(time, it.length)), None)
    if step is None:
        return None
    for path in series:
        if _are_places(path, step, [it for it in series if it != path], time, evidence):
            return (
                f"{quoted(path)} seems to tell where in the {step.name} of {quoted(time.path)} a reading "
                "lies, and no policy reads these together. Write one date for both, or both as text"
            )
    if wide := _wide(values, step):
        return (
            f"{quoted(wide[0])} to {quoted(wide[-1])} seem to be places in the time of their document. Slots "
            "have to lie in an array, or in a sub-document under numbers"
        )
    return None


def _like_times(evidence: Evidence) -> list[str]:
    """Returns the fields that seem to tell times, though no form of theirs does."""
    known = {path for it in evidence.times for path in it.used}
    found = [path for path, it in evidence.single.items() if path not in known and _is_like_time(path, it)]
    found += _in_arrays(evidence.fields.several)
    return found + [it for it in nameless(evidence.fields.documents) if it == _DOLLAR_DATE]


def _is_like_time(path: str, values: Sequence[Any]) -> bool:
    """Returns whether a field is called like a time, or goes on like one."""
    held = non_null(values)
    name = path.rpartition(".")[2].casefold().replace("_", "")
    is_called = len(set(map(repr, held))) > 1 and (name in _CALLED or bool(words(path) & _COUNTED))
    if held and all(map(is_text, held)):
        is_dated = sum(_LIKE_DATE.search(it) is not None for it in held) >= NEARLY_ALL * len(held)
        has_digits = is_called and all(map(_DIGIT.search, held))
        return has_digits or is_time_of_day(held) or (is_dated and _goes_on(held))
    if not all(map(is_number, held)):
        return False
    is_shared = all(map(is_whole, held)) and 2 * len(set(held)) <= len(held)
    return is_called or (is_shared and min(held, default=0) > _LARGE and _goes_on(held))


def _goes_on(held: Sequence[Any]) -> bool:
    """Returns whether none of these comes again after another one."""
    return _LEAST <= len(set(held)) == len(list(groupby(held)))


def _in_arrays(several: Mapping[str, Sequence[Any]]) -> list[str]:
    """Returns the arrays whose first element is a time, and those that are the parts of a date."""
    plain = {
        path: held
        for path, held in several.items()
        if all(isinstance(it, list) and it and not isinstance(it[0], dict | list) for it in held)
    }
    firsts = times_in({path: [it[0] for it in held] for path, held in plain.items()})
    dates = [path for path, held in plain.items() if all(map(_is_date, held))]
    return list(dict.fromkeys([*dates, *(it.path for it in firsts)]))


def _is_date(held: Sequence[Any]) -> bool:
    told = zip(held, _PARTS, strict=False)
    return len(_PARTS) <= len(held) <= 7 and all(map(is_whole, held)) and all(it in part for it, part in told)


def _are_places(path: str, step: _Step, series: list[str], time: Time, evidence: Evidence) -> bool:
    """Returns whether a field tells, document by document, different places in a step of its series."""
    columns = evidence.single | evidence.lacked
    held = non_null(columns[path])
    if held and all(map(is_text, held)):
        return is_time_of_day(held) or (hints(path, step.called) and is_bare_time_of_day(held))
    if not held or not all(map(is_whole, held)):
        return False
    places = sorted(set(map(int, held)))
    width = math.gcd(*(b - a for a, b in pairwise(places)))
    count = (places[-1] - places[0]) // width + 1 if width else 1
    steps = grouped(series, columns, time.values).values()
    is_inside = hints(path, step.called) or (count in step.counts and not hints(path, SERIES | NUMBERED))
    return is_inside and any(len(it) > len(set(it)) for it in steps)


def _wide(values: Sequence[str], step: _Step) -> list[str]:
    """Returns the values that are called like places of a step of time, or like the months."""
    alike: dict[str, list[str]] = {}
    for path in values:
        alike.setdefault(_DIGITS.sub("#", path), []).append(path)
    for name, found in alike.items():  # battery cells are numbered as well, and seldom read at midnight alone
        digits = len("".join(_DIGITS.findall(found[0])))
        if "#" in name and (len(found) in step.counts or (len(found) >= _MANY and digits >= _LONG)):
            return found
    months = [it for it in values if it.rpartition(".")[2].casefold()[:3] in _MONTHS]
    return months if len(months) == len(_MONTHS) else []
