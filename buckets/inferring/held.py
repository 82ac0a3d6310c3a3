"""What the slots of one field hold in all documents: their keys, level by level, and their values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from bucketwise.buckets.inferring.fields import CLOCK, Fields, counted_from, has_slots, is_number, non_null
from bucketwise.buckets.inferring.texts import is_time_of_day
from bucketwise.buckets.inferring.widths import DAY, HOUR, MINUTE, SECOND, Places, Width
from bucketwise.buckets.inferring.written import written_in

#: A shorter array of numbers is more likely a point on a map.
_MIN_PLACES = 4
_COMPACT_DIGITS = 4
#: So many different keys of four digits are not all times of a clock by chance; and a day has fewer minutes.
_MANY, _MINUTES = 10, 1_440
#: Keys of a lower level by those above it: so many are in one where they count on.
_PER_OUTER = 60


@dataclass
class Held:
    """The contents of one field in all documents."""

    lowest: list[int] = field(default_factory=list)  # key, level by level
    highest: list[int] = field(default_factory=list)
    each: list[int] = field(default_factory=list)  # the highest key of each document, on the outer level
    depths: Counter[int] = field(default_factory=Counter)
    values: list[Any] = field(default_factory=list)  # of all slots
    sizes: Counter[int] = field(default_factory=Counter)  # slots in a document
    texts: set[str] = field(default_factory=set)  # the keys of the outer level, as they are written
    is_keyed: bool = False
    runs_on: bool = True  # the keys of the second level count on through the bucket

    @classmethod
    def of(cls, held: Iterable[Any]) -> Held:
        """Returns the contents of the sub-documents or arrays of a field."""
        found = cls()
        for of_document in non_null(held):
            before = len(found.values)
            top = found._add(of_document)
            found.sizes[len(found.values) - before] += 1
            if top >= 0:
                found.each.append(top)
        return found

    def _add(self, held: Any, depth: int = 0, outer: int = 0) -> int:
        """Adds a sub-document or an array of slots, and returns its highest key."""
        if len(self.highest) == depth:
            self.lowest.append(10**9)
            self.highest.append(-1)
        if isinstance(held, dict):
            self.is_keyed = True
            self.texts |= set(held) if depth == 0 else set()
            pairs: Iterable[tuple[int, Any]] = [(_number(key), it) for key, it in held.items()]
            top = -1
        else:
            pairs, top = enumerate(held), len(held) - 1
        for key, value in pairs:
            if value is None or value == {} or value == []:
                continue
            top = max(top, key)
            self.lowest[depth] = min(self.lowest[depth], key)
            if depth == 1 and key // _PER_OUTER != outer:
                self.runs_on = False
            if depth < 2 and (isinstance(value, list) or has_slots(value)):
                self._add(value, depth + 1, key)
            else:
                self.depths[depth + 1] += 1
                self.values.append(value)
        self.highest[depth] = max(self.highest[depth], top)
        return top

    @property
    def depth(self) -> int:
        """Returns how many levels of slots there are."""
        return next(iter(self.depths))

    @property
    def levels(self) -> list[int]:
        """Returns the highest key of each level down to the values."""
        return self.highest[: self.depth]

    @property
    def is_likely(self) -> bool:
        """Returns whether these are slots, and not a few numbers that belong together."""
        return len(self.depths) == 1 and (self.is_keyed or max(self.highest) + 1 >= _MIN_PLACES)

    @property
    def places(self) -> Places:
        """Returns the slots of the outer level."""
        return Places(self.lowest[0], self.highest[0], self.each, self.is_keyed)

    @property
    def is_running(self) -> bool:
        """Returns whether the keys of the second level count on from one outer slot to the next."""
        return self.depth == 2 and self.runs_on and self.highest[1] >= _PER_OUTER

    @property
    def clock(self) -> Width | None:
        """Returns the slots of a day whose keys are what a clock shows; None where they are numbers."""
        seconds = [_shown(it) for it in self.texts]
        if self.depth != 1 or len(seconds) < 2 or None in seconds:
            return None
        step = math.gcd(*(it for it in seconds if it is not None)) * SECOND
        widths = [it for it in (12 * HOUR, 6 * HOUR, *_CLOCK_WIDTHS) if step % it == 0]
        return Width(widths[0], DAY)

    @property
    def is_surely_clock(self) -> bool:
        """Returns whether the keys of a clock can't be numbers."""
        return any(":" in it for it in self.texts) or len(self.texts) >= _MANY or self.highest[0] >= _MINUTES

    def columns(self, field: str) -> dict[str, list[Any]]:
        """Returns the value fields, with what they hold."""
        if self._are_values(self.values):
            return {field: self.values}
        inner = Fields.of(it for it in self.values if isinstance(it, dict))
        if 2 * len(inner.documents) <= len(self.values):
            return {}
        if not self.is_keyed and any(map(_is_out_of_place, inner.single.values())):
            return {}
        columns = {path: it for path, it in inner.single.items() if self._are_values(it)}
        counting = {path for path, it in columns.items() if counted_from(it) in (0, 1)}
        names = columns.keys() - counting or columns
        return {f"{field}.*.{path}": it for path, it in columns.items() if path in names}

    def _are_values(self, held: Sequence[Any]) -> bool:
        """Returns whether most of these are numbers, or all of them in another form."""
        if 2 * sum(map(is_number, held)) > len(non_null(held)):
            return True
        written = written_in(held)
        return written is not None and (written.is_sure or self.is_keyed)


#: Widths of slots that a clock names.
_CLOCK_WIDTHS = [
    *(HOUR * it for it in (4, 3, 2, 1)),
    *(MINUTE * it for it in (30, 20, 15, 12, 10, 6, 5, 4, 3, 2, 1)),
    *(SECOND * it for it in (30, 20, 15, 10, 5, 2, 1)),
]


def _is_out_of_place(held: Sequence[Any]) -> bool:
    """Returns whether these are times of day that don't go on from midnight in even steps, as places do."""
    texts = [str(it) for it in non_null(held)]
    if not is_time_of_day(texts):
        return False
    seconds = [_shown(it) for it in texts]
    step = next((it for it in seconds if it), 0)
    return any(it not in (0, (before or 0) + step) for before, it in pairwise([-step, *seconds]))


def _number(key: str) -> int:
    return int(key) if key.isdigit() else _shown(key) or 0


def _shown(key: str) -> int | None:
    """Returns the second of the day that a clock shows so; None for another text."""
    if shown := CLOCK.fullmatch(key):
        hour, minute, second = (int(it or 0) for it in shown.groups())
        return hour * 3600 + minute * 60 + second
    hour, minute = (int(key[:2]), int(key[2:])) if len(key) == _COMPACT_DIGITS and key.isdigit() else (24, 60)
    return hour * 3600 + minute * 60 if hour < 24 and minute < 60 else None
