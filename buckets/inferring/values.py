"""Finds the fields that hold the values of readings, and those that say how to read them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bucketwise.buckets.fields.values import rounded_sum
from bucketwise.buckets.inferring.fields import (
    OFFSET,
    Notes,
    as_float,
    hints,
    is_number,
    is_text,
    is_whole,
    listed,
    non_null,
    words,
)
from bucketwise.config.times import is_zone

#: Share of a field's texts that have to be numbers.
_NEARLY_ALL = 0.9
#: Share of a field's values that a word has to be, to be more than the mark of a fault.
_OFTEN = 0.02
_NUMBER = re.compile(r"\s*([+-]?[0-9]+(?:[.,][0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([^\s0-9.,:/-][^0-9]{0,11})?")
_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
_POINT = re.compile(r"[+-]?[0-9]+\.[0-9]+")
#: Words for 1 and for 0.
_WORDS = {
    **{"on": "off", "true": "false", "yes": "no", "open": "closed", "up": "down", "active": "inactive"},
    **{"enabled": "disabled", "running": "stopped", "high": "low", "online": "offline", "y": "n"},
    **{"ein": "aus", "an": "aus", "ja": "nein", "oui": "non", "si": "no", "marche": "arrêt", "1": "0"},
}
_BOOLEANS = ("true", "false")


class Written(NamedTuple):
    """How the values of a field are read: keys of `values.FIELD`."""

    keys: dict[str, Any]
    is_sure: bool = True  # whether there is more than their digits to tell them from names


def written_in(values: Sequence[Any]) -> Written | None:
    """Returns how to read a field of texts, or of texts and booleans among numbers; None where they are no
    numbers."""
    held = non_null(values)
    texts = [it for it in held if is_text(it)]
    if texts and (found := _numbers(texts)):
        return found
    words = {
        str(it).lower() if isinstance(it, bool) else it for it in held if isinstance(it, bool) or is_text(it)
    }
    numbers = sum(map(is_number, held))
    counts = _mapped(words)
    if counts is None or len(texts) + numbers + sum(isinstance(it, bool) for it in held) < len(held):
        return None
    return Written({"map": counts}, is_sure=numbers > 0)


def unknown_words(values: Sequence[Any]) -> tuple[str, str] | None:
    """Returns the two words that stand among numbers often enough to mean something; None where they are
    known, or where there are others."""
    held = non_null(values)
    words = Counter(it for it in held if is_text(it))
    if len(words) != 2 or not any(map(is_number, held)) or written_in(values) is not None:
        return None
    first, second = sorted(words)
    return (first, second) if min(words.values()) >= _OFTEN * len(held) else None


def _numbers(texts: Sequence[str]) -> Written | None:
    """Returns how to read texts that are numbers with at most one unit."""
    found = [it for it in map(_NUMBER.fullmatch, texts) if it]
    if len(found) < _NEARLY_ALL * len(texts):
        return None
    units = Counter((it[2] or "").strip() for it in found)
    unit = units.most_common(1)[0][0]
    if units[unit] < _NEARLY_ALL * len(found):
        return None
    has_comma = any(_COMMA.fullmatch(it[1]) for it in found)
    has_point = any(_POINT.fullmatch(it[1]) for it in found)
    if has_comma and has_point:
        return None
    keys: dict[str, Any] = {"text": True}
    if has_comma:
        keys["decimal"] = ","
    if unit:
        keys["unit"] = unit
    return Written(keys, is_sure=bool(unit) or has_comma or has_point)


def _mapped(words: set[str]) -> dict[str, float] | None:
    """Returns what words stand for; None if any is unknown. Booleans may be among them."""
    held = {it.lower() for it in words}
    for one, zero in _WORDS.items():
        if {one, zero} <= held <= {one, zero, *_BOOLEANS}:
            return {it: 1.0 if it.lower() in (one, "true") else 0.0 for it in sorted(words)}
    return None


_KEY = "value_fields"
#: Names that summaries and parts of the archive use themselves.
_RESERVED = {"_id", "start", "end", "count", "timezone", "hours", "time", "dt"}
_NO_VALUES = {"id", "uuid", "guid", "serial", "version", "schema"}
#: So many readings that hold the same are no chance.
_MANY = 20
#: Minutes that a clock may be from UTC; all of them are whole quarters of an hour.
_MAX_OFFSET, _QUARTER = 18 * 60, 15

Columns = Mapping[str, Sequence[Any]]


def numeric(columns: Columns, notes: Notes) -> list[str]:
    """Returns the fields that hold numbers, in whatever form, except those whose numbers identify
    something. Numbers as text that may be names count only where nothing else does."""
    found: list[str] = []
    mixed: list[str] = []
    unsure: list[str] = []
    for path, values in columns.items():
        held = non_null(values)
        numbers = [it for it in held if is_number(it)]
        is_name = bool(words(path) & _NO_VALUES) and all(map(is_whole, numbers))
        if is_name or path.startswith(("__", "_id.")):
            continue
        written = written_in(values)
        if unknown_words(values) is not None:
            found.append(path)
        elif written is not None:
            (found if written.is_sure else unsure).append(path)
        elif any(map(is_finite, numbers)):
            (found if 2 * len(numbers) > len(held) else mixed).append(path)
    constant = [path for path in found if _is_constant(columns[path])]
    if constant and len(constant) < len(found):
        found = [path for path in found if path not in constant]
        notes.add_question(
            _KEY,
            f"{listed(constant)} is the same whole number in all sampled readings, so it was left out. "
            "Is it measured? Then add it here",
        )
    if mixed:
        notes.add_question(_KEY, f"{listed(mixed)} holds numbers now and then. Does it belong here?")
    return usable(_outermost(found or unsure), notes)


def _is_constant(values: Sequence[Any]) -> bool:
    held = non_null(values)
    return len(held) >= _MANY and all(map(is_whole, held)) and len(set(held)) == 1


def usable(paths: list[str], notes: Notes) -> list[str]:
    """Returns the fields that can have a column of their own, and a place in summaries; all if none can."""
    free: dict[str, str] = {}
    for path in paths:
        free.setdefault(_column(path.rpartition("*.")[2]), path)
    left_out = [it for it in paths if it not in free.values()]
    if left_out and free:
        notes.add_question(
            _KEY,
            f"{listed(left_out)} holds numbers too, but another column has that name. "
            "Give it one of its own with `as` to have it summarized",
        )
    return list(free.values()) or paths


def tables(columns: Columns, paths: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Returns the tables `values.FIELD` of value fields that need one: for numbers that are text, words that
    stand for numbers, and names that summaries have a use for. `columns`: what fields hold, where it is not
    numbers alone."""
    found: dict[str, dict[str, Any]] = {}
    for path in paths:
        written = written_in(columns.get(path, ()))
        keys = dict(written.keys) if written is not None else {}
        name = path.rpartition("*.")[2]
        if name.partition(".")[0] in _RESERVED or _column(name) in _RESERVED:
            keys["as"] = f"{_column(name).strip('_')}_value"
        if keys:
            found[path] = keys
    return found


