"""Count, sum, mean, deviation and extremes. Sums are exact integers, the same in any order of the values.

Every finite double is a whole multiple of 2**-1074, and its square of 2**-2148. So a sum is kept as a Python
integer in those units. It is rounded once, when a person reads it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Set
from itertools import pairwise
from math import inf, isfinite, isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.layouts.layout import positions_in
from bucketwise.rollups.statistics.base import (
    ALL,
    Column,
    Doubles,
    FieldReadings,
    Integers,
    Kept,
    MomentsState,
    Numbers,
    Statistic,
    Stored,
    VarintWriter,
)

UNIT = 1074  # a sum counts in 2**-UNIT, a sum of squares in 2**-(2 * UNIT)

_LIMB = 32
_LOW = (1 << _LIMB) - 1
_HALF = 27  # a mantissa of 53 bits splits into 26 and 27

_PIECE_BITS = 20  # bits: products of two pieces have 40 …
_MAX_RUN = 1 << 12  # … and the sum of so many, two products each, 53
_MAX_VALUES = 1 << 22  # … and what is cut adds up to 63
_MAX_PIECES = 4
_USUAL_PIECES, _MANTISSA_BITS, _UNBOUNDED = 3, 53, 10_000  # three hold a mantissa and 7 bits more
_EVEN = 8  # values in a run of one weight from which on it pays to add them up first
#: Values.
AT_ONCE = 1 << 16
_MAX_EXPONENT = 300  # products of pieces stay far inside what doubles can hold


class Moments(Statistic[MomentsState]):
    """Count, sum, extremes, mean and deviation. Each value field has them, and they come first. Extremes that
    are -0.0 are 0.0."""

    columns = (
        Column("count", "whole"),
        Column("sum", "number"),
        Column("min", "number"),
        Column("max", "number"),
        Column("avg", "number", is_derived=True),
        Column("stddev", "number", is_derived=True),
    )
    table = ("count", "min", "avg", "max", "stddev")
    table_place = 0
    empty = (0, 0, 0, inf, -inf)

    parts = ("sum", "squares", "min", "max")

    def __init__(self, kept: Kept = ALL) -> None:
        self.kept = kept

    def build(self, readings: FieldReadings, numbers: Numbers) -> list[MomentsState]:  # noqa: ARG002
        """Returns the state of each group of finite numbers."""
        low, high = np.full(numbers.groups, inf), np.full(numbers.groups, -inf)
        np.minimum.at(low, numbers.group, numbers.low)
        np.maximum.at(high, numbers.group, numbers.high)
        counts = np.bincount(numbers.group, numbers.lengths).astype(np.int64).tolist()
        extremes = (low + 0.0).tolist(), (high + 0.0).tolist()
        return list(zip(counts, *sums_and_squares(numbers), *extremes, strict=True))

    def merge(self, one: MomentsState, other: MomentsState) -> MomentsState:
        """Returns the state of both together."""
        count, total, squares, low, high = one
        count_, total_, squares_, low_, high_ = other
        try:
            return (
                count + count_,
                total + total_,  # type: ignore[operator]  # mostly known
                squares + squares_,  # type: ignore[operator]
                min(low, low_),  # type: ignore[type-var]
                max(high, high_),  # type: ignore[type-var]
            )
        except TypeError:
            found = [
                None if one_ is None or other_ is None else both(one_, other_)
                for both, one_, other_ in zip(_BOTH, one[1:], other[1:], strict=True)
            ]
            return count + count_, *found  # type: ignore[return-value]

    def shown(self, state: MomentsState, moments: MomentsState) -> Mapping[str, Any]:  # noqa: ARG002
        """Returns the value of each key."""
        count, added, squared, low, high = state
        if not count:
            return {"count": 0, "sum": 0.0, "min": None, "max": None, "avg": None, "stddev": None}
        shows = self.kept.shows
        has_deviation = added is not None and squared is not None and shows("stddev")
        return {
            "count": count,
            "sum": None if added is None else total(added),
            "min": low,
            "max": high,
            "avg": None if added is None else mean(added, count),
            "stddev": deviation(added, squared, count) if has_deviation else None,  # type: ignore[arg-type]
        }

    def told(self, state: MomentsState, moments: MomentsState) -> dict[str, Any]:
        """Returns the value of each key; the count is never left out."""
        return {**super().told(state, moments), "count": state[0]}

    def lacks(self, state: MomentsState, count: int) -> Iterator[str]:
        """Yields those of its `parts` that the summary of a state does not hold."""
        for part, found in zip(self.parts, state[1:], strict=True):
            if count and (found is None or part not in self.kept.parts):
                yield part

    def pack(self, state: MomentsState, writer: VarintWriter, lacks: Set[str]) -> None:
        """Writes the exact sums, the first of them only where it is another than what is shown; and extremes
        that are needed and not shown."""
        if not state[0]:
            return
        _, added, squared, *extremes = state
        if added is not None and "sum" not in lacks:
            is_shown = self.kept.shows("sum") and _is_exact(total(added), added)
            if self.kept.shows("sum"):
                writer.number(_SHOWN if is_shown else _WRITTEN)
            if not is_shown:
                writer.wide(added)
        if squared is not None and "squares" not in lacks:
            writer.wide(squared)
        for part, extreme in zip(("min", "max"), extremes, strict=True):
            if extreme is not None and part not in lacks and not self.kept.shows(part):
                writer.double(extreme)

    def unpack(self, stored: Stored) -> MomentsState:
        """Returns the state of a summary's value field."""
        reader, document = stored.reader, stored.document
        if not document["count"]:
            return self.empty
        added = squared = None
        if stored.holds("sum"):
            is_shown = document.get("sum") is not None and reader.number() == _SHOWN
            added = exact(document["sum"]) if is_shown else reader.wide()
        if stored.holds("squares"):
            squared = reader.wide()
        low, high = (self._extreme(stored, part) for part in ("min", "max"))
        return document["count"], added, squared, low, high

    @staticmethod
    def _extreme(stored: Stored, part: str) -> float | None:
        found: float | None = stored.document.get(part)
        return stored.reader.double() if found is None and stored.holds(part) else found


