"""The forms that times have in documents, for decoding and for queries: a class each.

A time is a date. Besides dates, a field may hold numbers that count a unit since 1970, ObjectIds or BSON
Timestamps, each for its second, or text: see `isoforms` and `textforms`. The type says which of these a
document holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np
from bson import ObjectId, Timestamp
from bson.decimal128 import Decimal128
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import as_queried
from bucketwise.buckets.bson.types import DATE, DOUBLE, INT32, INT64, OBJECT_ID, TIMESTAMP, first_at
from bucketwise.buckets.fields.times import (
    FIRST_MS,
    LAST_MS,
    NO_TIME,
    PER_SECOND,
    Unit,
    as_date,
    as_ms,
    as_number,
    from_numbers,
)
from bucketwise.buckets.layouts.layout import Cell, Element, Group, by_type, read_bytes

Document = dict[str, Any]
_DTYPES = {DATE: "<i8", DOUBLE: "<f8", INT32: "<i4", INT64: "<i8"}
#: What a message that rejects a number says of its unit.
_MEANT_UNITS: dict[Unit, str] = {
    "s": " (numbers are seconds since 1970, not milliseconds)",
    "ms": " (numbers are milliseconds since 1970)",
    "us": " (numbers are microseconds since 1970)",
    "ns": " (numbers are nanoseconds since 1970)",
}
#: Of ObjectIds and Timestamps: seconds are a number without sign, of 32 bits.
_SECONDS = 1 << 32


class UnsortedRange(NamedTuple):
    """A range of times that the server reads by an expression, and the query for what may hold one."""

    narrowed: Document
    time: Document
    first: Any  # as dates
    last: Any

    @property
    def query(self) -> Document:
        """Returns the query for the range."""
        inside = [{"$gte": ["$$time", self.first]}, {"$lte": ["$$time", self.last]}]
        return {**self.narrowed, "$expr": {"$let": {"vars": {"time": self.time}, "in": {"$and": inside}}}}

    def stages(self, query: Document) -> list[Document]:
        """Returns the stages that leave the times, as the field `time`, of what also matches a query. Each
        is read once."""
        return [
            {"$match": {"$and": [self.narrowed, query]}},
            {"$project": {"_id": 0, "time": self.time}},
            {"$match": {"time": {"$gte": self.first, "$lte": self.last}}},
        ]


class Bounds(NamedTuple):
    """The values of one type for a range of times: from the first to the last, or to before it."""

    low: Any
    behind: str  # the operator that goes with `high`
    high: Any


class TimeForm:
    """Times that are dates; in each form beside this one, also other values."""

    #: The BSON types of times that are no dates.
    kinds: ClassVar[tuple[int, ...]] = ()
    #: Whether a time may be text.
    has_texts: ClassVar[bool] = False
    #: The unit of numbers; None where there are none.
    unit: Unit | None = None
    #: Whether all texts are queried as if they sorted as time does.
    is_plain: bool = False

    @property
    def types(self) -> tuple[int, ...]:
        """Returns the BSON types that a time may have."""
        return (DATE, *self.kinds)

    @property
    def is_date(self) -> bool:
        """Returns whether a time is always a date."""
        return not self.kinds

    # How documents are read

    def fields(self, field: str) -> tuple[str, ...]:
        """Returns the fields that a time lies in."""
        return (field,)

    def at(self, cells: Sequence[Cell]) -> TimeForm:
        """Returns the form of the times of one layout, where these cells are the fields that a time lies
        in."""
        return self

    def value_in(self, document: bytes, field: str) -> Any:
        """Returns the value of a time in a document's BSON, as `milliseconds` takes it."""
        return as_queried(first_at(document, tuple(field.split("."))))

    def expression(self, document: str, field: str) -> Any:
        """Returns the expression of the value of a time, as `milliseconds` takes it."""
        return f"{document}.{field}"

    def read(self, group: Group, cells: Sequence[Cell]) -> NDArray[np.int64]:
        """Returns times as n × k milliseconds. A time outside the years 1 to 9999, or NaN, or none at all, is
        NO_TIME."""
        if alike := group.of_one_type(cells):
            times = self._of_type(group, *alike)
        else:
            times = np.full((len(group.matrix), len(cells)), NO_TIME)
            for kind, at, elements in by_type(cells):
                group.put(times, at, self._of_type(group, kind, elements), elements)
        return usable(times)

    def _of_type(self, group: Group, kind: int, elements: Sequence[Element]) -> NDArray[np.int64]:
        if kind == DATE:
            return np.asarray(group.read(elements, _DTYPES[kind]), dtype=np.int64)
        return self._read_other(group, kind, elements)

    def _read_other(self, group: Group, kind: int, elements: Sequence[Element]) -> NDArray[np.int64]:
        raise NotImplementedError(f"times of type {kind} are no dates")

    def milliseconds(self, value: object) -> int | None:
        """Returns the milliseconds of a value as pymongo gives it; None where it is no time."""
        return as_ms(value) if isinstance(value, datetime) else self._ms_of(value)

    def _ms_of(self, value: object) -> int | None:
        return None

    def finer(self, value: object, ms: int) -> int:
        """Returns by how many nanoseconds a value, as pymongo gives it, is apart from these milliseconds; of
        doubles whole microseconds, since they hold no more."""
        return 0

    @property
    def unusable(self) -> str:
        """Returns the words with which a message rejects a value that is not a time of this form."""
        return "no time: it is outside the years 1 to 9999"

    def is_whole_second(self, kind: int) -> bool:
        """Returns whether a value of this BSON type stands for its whole second."""
        return False

    def means_second(self, value: object) -> bool:
        """Returns whether a value, as pymongo gives it, stands for its whole second."""
        return False

    # Queries

    def ranges(
        self, field: str, first_ms: int, last_ms: int, *, is_end: bool = False, is_sound: bool = False
    ) -> list[Document]:
        """Returns queries for a time in this field from first to last, one for each type. An array, which
        breaks its model, may meet several; so may text that is no time, but where `is_sound`. `is_end`: a
        whole second counts to its end."""
        return self.roughly(field, first_ms, last_ms)

    def roughly(self, field: str, first_ms: int, last_ms: int) -> list[Document]:
        """Returns queries for a time from first to last, one for each type; texts of nearby days meet them
        too."""
        bounds = self._bounds(first_ms, last_ms)
        return [{field: {"$gte": low, behind: high}} for low, behind, high in bounds]

    def is_roughly(self, value: str, first_ms: int, last_ms: int) -> Document:
        """Returns `roughly` as an expression."""
        bounds = self._bounds(first_ms, last_ms)
        return {"$or": [{"$and": [{"$gte": [value, it]}, {end: [value, high]}]} for it, end, high in bounds]}

    def _bounds(self, first_ms: int, last_ms: int) -> list[Bounds]:
        """Returns the bounds of each type, dates first."""
        dates = Bounds(as_date(first_ms), "$lte", as_date(last_ms))
        return [dates, *self._other_bounds(first_ms, last_ms)]

    def _other_bounds(self, first_ms: int, last_ms: int) -> list[Bounds]:
        return []

    def lengths(self, ms: int) -> list[tuple[Bounds, float]]:
        """Returns the bounds of usable times, for each type of which the server tells how far two are apart,
        and so many milliseconds as it tells them."""
        return [(self._bounds(FIRST_MS, LAST_MS)[0], ms)]

    def untimed(self, field: str) -> list[Document]:
        """Returns queries for all that sorts before, between and after usable times. Unlike a query's, the
        comparisons of an expression go across types, and an index answers them: missing and null come before
        numbers, these before texts, ObjectIds, dates and Timestamps."""
        value, found = f"${field}", []
        after: list[Document] = []
        for low, behind, high in self._usable:
            found.append([*after, {"$lt": [value, low]}])
            after = [{"$gt" if behind == "$lte" else "$gte": [value, high]}]
        return [{"$expr": part[0] if len(part) == 1 else {"$and": part}} for part in (*found, after)]

    @property
    def _usable(self) -> list[Bounds]:
        """Returns the bounds of all that is a time, in the order of BSON types."""
        dates, *others = self._bounds(FIRST_MS, LAST_MS)
        return [*others, dates]

    @property
    def plain(self) -> TimeForm:
        """Returns the same form, with all texts taken for such as sort as time does."""
        return self

    @property
    def rough(self) -> TimeForm:
        """Returns a form that looks into no text, and may find texts up to a day off."""
        return self

    def not_plain(self, field: str) -> Document | None:
        """Returns a query for texts that don't sort as time does, or are no times; None where that does not
        matter."""
        return None

    def sorted_from(self, ms: int, direction: int, value: object) -> int:
        """Returns what no time is beyond, where this one is the first (or last) in the order of an index."""
        return ms

    @property
    def is_sorted(self) -> bool:
        """Returns whether an index on the field finds a range of times."""
        return True

    def sorts_under(self, collation: Document) -> bool:
        """Returns whether queries find the same times by an index with a collation."""
        return True

    @property
    def lead(self) -> str | None:
        """Returns the field, of several that a time lies in, by which queries narrow times down; None where
        there is none."""
        return None

    def indexed(self, field: str) -> str:
        """Returns the field of a time that an index has to be on."""
        return field

    def unsorted(self, field: str, first_ms: int, last_ms: int) -> UnsortedRange | None:
        """Returns how the server reads times that don't sort as texts do, which the last query of `ranges`
        finds; None where `ranges` has none."""
        return None

    def placed(self, value: object) -> int | None:
        """Returns the time at which queries find a value, as pymongo gives it."""
        return self.milliseconds(value)

    def placed_as_shown(self, ms: int) -> int:
        """Returns the time at which queries find what an `unsorted` expression gives."""
        return ms


