"""Times that samples tell by numbers which count from the start of their bucket, or which say what its clock
shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from bson.decimal128 import Decimal128
from numpy.typing import NDArray

from bucketwise.buckets.bson.types import DOUBLE, INT32, INT64
from bucketwise.buckets.fields.clocks import clock_of
from bucketwise.buckets.fields.timeforms import TimeForm
from bucketwise.buckets.fields.times import FIRST_MS, LAST_MS, NO_TIME, PER_SECOND
from bucketwise.buckets.fields.values import read_values
from bucketwise.buckets.layouts.layout import Cell, Group

Document = dict[str, Any]
Times = NDArray[np.int64]
#: Milliseconds of a unit, and how many of it there are in the next larger one.
_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_COUNT = {"ms": 1_000, "s": 60, "m": 60, "h": 24}
#: The unit in which a clock's largest number is counted, as MongoDB names it.
_WITHIN = {"ms": "second", "s": "minute", "m": "hour", "h": "day"}
#: Times are looked up by the server with so much to spare: it rounds otherwise, and knows no skipped hours.
_SPARE_MS, _CHANGE_MS = 1_000, 2 * 3_600_000


class BucketStart(NamedTuple):
    """The field of a bucket's start, and the form of what stands there."""

    field: str
    form: TimeForm