#: How the exact sum is told: by the key, or behind this byte.
_SHOWN, _WRITTEN = 0, 1
#: How sum, squares and extremes of two states become those of both.
_BOTH: tuple[Callable[[Any, Any], Any], ...] = (operator.add, operator.add, min, max)


def _is_exact(shown: float, whole: int) -> bool:
    return isfinite(shown) and exact(shown) == whole


def sums(values: Doubles, starts: Integers) -> list[int]:
    """Returns the exact sum of each run of finite values, in units of 2**-1074; a run begins at each of
    `starts`."""
    mantissa, shift, negative = _parts(values)
    return _add_up(mantissa, shift, negative, starts)


def squares(values: Doubles, starts: Integers) -> list[int]:
    """Returns the exact sum of squares of each run of finite values, in units of 2**-2148."""
    mantissa, shift, _ = _parts(values)
    high, low = mantissa >> _HALF, mantissa & ((1 << _HALF) - 1)
    terms = ((high * high, 2 * _HALF), (2 * high * low, _HALF), (low * low, 0))
    parts = [_add_up(term, 2 * shift + extra, None, starts) for term, extra in terms]
    return [sum(part) for part in zip(*parts, strict=True)]


def products(values: Doubles, weights: Integers, starts: Integers) -> list[int]:
    """Returns the exact sum of each run of finite values times their weights, in units of 2**-1074. Weights:
    0 <= weight < 2**36."""
    changes = np.flatnonzero(np.diff(weights)) + 1
    if len(changes) < len(values) // _EVEN:  # mostly the same: readings come evenly
        begins = np.union1d(starts, changes)
        added = _totals(Numbers.of(values, begins), has_squares=False)[0]
        alike = zip(added, weights[begins].tolist(), strict=True)
        weighted = [total * weight for total, weight in alike]
        edges = [*np.searchsorted(begins, starts).tolist(), len(begins)]
        return [sum(weighted[low:high]) for low, high in pairwise(edges)]
    mantissa, shift, negative = _parts(values)
    high, low = mantissa >> _HALF, mantissa & ((1 << _HALF) - 1)
    terms = ((high * weights, _HALF), (low * weights, 0))
    parts = [_add_up(term, shift + extra, negative, starts) for term, extra in terms]
    return [sum(part) for part in zip(*parts, strict=True)]


def sums_and_squares(numbers: Numbers) -> tuple[list[int], list[int]]:
    """Returns `sums` and `squares` of each group, several times as fast where its magnitudes don't differ
    widely."""
    added, squared = _totals(numbers, has_squares=True)
    return added, squared