class NumberForm(TimeForm):
    """Times that are numbers, counted in a unit from 1970 on."""

    kinds: ClassVar[tuple[int, ...]] = (DOUBLE, INT32, INT64)

    def __init__(self, unit: Unit) -> None:
        self.unit: Unit = unit

    def _read_other(self, group: Group, kind: int, elements: Sequence[Element]) -> NDArray[np.int64]:
        return from_numbers(group.read(elements, _DTYPES[kind]), self.unit)

    def _ms_of(self, value: object) -> int | None:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal128):
            return None
        number = float(str(value)) if isinstance(value, Decimal128) else value
        found = int(from_numbers(np.array([number]), self.unit)[0])
        return None if found == NO_TIME else found

    def finer(self, value: object, ms: int) -> int:
        """Returns by how many nanoseconds a number is apart from these milliseconds."""
        if not isinstance(value, int | float):
            return 0
        exact = (Fraction(value) / PER_SECOND[self.unit] - Fraction(ms, 1000)) * 10**9
        return round(exact / 1000) * 1000 if isinstance(value, float) else int(exact)

    @property
    def unusable(self) -> str:
        """Returns the words with which a message rejects a number."""
        return super().unusable + _MEANT_UNITS[self.unit]

    def is_whole_second(self, kind: int) -> bool:
        """Returns whether a number stands for its whole second: whole numbers of seconds do."""
        return self.unit == "s" and kind in (INT32, INT64)

    def means_second(self, value: object) -> bool:
        """Returns whether a number stands for its whole second."""
        return self.unit == "s" and isinstance(value, int)

    def ranges(
        self, field: str, first_ms: int, last_ms: int, *, is_end: bool = False, is_sound: bool = False
    ) -> list[Document]:
        """Returns queries for dates and numbers. `is_end`: a whole second counts to its end."""
        found = self.roughly(field, first_ms, last_ms)
        if self.unit == "s" and is_end:
            found[1][field]["$gte"] = min(as_number(first_ms, "s"), first_ms // 1000)
        return found

    def lengths(self, ms: int) -> list[tuple[Bounds, float]]:
        """Returns the bounds and the length of dates, and of numbers."""
        return [*super().lengths(ms), (self._other_bounds(FIRST_MS, LAST_MS)[0], as_number(ms, self.unit))]

    def _other_bounds(self, first_ms: int, last_ms: int) -> list[Bounds]:
        return [Bounds(as_number(first_ms, self.unit), "$lt", as_number(last_ms + 1, self.unit))]


class SecondForm(TimeForm):
    """Times that are values with a second in them, a number of 32 bits without a sign."""

    #: The number in a value's bytes, as numpy reads it, and where it begins.
    _SECOND: ClassVar[tuple[str, int]]

    def _read_other(self, group: Group, kind: int, elements: Sequence[Element]) -> NDArray[np.int64]:
        dtype, at = self._SECOND
        raw = read_bytes(group.matrix, [it.start + at for it in elements], 4)
        return np.ascontiguousarray(raw).view(dtype)[..., 0].astype(np.int64) * 1000

    def is_whole_second(self, kind: int) -> bool:
        """Returns whether a value stands for its whole second: all do that are no dates."""
        return kind in self.kinds

    def means_second(self, value: object) -> bool:
        """Returns whether a value stands for its whole second."""
        return not isinstance(value, datetime)

    def ranges(
        self, field: str, first_ms: int, last_ms: int, *, is_end: bool = False, is_sound: bool = False
    ) -> list[Document]:
        """Returns queries for dates, and for the other values. `is_end`: a second counts to its end."""
        found = self.roughly(field, first_ms, last_ms)
        if is_end:
            found[1] = self.roughly(field, first_ms // 1000 * 1000, last_ms)[1]
        return found

    def _other_bounds(self, first_ms: int, last_ms: int) -> list[Bounds]:
        low, high = (min(max(-(-ms // 1000), 0), _SECONDS) for ms in (first_ms, last_ms + 1))
        return [Bounds(self._from(low), *self._before(high))] if low < high else [self._NOTHING]

    def _from(self, second: int) -> Any:
        raise NotImplementedError

    def _before(self, second: int) -> tuple[str, Any]:
        return ("$lt", self._from(second)) if second < _SECONDS else ("$lte", self._LAST)

    _NOTHING: ClassVar[Bounds]
    _LAST: ClassVar[Any]


def second_of(identity: ObjectId) -> int:
    """Returns the second, since 1970, in which an ObjectId was made."""
    return int.from_bytes(identity.binary[:4], "big")


class ObjectIdForm(SecondForm):
    """Times that are the seconds in which ObjectIds were made."""

    kinds: ClassVar[tuple[int, ...]] = (OBJECT_ID,)
    _SECOND: ClassVar[tuple[str, int]] = (">u4", 0)
    _LAST: ClassVar[Any] = ObjectId("ff" * 12)
    _NOTHING: ClassVar[Bounds] = Bounds(_LAST, "$lt", _LAST)

    def _from(self, second: int) -> ObjectId:
        return ObjectId(second.to_bytes(4, "big") + bytes(8))

    def _ms_of(self, value: object) -> int | None:
        return second_of(value) * 1000 if isinstance(value, ObjectId) else None


class TimestampForm(SecondForm):
    """Times that are the seconds of BSON Timestamps, whatever their increment."""

    kinds: ClassVar[tuple[int, ...]] = (TIMESTAMP,)
    _SECOND: ClassVar[tuple[str, int]] = ("<u4", 4)
    _LAST: ClassVar[Any] = Timestamp(_SECONDS - 1, _SECONDS - 1)
    _NOTHING: ClassVar[Bounds] = Bounds(_LAST, "$lt", _LAST)

    def _from(self, second: int) -> Timestamp:
        return Timestamp(second, 0)

    def _ms_of(self, value: object) -> int | None:
        return value.time * 1000 if isinstance(value, Timestamp) else None

    @property
    def _usable(self) -> list[Bounds]:
        return self._bounds(FIRST_MS, LAST_MS)  # they sort behind dates


def usable(times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns these times; NO_TIME for those outside the years 1 to 9999. Writes into the array."""
    if times.size and (times.min() < FIRST_MS or times.max() > LAST_MS):
        times[(times < FIRST_MS) | (times > LAST_MS)] = NO_TIME
    return times


def any_of(queries: list[Document]) -> Document:
    """Returns a query that is met where one of these is."""
    return queries[0] if len(queries) == 1 else {"$or": queries}


DATES = TimeForm()