class ElapsedForm(TimeForm):
    """Numbers of these units, the largest first. `is_clock`: they are what the clock of a zone shows within
    the minute, hour or day in which the bucket starts; else they count from its start."""

    kinds: ClassVar[tuple[int, ...]] = (DOUBLE, INT32, INT64)

    def __init__(
        self, units: tuple[str, ...], *, is_clock: bool, zone: str, further: tuple[Sequence[Cell], ...] = ()
    ) -> None:
        """`further`: where the numbers of the units after the first lie."""
        self.units, self.is_clock, self.zone, self.further = units, is_clock, zone, further

    @classmethod
    def of(cls, units: tuple[str, ...], zone: str) -> ElapsedForm:
        """Returns the form of these units of a policy, such as ("+ms",) or ("m", "s")."""
        is_clock = not units[0].startswith("+")
        return cls(tuple(it.removeprefix("+") for it in units), is_clock=is_clock, zone=zone)

    def beside(self, further: tuple[Sequence[Cell], ...]) -> ElapsedForm:
        """Returns the form of the times of one layout, where these are the cells of the units after the
        first."""
        return ElapsedForm(self.units, is_clock=self.is_clock, zone=self.zone, further=further)

    @property
    def types(self) -> tuple[int, ...]:
        """Returns the BSON types that such a number may have."""
        return self.kinds

    @property
    def unusable(self) -> str:
        """Returns the words with which a message rejects what is no time of this form."""
        if not self.is_clock:
            return "no time: it does not count from the bucket's start to a time of the years 1 to 9999"
        ranges = ", ".join(f"{unit} from 0 to {_COUNT[unit] - 1}" for unit in self.units)
        return f"no time: clocks show {ranges}, and no hour that they skip"

    def read(self, group: Group, cells: Sequence[Cell]) -> Times:
        """Returns the milliseconds that each reading's numbers make, (n, k); NO_TIME where they make none."""
        return self._total([read_values(group, it)[0] for it in (cells, *self.further)])

    def after(self, start: int, values: Iterable[object]) -> list[int]:
        """Returns the times of a bucket's samples by their values, as pymongo gives them: each a number, or
        one of each unit. Those that are none are left out."""
        rows = [it if isinstance(it, tuple) else (it,) for it in values]
        rows = [it for it in rows if len(it) == len(self.units)]
        columns = [np.array([[_number(row[i]) for row in rows]]) for i in range(len(self.units))]
        times = self.since(np.array([start], dtype=np.int64), self._total(columns))
        return [it for it in times[0].tolist() if it != NO_TIME]

    def since(self, starts: Times, counted: Times) -> Times:
        """Returns the times of readings, (n, k), by the starts of their buckets, (n,), and what `read` has
        found."""
        base, clock = starts, clock_of(self.zone)
        if self.is_clock:
            shown = clock.shown(starts)
            within = shown % (_MS[self.units[0]] * _COUNT[self.units[0]])
            base = shown - within if self.units[0] == "h" else starts - within
        untimed = (starts[:, None] == NO_TIME) | (counted == NO_TIME)
        times = np.where(untimed, NO_TIME, base[:, None] + np.where(untimed, 0, counted))
        if self.is_clock and self.units[0] == "h" and not clock.is_utc:
            times = clock.instants(times)
        return np.where((times < FIRST_MS) | (times > LAST_MS), NO_TIME, times)

    def inexact(self, group: Group, cells: Sequence[Cell]) -> int:
        """Returns how many readings have a time that is no whole millisecond."""
        columns = [read_values(group, it)[0] for it in (cells, *self.further)]
        exact = sum(column * _MS[unit] for column, unit in zip(columns, self.units, strict=True))
        return int((np.isfinite(exact) & (exact != np.floor(exact))).sum())

    def _total(self, columns: Sequence[NDArray[np.float64]]) -> Times:
        total = np.zeros(columns[0].shape)
        sound = np.ones(total.shape, dtype=np.bool_)
        with np.errstate(invalid="ignore", over="ignore"):
            for at, (unit, column) in enumerate(zip(self.units, columns, strict=True)):
                total += column * _MS[unit]
                if self.is_clock:
                    sound &= (column >= 0) & (column < _COUNT[unit])
                    sound &= (column == np.floor(column)) | (at == len(columns) - 1)
            sound &= np.abs(total) <= LAST_MS - FIRST_MS
            rounded = np.floor(np.where(sound, total, 0) + 0.5).astype(np.int64)
        return np.where(sound, rounded, NO_TIME)

    def query(self, start: BucketStart, times: list[Any], held: Document, span: tuple[int, int]) -> Document:
        """Returns a query for buckets with a sample in the span, first to last: the server looks into each.
        `times`: the expressions of a sample's numbers, where `held` is what holds the samples."""
        base = _milliseconds(start.form, f"${start.field}")
        if self.is_clock:
            trunc = {"date": {"$toDate": base}, "unit": _WITHIN[self.units[0]], "timezone": self.zone}
            base = {"$toLong": {"$dateTrunc": trunc}}
        parts = [
            {"$cond": [{"$isNumber": it}, {"$multiply": [it, _MS[unit]]}, None]}
            for it, unit in zip(times, self.units, strict=True)
        ]
        spare = _CHANGE_MS if self.is_clock and self.units[0] == "h" and self.zone != "UTC" else _SPARE_MS
        within = [{"$gte": ["$$at", span[0] - spare]}, {"$lte": ["$$at", span[1] + spare]}]
        of_sample = {"$let": {"vars": {"at": {"$add": ["$$start", *parts]}}, "in": {"$and": within}}}
        found = {"$anyElementTrue": [{"$map": {"input": held, "in": of_sample}}]}
        return {"$expr": {"$let": {"vars": {"start": base}, "in": found}}}


def _milliseconds(form: TimeForm, value: str) -> Document:
    """Returns the expression of a time's milliseconds; null where it is none."""
    text = {"$convert": {"input": value, "to": "date", "onError": None, "onNull": None}}
    number: Any = {"$toLong": {"$multiply": [value, 1000 / PER_SECOND[form.unit]]}} if form.unit else None
    branches = [
        {"case": {"$eq": [{"$type": value}, "date"]}, "then": {"$toLong": value}},
        {"case": {"$isNumber": value}, "then": number},
        {"case": {"$eq": [{"$type": value}, "string"]}, "then": {"$toLong": text}},
    ]
    return {"$switch": {"branches": branches, "default": None}}


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal128):
        return np.nan
    return float(str(value)) if isinstance(value, Decimal128) else float(value)
