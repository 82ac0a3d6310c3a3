"""Finds times that are written as numbers in several fields: year, month, day, hour, minute, second."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bucketwise.buckets.inferring.fields import is_text, is_whole, non_null

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
