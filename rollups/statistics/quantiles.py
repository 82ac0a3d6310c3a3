"""Percentiles within 1 %, from counts in logarithmic bins that merge exactly.

The mapping is DDSketch's: bins grow by a constant factor, here 2**(1/35), so the value reported for a bin is
within 0.991 % of everything in it. Each power of two starts a bin. Edges are exact integers compared with
mantissas: no logarithm is taken, so the same values give the same bins on every machine.

A bin's code is signed and sorts as the values do: 0 is zero, code -c mirrors code c. The smallest doubles
(below 2**-1061) lie further apart than 1 %, so each has a bin of its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence, Set
from decimal import Decimal
from functools import lru_cache
from itertools import accumulate, pairwise
from math import inf, ldexp
from typing import Any, ClassVar

import numpy as np

from bucketwise.buckets.layouts.layout import positions_in
from bucketwise.config.policies import percentile_key
from bucketwise.rollups.statistics.base import (
    ALL,
    PIECE,
    Column,
    Doubles,
    FieldReadings,
    Integers,
    Kept,
    MomentsState,
    Numbers,
    Statistic,
    Stored,
    VarintReader,
    VarintWriter,
)

Bins = dict[int, int]  # code -> count

STEPS = 35  # bins a power of two
_TINY = 1 << 13  # mantissas of subnormals below this are their own code
_TINY_EXPONENT = -1061  # _TINY · 2**-1074
_SHIFT = 1 << 18  # more than twice the largest code


def _edge(step: int) -> int:
    """Returns the smallest mantissa in [2**52, 2**53] that is at least 2**52 · 2**(step/35)."""
    low, high = 1 << 52, 1 << 53
    while low < high:
        middle = (low + high) // 2
        if middle**STEPS >= 1 << (52 * STEPS + step):
            high = middle
        else:
            low = middle + 1
    return low


_EDGES = np.array([_edge(step) for step in range(STEPS + 1)], dtype=np.int64)
# A guess from a mantissa's first 12 bits is right, or one too low: edges lie more than 2**40 apart.
_GUESS = np.searchsorted(_EDGES, (1 << 52) + (np.arange(1 << 12, dtype=np.int64) << 40), side="right") - 1
_STORED = _EDGES - (1 << 52)  # edges as a double's bits have them: without the leading one
# The harmonic mean of a bin's edges has the same relative distance from both.
_CENTRES = [
    float(2 * low * high / (low + high) / (1 << 52))
    for low, high in zip(_EDGES.tolist()[:-1], _EDGES.tolist()[1:], strict=True)
]


class Quantiles(Statistic[Bins]):
    """Percentiles: those that a policy names, or a question. Without any, nothing is kept."""

    table_place = 1
    empty: ClassVar[Bins] = {}

    def __init__(self, percents: Sequence[float], kept: Kept = ALL) -> None:
        self.kept = kept
        self._percents = tuple(percents)
        self.parts = ("bins",) if percents else ()
        self.table = tuple(map(percentile_key, percents))
        self.columns = [Column(key, "number", is_derived=True) for key in self.table]

    def build(self, readings: FieldReadings, numbers: Numbers) -> list[Bins]:  # noqa: ARG002
        """Returns the bins of each group of finite numbers."""
        return (
            build(numbers) if self._percents and "bins" in self.kept.parts else [self.empty] * numbers.groups
        )

    def merge(self, one: Bins, other: Bins) -> Bins:
        """Returns the bins of both together."""
        return merge(one, other)

    def shown(self, state: Bins, moments: MomentsState) -> Mapping[str, Any]:
        """Returns the value of each key, within the extremes."""
        count, _, _, low, high = moments
        if not (count and self._percents and sum(state.values()) == count):
            return dict.fromkeys(self.table)
        if low is None or high is None:
            low, high = -inf, inf
        return dict(zip(self.table, percentiles(state, self._percents, low, high), strict=True))

    def pack(self, state: Bins, writer: VarintWriter, lacks: Set[str]) -> None:
        """Writes ascending codes, each as its distance from the one before, and with it whether that one
        counts more than one value: mostly a byte a bin. The last count is what is left."""
        if not state or "bins" in lacks:
            return
        (first, count), *others = sorted(state.items())
        writer.number(len(state))
        writer.signed(first)
        for code, following in others:
            writer.number((code - first - 1) << 1 | (count > 1))
            if count > 1:
                writer.number(count - 2)
            first, count = code, following

    def lacks(self, state: Bins, count: int) -> Iterator[str]:
        """Yields the bins, where its summary has none."""
        if count and (sum(state.values()) != count or "bins" not in self.kept.parts):
            yield "bins"

    def unpack(self, stored: Stored) -> Bins:
        """Returns the bins of a summary's value field, if percentiles are asked for; none where it keeps
        none."""
        count = stored.document["count"]
        found = _unpacked(stored.reader, count) if count and stored.holds("bins") else self.empty
        return found if self._percents else self.empty


def _unpacked(reader: VarintReader, left: int) -> Bins:
    found: Bins = {}
    bins, code = reader.number(), reader.signed()
    for _ in range(bins - 1):
        distance, is_many = divmod(reader.number(), 2)
        found[code] = reader.number() + 2 if is_many else 1
        left -= found[code]
        code += distance + 1
    if left < 1:
        raise ValueError("its percentiles are of other numbers")
    return found | {code: left}


def codes(values: Doubles) -> Integers:
    """Returns the bin of each finite value. By pieces that stay in the cache."""
    found = np.empty(len(values), dtype=np.int64)
    for at in range(0, len(values), PIECE):
        piece = slice(at, at + PIECE)
        found[piece] = _codes(values[piece])
    return found


def _codes(values: Doubles) -> Integers:
    bits = np.abs(values).view(np.int64)
    subnormal = bits < (1 << 52)
    if not subnormal.any():
        code: Integers = _normal(bits)
    else:  # 2**54 · v is normal and has the same mantissa
        scaled = np.abs(values) * np.where(subnormal, 2.0**54, 1.0)
        code = _normal(scaled.view(np.int64)) - np.where(subnormal, 54 * STEPS, 0)
        code = np.where(bits < _TINY, bits, code)
    negative = np.signbit(values)
    code[negative] *= -1
    return code


def _normal(bits: Integers) -> Integers:
    """Returns the bins of normal doubles above zero, given as their bits."""
    step = _GUESS[(bits >> 40) & 0xFFF]
    step = step + ((bits & ((1 << 52) - 1)) >= _STORED[step + 1])
    found: Integers = ((bits >> 52) - (1023 + _TINY_EXPONENT)) * STEPS + (step + _TINY)
    return found


@lru_cache(maxsize=1 << 12)
def value_of(code: int) -> float:
    """Returns the value that stands for a bin, within 1 % of all its values."""
    size = abs(code)
    if size < _TINY:
        value = ldexp(float(size), -1074)
    else:
        octave, step = divmod(size - _TINY, STEPS)
        value = ldexp(_CENTRES[step], octave + _TINY_EXPONENT)
    return -value if code < 0 else value


def build(numbers: Numbers) -> list[Bins]:
    """Returns the bins of each group. Codes ascend."""
    of, lengths = numbers.group, numbers.lengths
    low, high = codes(numbers.low), codes(numbers.high)
    # Codes sort as values do: where both ends of a sorted run are in one bin, so is what lies between them.
    whole, parted = low == high, low != high
    lowest, highest = np.full(numbers.groups, _SHIFT), np.full(numbers.groups, -_SHIFT)
    np.minimum.at(lowest, of, low)
    np.maximum.at(highest, of, high)
    widths = highest - lowest + 1
    size = int(widths.sum())
    is_near = size <= 4 * len(numbers.values)  # mostly so: values of one series lie near one another
    bases = np.cumsum(widths) - widths - lowest, _SHIFT * np.arange(numbers.groups) + _SHIFT // 2
    base = bases[0 if is_near else 1]
    runs = base[of[whole]] + low[whole]
    values = np.repeat(base[of[parted]], lengths[parted])
    values += codes(numbers.values[positions_in(numbers.starts[parted], lengths[parted])])
    if is_near:
        table = np.bincount(runs, lengths[whole], size) + np.bincount(values, minlength=size)
        keys = np.flatnonzero(table)
        counts = table[keys]
    else:
        keys, inverse = np.unique(np.append(runs, values), return_inverse=True)
        counts = np.bincount(inverse, np.append(lengths[whole], np.ones(len(values))))
    group = np.searchsorted(base + lowest, keys, side="right") - 1
    code = keys - base[group]
    bounds = np.searchsorted(group, np.arange(numbers.groups + 1)).tolist()
    code_list, count_list = code.tolist(), counts.astype(np.int64).tolist()
    return [
        dict(zip(code_list[begin:end], count_list[begin:end], strict=True)) for begin, end in pairwise(bounds)
    ]


def merge(one: Mapping[int, int], other: Mapping[int, int]) -> Bins:
    """Returns the bins of both, with their counts added."""
    merged = dict(one)
    for code, count in other.items():
        merged[code] = merged.get(code, 0) + count
    return merged


@lru_cache(maxsize=1 << 12)
def rank(percent: float, count: int) -> int:
    """Returns the nearest rank of a percentile, from 1, among `count` values."""
    share = Decimal(str(percent)) * count / 100  # decimal: 99.9 % of 1000 is 999, not 999.0000000000001
    return min(count, max(1, int(share.to_integral_value(rounding="ROUND_CEILING"))))


def percentiles(bins: Mapping[int, int], percents: tuple[float, ...], low: float, high: float) -> list[float]:
    """Returns the nearest-rank percentiles of counted values, each within 1 % and within [low, high]."""
    ordered = sorted(bins)
    passed = list(accumulate(bins[code] for code in ordered))
    found = [bisect_left(passed, rank(percent, passed[-1])) for percent in percents]
    return [min(max(value_of(ordered[at]), low), high) + 0.0 for at in found]
