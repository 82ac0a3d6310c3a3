"""Times that are text of a strptime format, in one field or in several; the form that a policy asks for.

Where texts sort as time does, a range of times is a range of texts. For other formats the server reads the
texts as `formats` does, all of them for each query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.types import DOUBLE, INT32, INT64, STRING
from bucketwise.buckets.fields.clocks import UTC_CLOCK, Clock, all_shown, clock_of, placed
from bucketwise.buckets.fields.formats import TimeFormat, format_of, time_expression
from bucketwise.buckets.fields.isoforms import Integers, IsoForm
from bucketwise.buckets.fields.timeforms import (
    DATES,
    Bounds,
    Document,
    NumberForm,
    ObjectIdForm,
    TimeForm,
    TimestampForm,
    UnsortedRange,
    usable,
)
from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS, LAST_TEXT, NO_TIME, PER_SECOND, Unit, as_date
from bucketwise.buckets.layouts.layout import Cell, Element, Group, by_size, by_type, read_bytes
from bucketwise.config.policies import Policy, TimeUnit

#: Bytes of a text's value around its characters: its length, and a zero.
_AROUND = 5
#: A text of more characters is no time.
_LONGEST = 120
_NUMBERS = {DOUBLE: "<f8", INT32: "<i4", INT64: "<i8"}
#: Whole numbers that doubles hold exactly.
_EXACT = 2.0**53


class FormattedForm(TimeForm):
    """Times that are text of a strptime format, which shows what a clock does."""

    kinds: ClassVar[tuple[int, ...]] = (STRING,)
    has_texts: ClassVar[bool] = True

    def __init__(self, format: TimeFormat, clock: Clock, *, is_plain: bool = False) -> None:
        """`is_plain`: all texts have all their digits."""
        self.format = format
        self.clock = UTC_CLOCK if format.is_absolute else clock
        self.is_plain = is_plain

    @property
    def types(self) -> tuple[int, ...]:
        """Returns the BSON types that a time may have: where texts are of digits alone, numbers as well."""
        return (*super().types, *(_NUMBERS if self.format.is_of_digits else ()))

    def _read_other(self, group: Group, kind: int, elements: Sequence[Element]) -> Integers:
        if kind != STRING:
            numbers = _written(group.read(elements, _NUMBERS[kind]))
            texts = np.ascontiguousarray(numbers).view(np.uint8).reshape(numbers.size, -1)
            return self.format.parse(texts, self.clock).reshape(numbers.shape)
        found = np.full((len(group.matrix), len(elements)), NO_TIME)
        for size, at in by_size(elements).items():
            if 0 < (width := size - _AROUND) <= _LONGEST:
                texts = read_bytes(group.matrix, [elements[i].start + 4 for i in at], width)
                times = self.format.parse(texts.reshape(-1, width), self.clock)
                found[:, at] = times.reshape(len(found), len(at))
        return found

    def _ms_of(self, value: object) -> int | None:
        return self._read_text(value, self.clock)

    def _read_text(self, value: object, clock: Clock) -> int | None:
        text = _text_of(value) if self.format.is_of_digits else value
        raw = text.encode() if isinstance(text, str) else b""
        if not 0 < len(raw) <= _LONGEST:
            return None
        found = self.format.parse(np.frombuffer(raw, dtype=np.uint8)[None, :], clock)
        ms = int(usable(found)[0])
        return None if ms == NO_TIME else ms

    def finer(self, value: object, ms: int) -> int:
        """Returns the nanoseconds of a text beyond its milliseconds."""
        digits = self.format.fraction(value) if isinstance(value, str) else ""
        return int(digits.ljust(9, "0")) % 1_000_000

    @property
    def unusable(self) -> str:
        """Returns the words with which a message rejects a text."""
        skipped = "" if self.clock.is_utc else f", that clocks of {self.clock.name} have shown"
        return f'no time: it is no text of the form "{self.format.text}", of the years 1 to 9999{skipped}'

    @property
    def is_sorted(self) -> bool:
        """Returns whether an index on the field finds a range of times."""
        return self.format.is_sorted

    def sorts_under(self, collation: Document) -> bool:
        """Returns whether queries find the same times by an index with a collation."""
        return self.is_sorted and self.format.sorts_under(collation)

    @property
    def plain(self) -> TimeForm:
        """Returns the same form, with all texts taken for such as have all their digits."""
        return FormattedForm(self.format, self.clock, is_plain=self.is_sorted)

    def not_plain(self, field: str) -> Document | None:
        """Returns a query for texts that lack digits; None where the format does not sort anyway."""
        return self._odd(field) if self.is_sorted else None

    def _odd(self, field: str) -> Document:
        return {field: {"$type": "string", "$not": self.format.sorting}}

    def ranges(
        self, field: str, first_ms: int, last_ms: int, *, is_end: bool = False, is_sound: bool = False
    ) -> list[Document]:
        """Returns queries for dates, for texts in order, and for others, which the server reads."""
        found = super().roughly(field, first_ms, last_ms)[:1]
        if self.is_sorted:
            low, behind, high = self._sorted_bounds(first_ms, last_ms)
            sound: Document = {"$expr": {"$gt": [self._text_time(field), None]}} if is_sound else {}
            texts: Document = {field: {"$gte": low, behind: high}, **sound}
            if not self.is_plain:
                texts[field]["$regex"] = self.format.sorting
            found += [{**it, **sound} for it in self._numbers(field, low, high)]
            found.append(texts)
        unsorted = self.unsorted(field, first_ms, last_ms)
        return found if unsorted is None else [*found, unsorted.query]

    def _numbers(self, field: str, low: str, high: str) -> list[Document]:
        """Returns a query for the numbers between two texts; none where numbers are no times."""
        return [{field: self.format.numbers(low, high)}] if self.format.is_of_digits else []

    def _sorted_bounds(self, first_ms: int, last_ms: int) -> Bounds:
        first, last = all_shown(self.clock, first_ms, last_ms)
        low = "" if first_ms <= FIRST_MS else self.format.rendered(first)
        return Bounds(low, "$lt", LAST_TEXT if last_ms >= LAST_MS else self.format.rendered(last + 1))

    def roughly(self, field: str, first_ms: int, last_ms: int) -> list[Document]:
        """Returns queries for dates, and for texts: all of them where they don't sort as time does."""
        dates = super().roughly(field, first_ms, last_ms)[0]
        if not self.is_sorted:
            return [dates, {field: {"$type": "string"}}]
        low, behind, high = self._sorted_bounds(first_ms, last_ms)
        numbers = self._numbers(field, low, high)
        return [dates, *numbers, {field: {"$gte": low, behind: high}}, self._odd(field)]

    def is_roughly(self, value: str, first_ms: int, last_ms: int) -> Document:
        """Returns `roughly` as an expression."""
        dates = Bounds(as_date(first_ms), "$lte", as_date(last_ms))
        inside = {"$and": [{"$gte": [value, dates.low]}, {dates.behind: [value, dates.high]}]}
        numbers = [{"$isNumber": value}] if self.format.is_of_digits else []
        return {"$or": [inside, *numbers, {"$eq": [{"$type": value}, "string"]}]}

    @property
    def _usable(self) -> list[Bounds]:
        """Returns all texts and dates, and numbers with as many digits as texts have."""
        found = [Bounds("", "$lt", {"$literal": {}}), *self._bounds(FIRST_MS, LAST_MS)]
        if self.format.is_of_digits:
            numbers = self.format.numbers("", "")
            found.insert(0, Bounds(numbers["$gte"], "$lt", numbers["$lt"]))
        return found

    def untimed(self, field: str) -> list[Document]:
        """Returns queries for all that is neither a date nor a text of the format; of plain ones, what is of
        another type."""
        if self.is_plain:
            return super().untimed(field)
        dates = [{field: {"$type": "date", "$lt": as_date(FIRST_MS)}}]
        dates.append({field: {"$type": "date", "$gt": as_date(LAST_MS)}})
        return [{field: {"$not": {"$type": "date"}}, "$expr": self._is_no_time(field)}, *dates]

    def _is_no_time(self, field: str) -> Document:
        """Returns an expression for whether a text is none of the format, of a time that has a name."""
        outside = [{"$lt": ["$$time", as_date(FIRST_MS)]}, {"$gt": ["$$time", as_date(LAST_MS)]}]
        found = [{"$eq": ["$$time", None]}, *(outside if self.format.is_absolute else [])]
        return {"$let": {"vars": {"time": self._text_time(field)}, "in": {"$or": found}}}

    def unsorted(self, field: str, first_ms: int, last_ms: int) -> UnsortedRange | None:
        """Returns how the server reads times that don't sort as texts do."""
        if self.is_plain:
            return None
        return self._unsorted(self._odd(field) if self.is_sorted else {}, field, first_ms, last_ms)

    def _unsorted(self, narrowed: Document, field: str, first_ms: int, last_ms: int) -> UnsortedRange:
        first, last = map(as_date, all_shown(self.clock, first_ms, last_ms))
        return UnsortedRange(narrowed, self._text_time(field), first, last)

    def placed(self, value: object) -> int | None:
        """Returns the time of a value; of a text that its clock skipped, that of the change."""
        found = self.milliseconds(value)
        shown = self._read_text(value, UTC_CLOCK) if found is None else None
        return found if shown is None else placed(self.clock, shown)

    def placed_as_shown(self, ms: int) -> int:
        """Returns the time at which queries find what `unsorted` gives."""
        return placed(self.clock, ms)

    # What the server reads

    def _text_time(self, field: str) -> Document:
        """Returns an expression for what the clock showed, as if it were one of UTC; null for what is no
        text of the format."""
        return time_expression(self.format, self._text(field))

    def _text(self, field: str) -> Document:
        value = f"${field}"
        if self.format.is_of_digits:
            return _as_text(value)
        return {"$cond": [{"$eq": [{"$type": value}, "string"]}, value, None]}


