"""The rules for a bucket, and the times that a live one may have. One that breaks them is reported with the
field and the reason, and never repaired. A wrong unit, or a clock that was never set, must not be archived.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.types import ARRAY, DOCUMENT, TYPE_NAMES
from bucketwise.buckets.columns import StateColumn, ValueKind
from bucketwise.buckets.fields.timeforms import TimeForm
from bucketwise.buckets.fields.times import (
    DAY_MS,
    FIRST_MS,
    LAST_MS,
    NO_TIME,
    PER_SECOND,
    Unit,
    as_date,
    as_ms,
    as_text,
)
from bucketwise.buckets.fields.values import read_values
from bucketwise.buckets.layouts.layout import Element, Flags, Group, by_type
from bucketwise.buckets.models.sampled import unlike
from bucketwise.buckets.models.shape import Shape
from bucketwise.config.policies import Policy
from bucketwise.config.times import read_instant, read_latest

#: After all times.
_NEVER = np.int64(2**63 - 1)
#: An application's running sum may differ from ours by rounding: relative to the sum of magnitudes.
_SUM_TOLERANCE = 1e-9
_UNTOLD = "no time: it holds no samples, and no field tells when the bucket starts"
_MEANT = "let value_fields say what is in it, or name the field in nonnumeric_ok"

Times = NDArray[np.int64]
Figures = NDArray[np.float64]


class ReadingGroup(NamedTuple):
    """The readings of a group of documents: n documents with room for k readings each."""

    group: Group
    shape: Shape
    units: NDArray[np.int64]  # n: index of the bucket in the batch
    overflow: bool
    time: Times  # n × k
    values: dict[str, tuple[NDArray[np.float64], NDArray[np.uint8]]]  # n × k: value, kind
    present: Flags | None  # n × k: of a union, which readings a document holds
    places: NDArray[np.int64] | None = None  # n: of documents that hold one sample of a bucket, which
    states: Mapping[str, StateColumn] = MappingProxyType({})  # n × k

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Returns how many readings each document holds, (n,)."""
        if self.present is None:
            return np.full(len(self.units), self.time.shape[1])
        return np.asarray(self.present.sum(axis=1))


class Faults:
    """The first fault found in each bucket of a batch."""

    def __init__(self, size: int) -> None:
        self.sound = np.ones(size, dtype=np.bool_)
        self.reasons: dict[int, tuple[str, str]] = {}

    def add(self, units: NDArray[np.integer], field: str, reason: str | Callable[[int], str]) -> None:
        """Records a fault of buckets. `reason`: the text, or a function that gives it for a position in
        `units`."""
        for i, unit in enumerate(units.tolist()):
            if self.sound[unit]:
                self.sound[unit] = False
                self.reasons[unit] = (field, reason if isinstance(reason, str) else reason(i))


class BucketSpans(NamedTuple):
    """The time that each bucket of a batch says it covers, first to last; NO_TIME if it does not say so."""

    first: Times
    last: Times

    @classmethod
    def unknown(cls, size: int) -> BucketSpans:
        """Returns the spans of `size` buckets before any of them is known."""
        return cls(np.full(size, NO_TIME), np.full(size, NO_TIME))

    def fill(self, group: Group, shape: Shape, times: Times | None, faults: Faults) -> None:
        """Sets the spans of one group's buckets from its documents, and from the times of their readings, (n,
        k), where they lie in them."""
        if shape.start is not None and shape.slot_times is not None:
            first = shape.own_form.read(group, [(shape.start,)])[:, 0]
            _check_start(group, shape, first, faults)
            ends = shape.slot_times.ends(first)
            last = np.where(first == NO_TIME, NO_TIME, np.minimum(ends - 1, LAST_MS))
        elif shape.bounds is not None:
            assert times is not None
            first, last = _bounds(group, shape, times)
            _check_bounds(group, shape, (first, last), times, faults)
        else:
            assert shape.times is not None and times is not None
            first = last = times[:, 0]
            _check_present(group.members, first, shape.times[0][0], shape.form, faults)
        self.first[group.members], self.last[group.members] = first, last