def _totals(numbers: Numbers, *, has_squares: bool) -> list[list[int]]:
    """Returns the exact sums of each group, and those of its squares if asked for.

    Values are split into a few pieces, each a whole number of up to _PIECE bits times a power of two that the
    group shares. Sums of pieces, and of products of two, then fit into a double without rounding, as long as
    a run is no longer than _LONGEST; longer ones are cut."""
    numbers = _cut(numbers)
    exponents, spans = _magnitudes(numbers)
    is_extreme = np.logical_or(np.abs(exponents) >= _MAX_EXPONENT, len(numbers.values) >= _MAX_VALUES)
    near = numbers.values
    if is_extreme.any():
        near = np.where(np.repeat(is_extreme[numbers.group], numbers.lengths), 0.0, near)
    exponents[is_extreme] = 0
    scale = np.ldexp(1.0, exponents)[numbers.group]
    is_short = (spans <= _USUAL_PIECES * _PIECE_BITS)[numbers.group]
    added = np.zeros((_MAX_PIECES + 1, len(scale)))
    squared = np.zeros((2 * _MAX_PIECES + 1, len(scale)))
    for runs, values, starts in _in_parts(numbers, near):
        pieces, has_rest = _pieces(values, starts, scale[runs], is_short=bool(is_short[runs].all()))
        is_extreme[numbers.group[runs][has_rest]] = True
        for place, terms in enumerate(pieces, 1):
            added[place, runs] = np.add.reduceat(terms, starts)
        for place, terms in _products(pieces) if has_squares else ():
            squared[place, runs] = np.add.reduceat(terms, starts)
    found = [_whole(added / scale, numbers, exponents + UNIT)]
    if has_squares:
        found.append(_whole(squared / scale**2, numbers, 2 * (exponents + UNIT)))
    for at, *exact in _one_by_one(numbers, is_extreme):
        for figures, figure in zip(found, exact, strict=False):
            figures[at] = figure
    return found


def _cut(numbers: Numbers) -> Numbers:
    """Returns the same numbers, with no run longer than _LONGEST."""
    if numbers.lengths.max() <= _MAX_RUN:
        return numbers
    return numbers.cut(_MAX_RUN)


def _magnitudes(numbers: Numbers) -> tuple[Integers, Integers]:
    """Returns for each group the exponent of a power of two above all magnitudes, and how many bits there are
    from there to the last bit of any of its values."""
    most, least = np.zeros(numbers.groups), np.full(numbers.groups, inf)
    np.maximum.at(most, numbers.group, np.maximum(numbers.high, -numbers.low))
    np.minimum.at(least, numbers.group, np.maximum(np.maximum(numbers.low, -numbers.high), 0.0))
    exponents = np.frexp(most)[1].astype(np.int64)
    return exponents, np.where(least > 0, exponents - np.frexp(least)[1] + _MANTISSA_BITS, _UNBOUNDED)


def _in_parts(numbers: Numbers, values: Doubles) -> Iterator[tuple[slice, Doubles, Integers]]:
    """Yields some runs at once, so that intermediate results stay in the processor's cache: which they are,
    their values, and where each starts in these."""
    edges = np.append(numbers.starts, len(values))
    firsts = np.unique(np.searchsorted(numbers.starts, np.arange(0, len(values), AT_ONCE)))
    for low, high in pairwise([*firsts.tolist(), len(numbers.starts)]):
        yield slice(low, high), values[edges[low] : edges[high]], edges[low:high] - edges[low]


def _pieces(
    values: Doubles, starts: Integers, scale: Doubles, *, is_short: bool
) -> tuple[list[Doubles], NDArray[np.bool_]]:
    """Pieces that add up to the values, and of which runs they don't: its magnitudes differ so much that it
    would take more than a few. Piece i, from 1, of a run is a multiple of its scale * 2**(-i * _PIECE).
    `is_short`: what the first two leave of any value is such a multiple already."""
    # Adding this makes a sum round to these multiples; subtracting it again is exact.
    shift = np.repeat(scale * (1.5 * 2.0 ** (52 - _PIECE_BITS)), np.diff(starts, append=len(values)))
    rest = values
    pieces: list[Doubles] = []
    for _ in range(_MAX_PIECES):
        if is_short and len(pieces) == _USUAL_PIECES - 1:
            return [*pieces, rest], np.zeros(len(starts), dtype=np.bool_)
        piece = rest + shift
        piece -= shift
        pieces.append(piece)
        rest = rest - piece
        if not rest.any():
            break
        shift *= 2.0**-_PIECE_BITS
    return pieces, np.logical_or.reduceat(rest, starts)


