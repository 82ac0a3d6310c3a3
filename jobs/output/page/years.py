"""Months of a table summed to years."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Body = dict[str, Any]


def by_year(months: Sequence[Body]) -> list[Body]:
    """Returns months with a row a year. A count of None, which can't be told, makes the sum None."""
    found: dict[str, Body] = {}
    for it in months:
        row = {**it, "month": it["month"][:4]}
        year = row["month"]
        found[year] = _merged(found[year], row) if year in found else row
    return list(found.values())


def _merged(one: Body, other: Body) -> Body:
    return {key: _sum(key, value, other[key]) for key, value in one.items()}


def _sum(key: str, one: Any, other: Any) -> Any:
    if isinstance(one, dict):
        return _merged(one, other)
    if one is None or other is None:
        return None
    if key in ("first", "last"):  # numbers of receipts
        return min(one, other) if key == "first" else max(one, other)
    return one if key == "month" else one + other