class Lead(NamedTuple):
    """The field of several that tells the day, or more of a time, in values that sort as time does."""

    field: str
    format: TimeFormat

    def within(self, first: int, last: int) -> Document:
        """Returns a query for the values of times from first to last, milliseconds as a clock shows them."""
        low = "" if first <= FIRST_MS else self.format.rendered(first - self.format.step_ms + 1)
        high = LAST_TEXT if last >= LAST_MS else self.format.rendered(last + 1)
        texts = {self.field: {"$gte": low, "$lt": high}}
        if not self.format.is_of_digits:
            return texts
        return {"$or": [texts, {self.field: self.format.numbers(low, high)}]}


def _lead_of(fields: tuple[str, ...], format: TimeFormat) -> Lead | None:
    """Returns the first field that alone narrows times down; None where none does: with an offset from UTC
    beside it, days of one place would be compared with those of another."""
    pieces = format.text.split()
    if len(pieces) != len(fields) or "z" in format.letters:
        return None
    found = ((field, format_of(it)) for field, it in zip(fields, pieces, strict=True))
    return next((Lead(*it) for it in found if it[1].is_sorted and "d" in it[1].letters), None)


class JoinedForm(FormattedForm):
    """Times that lie in several fields, whose values are joined by spaces: texts, and whole numbers."""

    kinds: ClassVar[tuple[int, ...]] = (STRING, DOUBLE, INT32, INT64)

    def __init__(
        self,
        fields: tuple[str, ...],
        format: TimeFormat,
        clock: Clock,
        cells: Sequence[Cell] = (),
        *,
        is_plain: bool = False,
    ) -> None:
        """`cells`: where the fields lie in one layout. `is_plain`: all texts of the field that narrows times
        down have all their digits."""
        super().__init__(format, clock, is_plain=is_plain)
        self._fields = fields
        self._cells = cells
        self._lead = _lead_of(fields, format)

    @property
    def types(self) -> tuple[int, ...]:
        """Returns the BSON types that each of the fields may have."""
        return self.kinds

    @property
    def unusable(self) -> str:
        """Returns the words with which a message rejects values."""
        return super().unusable.replace("it is no text", f"{' '.join(self._fields)} is no text")

    @property
    def is_sorted(self) -> bool:
        """Returns whether an index on one of the fields narrows a range of times down."""
        return self._lead is not None

    @property
    def lead(self) -> str | None:
        """Returns the field by which times are narrowed down."""
        return self._lead.field if self._lead and self.is_plain else None

    def indexed(self, field: str) -> str:
        """Returns the field that an index has to be on."""
        return self._lead.field if self._lead else field

    def fields(self, field: str) -> tuple[str, ...]:
        """Returns the fields that a time lies in."""
        return self._fields

    def at(self, cells: Sequence[Cell]) -> TimeForm:
        """Returns the form of the times of one layout."""
        return JoinedForm(self._fields, self.format, self.clock, cells)

    def value_in(self, document: bytes, field: str) -> Any:
        """Returns the values of all fields."""
        return [TimeForm.value_in(self, document, it) for it in self._fields]

    @property
    def plain(self) -> TimeForm:
        """Returns the same form, with times narrowed down by one of the fields, if one can."""
        return JoinedForm(self._fields, self.format, self.clock, self._cells, is_plain=self.is_sorted)

    def not_plain(self, field: str) -> Document | None:
        """Returns a query for texts by which times are not narrowed down; None where none ever are."""
        if self._lead is None:
            return None
        return {self._lead.field: {"$type": "string", "$not": self._lead.format.sorting}}

    def expression(self, document: str, field: str) -> Any:
        """Returns the expression of the values of all fields."""
        return [f"{document}.{it}" for it in self._fields]

    def read(self, group: Group, cells: Sequence[Cell]) -> NDArray[np.int64]:
        """Returns times as n × 1 milliseconds."""
        joined: Any = _texts_of(group, self._cells[0])
        for cell in self._cells[1:]:
            joined = np.strings.add(np.strings.add(joined, b" "), _texts_of(group, cell))
        width = joined.dtype.itemsize
        if not 0 < width <= _LONGEST:
            return np.full((len(group.matrix), 1), NO_TIME)
        texts = np.ascontiguousarray(joined).view(np.uint8).reshape(-1, width)
        return usable(self.format.parse(texts, self.clock))[:, None]

    def milliseconds(self, value: object) -> int | None:
        """Returns the milliseconds of the values of all fields, as pymongo gives them; None where these are
        no time."""
        return self._ms_of(_joined(value))

    def placed(self, value: object) -> int | None:
        """Returns the time of the values of all fields; of such as the clock skipped, that of the change."""
        return super().placed(_joined(value)) if isinstance(value, list) else None

    def ranges(
        self, field: str, first_ms: int, last_ms: int, *, is_end: bool = False, is_sound: bool = False
    ) -> list[Document]:
        """Returns a query for the time that the values of all fields are."""
        return [self.unsorted(field, first_ms, last_ms).query]

    def roughly(self, field: str, first_ms: int, last_ms: int) -> list[Document]:
        """Returns the same query."""
        return self.ranges(field, first_ms, last_ms)

    def untimed(self, field: str) -> list[Document]:
        """Returns a query for what is no text of the format."""
        return [{"$expr": self._is_no_time(field)}]

    def unsorted(self, field: str, first_ms: int, last_ms: int) -> UnsortedRange:
        """Returns how the server reads the time that the values of all fields are."""
        shown = all_shown(self.clock, first_ms, last_ms)
        narrowed = self._lead.within(*shown) if self._lead and self.is_plain else {}
        return self._unsorted(narrowed, field, first_ms, last_ms)

    def _text(self, field: str) -> Document:
        return {"$concat": [piece for it in self._fields for piece in (" ", _as_text(f"${it}"))][1:]}