def _products(pieces: list[Doubles]) -> Iterator[tuple[int, Doubles]]:
    """Yields the square of the sum of the pieces, by place."""
    for place in range(2, 2 * len(pieces) + 1):
        terms = None
        for one in range(max(0, place - 1 - len(pieces)), place // 2):
            product = pieces[one] * pieces[place - 2 - one]
            if 2 * one != place - 2:
                product += product
            terms = product if terms is None else terms + product
        assert terms is not None
        yield place, terms


def _whole(sums: Doubles, numbers: Numbers, shifts: Integers) -> list[int]:
    """Returns the total of each group, times 2 to the power of its shift. `sums`: of each run at place i, in
    units of 2**(-i * _PIECE)."""
    found = [0] * numbers.groups
    for place, of_place in enumerate(sums):
        if of_place.any():
            kept = np.zeros(numbers.groups, dtype=np.int64)
            np.add.at(kept, numbers.group, (of_place * 2.0 ** (place * _PIECE_BITS)).astype(np.int64))
            ups = (shifts - place * _PIECE_BITS).tolist()
            found = [it + (part << up) for it, part, up in zip(found, kept.tolist(), ups, strict=True)]
    return found


def _one_by_one(numbers: Numbers, chosen: NDArray[np.bool_]) -> Iterator[tuple[int, int, int]]:
    """Yields each chosen group, its sum and its sum of squares."""
    if not chosen.any():
        return
    runs = np.flatnonzero(chosen[numbers.group])
    runs = runs[np.argsort(numbers.group[runs], kind="stable")]
    lengths, group = numbers.lengths[runs], numbers.group[runs]
    values = numbers.values[positions_in(numbers.starts[runs], lengths)]
    firsts = np.flatnonzero(np.diff(group, prepend=-1))
    starts = (np.cumsum(lengths) - lengths)[firsts]
    yield from zip(group[firsts].tolist(), sums(values, starts), squares(values, starts), strict=True)


def total(exact: int) -> float:
    """Returns the sum, correctly rounded; ±inf where it is beyond every double."""
    return quotient(exact, 1 << UNIT)


def mean(exact: int, count: int) -> float:
    """Returns the mean, correctly rounded: always finite, also where the sum is not."""
    return quotient(exact, count << UNIT)


def deviation(exact: int, exact_squares: int, count: int) -> float:
    """Returns the population standard deviation, correctly rounded."""
    square = count * exact_squares - exact * exact  # (count · deviation)² in units of 2**-2148
    if square == 0:
        return 0.0
    zeros = ((square & -square).bit_length() - 1) // 2  # most bits are zero: a root takes long
    square >>= 2 * zeros
    # Enough bits that no double's rounding boundary, times count, falls between two neighbouring roots.
    extra = max(1, 64 + count.bit_length() - square.bit_length() // 2)
    scaled = square << (2 * extra)
    root = isqrt(scaled)
    sticky = 2 * root + (root * root != scaled)
    return quotient(sticky << zeros, count << (UNIT + extra + 1))


def exact(value: float) -> int:
    """Returns a finite double in units of 2**-1074."""
    numerator, denominator = value.as_integer_ratio()
    return numerator << (UNIT + 1 - denominator.bit_length())


def quotient(numerator: int, denominator: int) -> float:
    """Returns the quotient, correctly rounded; ±inf where it is beyond every double."""
    try:
        return numerator / denominator + 0.0  # Python rounds int / int correctly; + 0.0 makes -0.0 0.0
    except OverflowError:
        return inf if numerator > 0 else -inf


def _parts(values: Doubles) -> tuple[Integers, Integers, NDArray[np.bool_]]:
    """Returns mantissa, shift and sign of doubles: value = ± mantissa · 2**shift · 2**-1074."""
    bits = np.ascontiguousarray(values).view(np.int64)
    exponent = (bits >> 52) & 0x7FF
    mantissa = (bits & ((1 << 52) - 1)) | ((exponent > 0).astype(np.int64) << 52)
    return mantissa, np.maximum(exponent, 1) - 1, bits < 0


def _add_up(
    magnitude: Integers, shift: Integers, negative: NDArray[np.bool_] | None, starts: Integers
) -> list[int]:
    """Returns the sum of ± magnitude · 2**shift of each run; 0 <= magnitude < 2**63.

    Each term falls into three limbs of at most 33 bits: int64 holds the sums of 2**30 of them.
    """
    is_nonzero = magnitude != 0
    if not is_nonzero.any():
        return [0] * len(starts)
    base = int(shift[is_nonzero].min())
    place = np.where(is_nonzero, shift - base, 0)
    limb, offset = place >> 5, place & (_LIMB - 1)
    low = (magnitude & _LOW) << offset
    high = (magnitude >> _LIMB) << offset
    parts = [low & _LOW, (low >> _LIMB) + (high & _LOW), high >> _LIMB]
    if negative is not None:
        parts = [np.where(negative, -part, part) for part in parts]
    result = [0] * len(starts)
    limbs = np.flatnonzero(np.bincount(limb)).tolist()  # one or two, unless magnitudes differ widely
    for at in limbs:
        is_in_limb = limb == at
        for index, part in enumerate(parts):
            terms = part if len(limbs) == 1 else np.where(is_in_limb, part, 0)
            column = np.add.reduceat(terms, starts).tolist()
            up = _LIMB * (at + index)
            result = [so_far + (more << up) for so_far, more in zip(result, column, strict=True)]
    return [value << base for value in result]
