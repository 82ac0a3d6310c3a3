"""Finds the fields that distinguish series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any
from uuid import UUID

from bson.binary import Binary
from bson.objectid import ObjectId

from bucketwise.buckets.inferring.fields import is_text, is_whole, non_null
from bucketwise.buckets.inferring.notes import Notes, quoted
from bucketwise.buckets.inferring.words import SERIES, hints

#: Characters of a text that may be a name; a longer text is prose.
_MAX_LENGTH = 100
#: Rows that have to differ before a field is taken to differ in each.
_MIN_ROWS = 20
_KEY = "series_fields"
_TEXTS = (ObjectId, UUID, Binary)

Columns = Mapping[str, Sequence[Any]]


def may_name(values: Sequence[Any]) -> bool:
    """Returns whether each of these values may be one of a series."""
    return all(is_whole(it) or (_is_text(it) and len(str(it)) <= _MAX_LENGTH) for it in values)


def _is_text(value: Any) -> bool:
    return is_text(value) or isinstance(value, _TEXTS)


def choose_fields(
    columns: Columns, times: Sequence[int | None], indexed: Sequence[str], notes: Notes
) -> list[str]:
    """Returns the fields, among those with a value in each row, that distinguish series. `times`: of
    each row; `indexed`: fields of an index that also has the time. Numbers count if their name or an
    index suggests it, or if nothing else distinguishes rows of the same time."""
    possible = [field for field in columns if may_name(non_null(columns[field]))]
    texts = [field for field in possible if any(map(_is_text, columns[field]))]
    named = [field for field in possible if hints(field, SERIES)]
    likely = list(dict.fromkeys([*(field for field in possible if field in indexed), *named])) or texts
    chosen = _without_unique(likely, columns, notes)
    chosen += _telling_apart(chosen, [field for field in possible if field not in likely], columns, times)
    _note_choice(chosen, columns, notes)
    for field in texts:
        if field not in chosen and field not in likely and len(set(map(_hashable, columns[field]))) > 1:
            notes.add_question(
                _KEY, f"{quoted(field)} varies. Is it part of what is measured? Then add it here"
            )
    return [field for field in columns if field in chosen]


def _without_unique(likely: list[str], columns: Columns, notes: Notes) -> list[str]:
    """Returns the fields without those that differ in every row, if any others are left: such fields
    identify rows."""
    unique = [
        field for field in likely if _count_distinct(columns[field]) == len(columns[field]) >= _MIN_ROWS
    ]
    if len(unique) == len(likely):
        return likely
    for field in unique:
        notes.add_question(
            _KEY, f"{quoted(field)} is another one in each document, so it was left out. Is that right?"
        )
    return [field for field in likely if field not in unique]


def _telling_apart(
    chosen: list[str], others: list[str], columns: Columns, times: Sequence[int | None]
) -> list[str]:
    """Returns those of the other fields that distinguish most rows of the same series and time."""
    added: list[str] = []
    repeated = _repeated([*chosen], columns, times)
    for field in others:
        remaining = _repeated([*chosen, *added, field], columns, times) if repeated else 0
        if repeated and remaining <= repeated // 10 and len(set(map(_hashable, columns[field]))) < len(times):
            added.append(field)
            repeated = remaining
    return added


def _repeated(fields: list[str], columns: Columns, times: Sequence[int | None]) -> int:
    """Returns how many rows have series and time of another one."""
    rows = zip(times, *(map(_hashable, columns[it]) for it in fields), strict=True)
    return sum(count - 1 for count in Counter(rows).values())


def _note_choice(chosen: list[str], columns: Columns, notes: Notes) -> None:
    if not chosen:
        notes.add_question(_KEY, "No field tells series apart. Is all of this one series?")
        notes.add_evidence(_KEY, "no field names a series")
        return
    text = ", ".join(f"{_count_distinct(columns[it]):,} of {quoted(it)}" for it in chosen)
    notes.add_evidence(_KEY, f"in the sample: {text}")


def _count_distinct(values: Sequence[Any]) -> int:
    return len(set(map(_hashable, values)))


def _hashable(value: Any) -> Hashable:
    return value if isinstance(value, Hashable) else repr(value)