def _joined(value: object) -> str | None:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return None
    texts = [_text_of(it) for it in value]
    return None if None in texts else " ".join(map(str, texts))


def _text_of(value: object) -> str | None:
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return str(int(value))
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return str(int(value)) if is_whole else value if isinstance(value, str) else None  # type: ignore[call-overload]


def _texts_of(group: Group, cell: Cell) -> NDArray[np.bytes_]:
    """Returns the values of one field as texts; nothing for a number that is not whole."""
    size = len(group.matrix)
    found: Any = np.zeros(size, dtype="S1")
    for kind, _, elements in by_type([cell]):
        (element,) = elements
        if kind == STRING:
            width = element.size - _AROUND
            if not 0 < width <= _LONGEST:
                continue
            raw = np.ascontiguousarray(read_bytes(group.matrix, [element.start + 4], width))
            texts: Any = raw.reshape(size, width).view(f"S{width}")[:, 0]
        else:
            texts = _written(group.read(elements, _NUMBERS[kind])[:, 0])
        found = np.where(group.where((element,)), texts, found)
    return np.asarray(found)


def _written(numbers: NDArray[Any]) -> NDArray[np.bytes_]:
    """Returns whole numbers as texts; nothing for others."""
    if numbers.dtype.kind != "f":
        return numbers.astype("S20")
    is_whole = (np.abs(numbers) < _EXACT) & (numbers == np.trunc(numbers))
    return np.where(is_whole, np.where(is_whole, numbers, 0).astype(np.int64).astype("S20"), b"")


