"""Finds the fields that hold the values of readings, and those that say how to read them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
from bucketwise.buckets.inferring.written import unknown_words, written_in
from bucketwise.config.times import is_zone

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