def _bounds(group: Group, shape: Shape, times: Times) -> tuple[Times, Times]:
    """Returns the first and last time of each document. Where no field tells one, its samples do; without
    any, the other."""
    assert shape.bounds is not None
    told = [it for it in shape.bounds if it is not None]
    own = shape.own_form.read(group, [(it,) for it in told])
    (start, end), latest = shape.bounds, times.max(axis=1, initial=NO_TIME)
    if end is None:
        last = latest if start is None else np.maximum(own[:, 0], latest)
    else:
        last = own[:, -1]
        if shape.own_form.is_whole_second(end.type):
            last = np.where(last == NO_TIME, NO_TIME, last + 999)
    if start is not None:
        return own[:, 0], last
    first = np.where(times == NO_TIME, _NEVER, times).min(axis=1, initial=_NEVER)
    return np.where(first == _NEVER, last, first), last


def _iso(ms: int) -> str:
    return as_date(int(ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _name(element: Element) -> str:
    return ".".join(element.path)


def _check_present(
    units: NDArray[np.int64], times: Times, element: Element, form: TimeForm, faults: Faults
) -> None:
    faults.add(units[times == NO_TIME], _name(element), form.unusable)


def _check_start(group: Group, shape: Shape, first: Times, faults: Faults) -> None:
    assert shape.start is not None and shape.slot_times is not None
    _check_present(group.members, first, shape.start, shape.own_form, faults)
    misplaced = np.flatnonzero((first != NO_TIME) & shape.slot_times.misplaced(first))
    rule = shape.slot_times.start_rule
    faults.add(
        group.members[misplaced],
        _name(shape.start),
        lambda i: f"the bucket's start {_iso(first[misplaced[i]])} is not {rule}",
    )


def _check_bounds(
    group: Group, shape: Shape, span: tuple[Times, Times], readings: Times, faults: Faults
) -> None:
    assert shape.bounds is not None
    first, last = span
    for times, element in zip((first, last), shape.bounds, strict=True):
        if element is not None:
            _check_present(group.members, times, element, shape.own_form, faults)
    start, end = shape.bounds
    if start is None and end is None:
        held = shape.present(group)
        empty = np.full(len(first), not readings.shape[1]) if held is None else ~held.any(axis=1)
        faults.add(group.members[empty], shape.holder, _UNTOLD)
    reverse = np.flatnonzero(first > last)
    reason = "the bucket's first time {} is after its last {}"
    faults.add(
        group.members[reverse],
        shape.holder if start is None else _name(start),
        lambda i: reason.format(_iso(first[reverse[i]]), _iso(last[reverse[i]])),
    )


def check_times(piece: ReadingGroup, span: BucketSpans, policy: Policy, faults: Faults) -> None:
    """Reports buckets with a reading that has no time, or one outside the span that the bucket tells."""
    cells = piece.shape.times
    if cells is None:
        _check_slots(piece, span, policy, faults)
        return
    if not piece.time.size:
        return
    prefix = _prefix(piece, policy)
    first, last, present = span.first[piece.units], span.last[piece.units], piece.present
    first = np.maximum(first, NO_TIME + 1)  # what is no time is outside, also where no other tells the span
    is_late = piece.time.max(axis=1) > last  # NO_TIME, and so what is absent, is before everything
    if present is None:
        is_early = piece.time.min(axis=1) < first
    else:
        is_early = ((piece.time < first[:, None]) & present).any(axis=1)
    for row in np.flatnonzero(is_early | is_late).tolist():
        outside = (piece.time[row] < first[row]) | (piece.time[row] > last[row])
        position = int(np.flatnonzero(outside if present is None else outside & present[row])[0])
        time, reason = piece.time[row, position], piece.shape.form.unusable
        if time != NO_TIME:
            bounds = f"{_iso(first[row])} to {_iso(last[row])}"
            reason = f"the reading at {_iso(time)} is outside the bucket's bounds, {bounds}"
        faults.add(piece.units[row : row + 1], prefix + _name(cells[position][0]), reason)


def _check_slots(piece: ReadingGroup, span: BucketSpans, policy: Policy, faults: Faults) -> None:
    """Reports buckets with a reading in a slot that they don't have."""
    shape, starts = piece.shape, span.first[piece.units]
    assert shape.slot_times is not None and shape.offsets is not None
    if not shape.slot_times.differ:
        return
    lacking = (piece.time == NO_TIME) & (starts != NO_TIME)[:, None]
    if piece.present is not None:
        lacking &= piece.present
    for row in np.flatnonzero(lacking.any(axis=1)).tolist():
        position = int(np.flatnonzero(lacking[row])[0])
        cell = next(cell for cells in shape.values.values() if (cell := cells[position]))
        why = shape.slot_times.why_lacking(int(starts[row]), int(shape.offsets[position]))
        reason = f"the bucket of {_iso(starts[row])} has no such slot: {why}"
        faults.add(piece.units[row : row + 1], _prefix(piece, policy) + _name(cell[0]), reason)


def _check_lengths(piece: ReadingGroup, faults: Faults) -> None:
    """Reports buckets of a union whose arrays side by side are not alike in their places."""
    lengths = piece.lengths
    if piece.present is None:
        return
    for name, cells in piece.shape.parallel.items():
        held = piece.group.holds(cells)
        held = np.ones((len(lengths), len(cells)), dtype=np.bool_) if held is None else held
        counts, common = held.sum(axis=1), min(piece.time.shape[1], held.shape[1])
        is_unlike = (held[:, :common] != piece.present[:, :common]).any(axis=1) | (counts != lengths)
        for row in np.flatnonzero(is_unlike).tolist():
            reason = unlike(int(counts[row]), piece.shape.holder, int(lengths[row]))
            faults.add(piece.units[row : row + 1], name, reason)


def _prefix(piece: ReadingGroup, policy: Policy) -> str:
    """Returns what goes before the name of a field in a message."""
    return f"{policy.overflow.collection}: " if policy.overflow and piece.overflow else ""


def check_values(piece: ReadingGroup, policy: Policy, faults: Faults) -> None:
    """Reports buckets with a sub-document or array where a value field needs a number, and those with arrays
    side by side that are unlike."""
    _check_lengths(piece, faults)
    for name in policy.numeric_names:
        for kind, _, elements in by_type(piece.shape.values[name]):
            if kind in (DOCUMENT, ARRAY):
                reason = f"{TYPE_NAMES[kind]} stands where a number is needed; {_MEANT}"
                for element in elements:
                    holders = piece.group.where((element,))
                    faults.add(piece.units[holders], _prefix(piece, policy) + _name(element), reason)


def check_totals(pieces: list[ReadingGroup], faults: Faults) -> None:
    """Reports buckets whose count or sums differ from those of the array (their own, or with overflow). A sum
    may include NaN and ±Inf, or leave them out."""
    summed = dict.fromkeys(name for piece in pieces for name in piece.shape.sums)
    if not summed and all(piece.shape.count is None for piece in pieces):
        return
    size = len(faults.sound)
    lengths = [piece.lengths.astype(np.float64) for piece in pieces]
    counts = _with_overflow(pieces, size, lengths)
    for piece in pieces:
        if piece.shape.count is not None:
            _compare(piece, piece.shape.count, counts, np.zeros(size), "the array holds {} samples", faults)
    for name in summed:
        values = [piece.values[name] for piece in pieces]
        finite = [np.where(kinds == ValueKind.FINITE, numbers, 0.0) for numbers, kinds in values]
        numeric = [
            np.where(kinds == ValueKind.NONFINITE, numbers, f)
            for (numbers, kinds), f in zip(values, finite, strict=True)
        ]
        with np.errstate(over="ignore", invalid="ignore"):
            sums = [
                *_with_overflow(pieces, size, [numbers.sum(axis=1) for numbers in finite]),
                *_with_overflow(pieces, size, [numbers.sum(axis=1) for numbers in numeric]),
            ]
            _, scale = _with_overflow(pieces, size, [np.abs(numbers).sum(axis=1) for numbers in finite])
        for piece in pieces:
            if name in piece.shape.sums:
                element, slack = piece.shape.sums[name], scale * _SUM_TOLERANCE
                _compare(piece, element, sums, slack, "the samples sum to {}", faults)


def _with_overflow(pieces: list[ReadingGroup], size: int, figures: list[Figures]) -> list[Figures]:
    """Returns a figure of each bucket: of its own document, and with its overflow."""
    own, whole = np.zeros(size), np.zeros(size)
    for piece, figure in zip(pieces, figures, strict=True):
        np.add.at(whole, piece.units, figure)
        if not piece.overflow:
            np.add.at(own, piece.units, figure)
    return [own, whole]


def _compare(
    piece: ReadingGroup,
    element: Element,
    figures: list[Figures],
    slack: Figures,
    truth: str,
    faults: Faults,
) -> None:
    """Reports buckets whose element is none of the figures. `truth` says what the first of them means."""
    stated = read_values(piece.group, [(element,)])[0][:, 0]
    is_right = np.zeros(len(stated), dtype=np.bool_)
    with np.errstate(invalid="ignore"):
        for figure in figures:
            actual = figure[piece.units]
            is_right |= (stated == actual) | (np.isnan(stated) & np.isnan(actual))
            is_right |= np.abs(stated - actual) <= slack[piece.units]
    wrong = np.flatnonzero(~is_right)
    units = piece.units[wrong]

    def reason(i: int) -> str:
        return f"the field says {stated[wrong[i]]:.17g}, " + truth.format(f"{figures[0][units[i]]:.17g}")

    faults.add(units, _name(element), reason)


#: What is earlier is rather a wrong unit, or a clock that was never set.
EARLIEST = datetime(1971, 1, 1, tzinfo=UTC)
_UNITS: dict[Unit, str] = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
#: A time that another unit puts so far after now is not meant.
_AHEAD_MS = 366 * DAY_MS


@dataclass(frozen=True)
class Plausible:
    """The times from `first` to `last` (milliseconds), by which live buckets are judged at `now`."""

    first: int
    last: int
    now: int

    @classmethod
    def of(cls, policy: Policy, now: datetime, *, has_earlier: bool) -> Plausible:
        """Returns what the policy says. `has_earlier`: whether it has summarised times before 1971; then it
        has no `earliest` by default."""
        earliest = None if has_earlier else EARLIEST
        if policy.earliest is not None:
            earliest = read_instant(policy.earliest)
        first = FIRST_MS if earliest is None else as_ms(earliest)
        return cls(first, last_plausible(policy, now), as_ms(now))

    def check(self, piece: ReadingGroup, faults: Faults) -> None:
        """Reports buckets with a reading outside."""
        if self._holds(piece):
            return
        outside = (piece.time < self.first) | (piece.time > self.last)
        if piece.present is not None:
            outside &= piece.present
        for row in np.flatnonzero(outside.any(axis=1)).tolist():
            place = int(np.flatnonzero(outside[row])[0])
            reason = self._reason(int(piece.time[row, place]), _unit(piece.shape))
            faults.add(piece.units[row : row + 1], _field(piece.shape, place), reason)

    def _holds(self, piece: ReadingGroup) -> bool:
        """Returns whether all times of a group are plausible. Mostly they are, and this takes less time."""
        time, present = piece.time, piece.present
        if not time.size:
            return True
        if piece.shape.times is None:  # slots, in their order
            return bool(self.first <= time[:, 0].min() and time[:, -1].max() <= self.last)
        if present is None:
            return bool(self.first <= time.min() and time.max() <= self.last)
        low = time.min(where=present, initial=self.last)
        return bool(self.first <= low and time.max(where=present, initial=self.first) <= self.last)

    def _reason(self, ms: int, unit: Unit | None) -> str:
        is_early = ms < self.first
        bound = (
            f"before `earliest` ({_shown(self.first)})"
            if is_early
            else f"after `latest` ({_shown(self.last)})"
        )
        meant = "".join(self._meant(ms, unit, other) for other in _UNITS if unit and other != unit)
        return f"the reading at {_shown(ms)} is {bound}{meant}"

    def _meant(self, ms: int, unit: Unit, other: Unit) -> str:
        """Returns what the time is in another unit; nothing where that is not plausible either."""
        meant = ms * PER_SECOND[unit] // PER_SECOND[other]
        if not self.first <= meant <= min(self.last, self.now + _AHEAD_MS):
            return ""
        return f": {_UNITS[other]} among {_UNITS[unit]}? As {_UNITS[other]} it is {_shown(meant)}"


def last_plausible(policy: Policy, now: datetime) -> int:
    """Returns the last time (milliseconds) that a live bucket of a policy may have."""
    latest = None if policy.latest is None else read_latest(policy.latest)
    if isinstance(latest, timedelta):
        return min(LAST_MS, as_ms(now) + latest // timedelta(milliseconds=1))
    return LAST_MS if latest is None else as_ms(latest)


def _unit(shape: Shape) -> Unit | None:
    """Returns the unit of the numbers that are times; of dates, what they count. None for texts."""
    form = shape.own_form if shape.times is None else shape.form
    return "ms" if form.is_date else form.unit


def _field(shape: Shape, place: int) -> str:
    if shape.times is not None:
        return ".".join(shape.times[place][0].path)
    if shape.start is not None:
        return ".".join(shape.start.path)
    return next(".".join(cells[place][0].path) for cells in shape.values.values() if cells[place])


def _shown(ms: int) -> str:
    return as_text(as_date(ms))