def _as_text(value: str) -> Document:
    """Returns an expression for a text or whole number as text; null for other values."""
    kind = {"$type": value}
    is_exact = [{"$gt": [value, -_EXACT]}, {"$lt": [value, _EXACT]}]  # NaN sorts before all numbers
    is_whole = {"$and": [*is_exact, {"$eq": [value, {"$trunc": value}]}]}
    whole = {"$cond": [is_whole, {"$toString": {"$toLong": value}}, None]}
    branches = [
        {"case": {"$eq": [kind, "string"]}, "then": value},
        {"case": {"$in": [kind, ["int", "long"]]}, "then": {"$toString": value}},
        {"case": {"$eq": [kind, "double"]}, "then": whole},
    ]
    return {"$switch": {"branches": branches, "default": None}}


_FORMS: dict[TimeUnit, TimeForm] = {unit: NumberForm(unit) for unit in get_args(Unit)}
_FORMS |= {"date": DATES, "objectid": ObjectIdForm(), "timestamp": TimestampForm()}


def form_of(unit: TimeUnit, format: str | None = None, zone: str = "UTC") -> TimeForm:
    """Returns the form of times of a unit, or of text of a strptime format. Dates are times in each of them.
    `zone`: that of the clock that text without an offset shows."""
    clock = clock_of(zone)
    if format is not None:
        return FormattedForm(format_of(format, _unit_of(unit)), clock)
    return IsoForm(clock) if unit == "iso" else _FORMS[unit]


def own_form_of(policy: Policy, unit: TimeUnit, format: str | None) -> TimeForm:
    """Returns the form of a bucket's own times, which may lie in several fields."""
    if len(policy.time_fields) == 1 or format is None:
        return form_of(unit, format, policy.timezone)
    return JoinedForm(policy.time_fields, format_of(format, _unit_of(unit)), clock_of(policy.timezone))


def _unit_of(unit: TimeUnit) -> Unit:
    """Returns the unit of `%s`."""
    return unit if unit in PER_SECOND else "s"
