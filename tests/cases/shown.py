"""Compares the readings that `init` shows with those that a case expects."""

from __future__ import annotations

from typing import Any

from tests.cases.case import Case, same, text_of

Row = dict[str, Any]


def is_right(first: list[Row], case: Case) -> bool:
    """Whether the first readings of a document are those of the case: the first and the second of an hour."""
    rows = [case.expected["hourly"], *case.expected.get("init_also", [])]
    return bool(first) and any(_begins(first, it) for it in rows)


def _begins(first: list[Row], rows: list[Row]) -> bool:
    begun = [it for it in rows if _is_at(first[0], it)]
    return any(_is_then(first, it) for it in begun)


def _is_at(reading: Row, row: Row) -> bool:
    held = [it for it in row.values() if isinstance(it, dict) and "first_at" in it]
    return any(text_of(it["first_at"]) == reading["time"] for it in held) and all(
        any(same(it["first"], value) for it in held)
        for value in reading["value"].values()
        if value is not None
    )


def _is_then(first: list[Row], row: Row) -> bool:
    then = row.get("then")
    if then is None or len(first) < 2:
        return True
    at, values = then
    return text_of(at) == first[1]["time"] and all(
        any(same(value, it) for it in first[1]["value"].values()) for value in values.values()
    )