def _column(name: str) -> str:
    return name.replace(".", "_").casefold()


def _outermost(paths: list[str]) -> list[str]:
    """Returns the paths without those inside of another."""
    return [it for it in paths if not any(it.startswith(f"{other}.") for other in paths)]


def is_finite(value: Any) -> bool:
    """Returns whether a value is a number, and no NaN or infinity."""
    return is_number(value) and math.isfinite(as_float(value))


def total(values: Iterable[Any]) -> tuple[float, float]:
    """Returns the sum of the finite numbers, and of their magnitudes."""
    numbers = [as_float(it) for it in values if is_finite(it)]
    return rounded_sum(numbers), rounded_sum(map(abs, numbers))


def offset_field(columns: Columns) -> str | None:
    """Returns the field that holds each reading's own offset from UTC, in minutes."""
    for path, values in columns.items():
        held = non_null(values)
        is_named = bool(held) and hints(path, OFFSET) and all(map(is_whole, held))
        if is_named and all(abs(it) <= _MAX_OFFSET and it % _QUARTER == 0 for it in held):
            return path
    return None


def zone_fields(columns: Columns) -> dict[str, set[str]]:
    """Returns the fields that hold names of time zones, and which."""
    found = {}
    for path, values in columns.items():
        held = set(non_null(values)) if all(map(is_text, non_null(values))) else set()
        if held and all(is_zone(it) and ("/" in it or it == "UTC") for it in held):
            found[path] = held
    return found
