"""Fields that seem to tell times in a way that no policy reads: what one could read beside them is not the
whole time."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

from bucketwise.buckets.fields.times import DAY_MS
from bucketwise.buckets.inferring.fields import (
    BOOKKEEPING,
    hints,
    is_number,
    is_text,
    is_whole,
    listed,
    non_null,
    quoted,
    words,
    words_of,
)
from bucketwise.buckets.inferring.proposal import NEARLY_ALL, Evidence, grouped
from bucketwise.buckets.inferring.texts import is_time_of_day
from bucketwise.buckets.inferring.times import Time, times_in

#: What fields are called that count from another instant than 1970, or in another unit; and whole names.
_COUNTED = words_of("epoch unix excel julian mjd millis uptime ticks")
_CALLED = words_of(
    "ts tm dt time times timestamp date datetime year month day hour datum zeit jahr monat tag stunde "
    "fecha ano mes dia hora annee mois jour heure data anno mese giorno ora tijd jaar maand dag uur"
)
_LIKE_DATE = re.compile(
    r"(?<![0-9])(19|20)[0-9]{2}(?![0-9]{1,2}(?![0-9]))|(?<!\w)[0-9]{1,2}[./-][0-9]{1,2}(?!\w)"
)
#: So many different texts that never come again are no chance.
_LEAST = 3
#: How many places a day has, or one on which clocks change, if they are hours, half-hours and so on.
_PLACES = {*(23, 24, 25), *(46, 48, 50), 72, *(92, 96, 100), 144, 288, 1440}
_WITHIN = words_of(
    "hour hr hh he minute period slot interval quarter time tm clock uhrzeit stunde heure hora"
)
#: Names of fields that are numbered, and of the months.
_NUMBERED = re.compile("(.*?)([0-9]+)")
_MONTHS = words_of("jan feb mar apr may jun jul aug sep oct nov dec")


def unread(time: Time, series: Sequence[str], values: Sequence[str], evidence: Evidence) -> str | None:
    """Returns what speaks against readings at a time of their document: other fields that belong to it, or
    values that are places in it; None where nothing does. `series`, `values`: what is taken for these."""
    if time.form.unit == "objectid" or hints(time.path, BOOKKEEPING):
        others = {path: it for path, it in evidence.single.items() if path not in time.used}
        known = {it.path for it in evidence.times}
        found = [
            path for path, it in others.items() if path not in known and _is_like_time(path, non_null(it))
        ]
        found += _pairs(evidence.fields.several)
        if found:
            return (
                f"{listed(found)} seems to tell times, in a form that no policy reads. If "
                f"{quoted(time.path)} tells them, write a policy with it as time_field"
            )
    if not _is_of_days(time):
        return None
    for path in series:
        if _are_places(path, [it for it in series if it != path], time, evidence):
            return (
                f"{quoted(path)} seems to tell where in the day of {quoted(time.path)} a reading lies, and "
                "no policy reads these together. Write one date for both, or both as text"
            )
    if wide := _wide(values):
        return (
            f"{quoted(wide[0])} to {quoted(wide[-1])} seem to be places in the time of their document. Slots "
            "have to lie in an array, or in a sub-document under numbers"
        )
    return None


def _is_like_time(path: str, held: Sequence[Any]) -> bool:
    """Returns whether a field is called like a time, or its texts go on like one."""
    if held and all(map(is_text, held)):
        return is_time_of_day(held) or _goes_on(held)
    name = path.rpartition(".")[2].casefold().replace("_", "")
    is_called = name in _CALLED or bool(words(path) & _COUNTED)
    return is_called and len(set(held)) > 1 and all(map(is_number, held))


def _goes_on(texts: Sequence[str]) -> bool:
    """Returns whether texts have something like a date, and none comes again after another one."""
    count = len(set(texts))
    is_dated = sum(_LIKE_DATE.search(it) is not None for it in texts) >= NEARLY_ALL * len(texts)
    return is_dated and count >= _LEAST and len(list(groupby(texts))) == count


def _pairs(several: Mapping[str, Sequence[Any]]) -> list[str]:
    """Returns the arrays whose first element is a time."""
    found = {}
    for path, held in several.items():
        firsts = [it[0] for it in held if isinstance(it, list) and it and not isinstance(it[0], dict | list)]
        if len(firsts) >= NEARLY_ALL * len(held):
            found[path] = firsts
    return list(dict.fromkeys(it.path for it in times_in(found)))


def _is_of_days(time: Time) -> bool:
    """Returns whether a time tells days alone: all are midnights, by one clock."""
    return len({it % DAY_MS for it in non_null(time.values)}) <= 2


def _are_places(path: str, series: Sequence[str], time: Time, evidence: Evidence) -> bool:
    """Returns whether a field tells, document by document, different places in the day of its series."""
    columns = evidence.single | evidence.lacked
    held = non_null(columns[path])
    if held and all(map(is_text, held)):
        return is_time_of_day(held)
    if not held or not all(map(is_whole, held)):
        return False
    places = sorted(set(map(int, held)))
    step = math.gcd(*(b - a for a, b in pairwise(places)))
    days = grouped(series, columns, time.values).values()
    is_in_day = hints(path, _WITHIN) or (step > 0 and (places[-1] - places[0]) // step + 1 in _PLACES)
    return is_in_day and any(len(it) > len(set(it)) for it in days)


def _wide(values: Sequence[str]) -> list[str]:
    """Returns the values that are numbered like places of a day, or called like months."""
    stems: dict[str, list[tuple[int, str]]] = {}
    for path in values:
        if numbered := _NUMBERED.fullmatch(path):
            stems.setdefault(numbered[1], []).append((int(numbered[2]), path))
    for found in stems.values():  # battery cells are numbered as well, and seldom read at midnight alone
        if len(found) in _PLACES and max(found)[0] - min(found)[0] == len(found) - 1:
            return [path for _, path in sorted(found)]
    months = [it for it in values if it.rpartition(".")[2].casefold()[:3] in _MONTHS]
    return months if len(months) == len(_MONTHS) else []
