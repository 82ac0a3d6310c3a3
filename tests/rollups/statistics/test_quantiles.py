"""Percentiles are within 1 % of the value at their rank, for every double."""

from __future__ import annotations

import math
import struct
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bucketwise.rollups.statistics import quantiles
from bucketwise.rollups.statistics.base import Numbers

TINIEST, LARGEST = 5e-324, 1.7976931348623157e308
numbers = st.floats(allow_nan=False, allow_infinity=False)
any_bits = st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0])
doubles = st.one_of(
    numbers, any_bits.filter(math.isfinite), st.floats(0, 1e-318), st.integers(-99, 99).map(float)
)
percents = st.sampled_from([0.0, 0.1, 1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0, 99.9, 99.99, 100.0])


def near(estimate: float, value: float) -> bool:
    return abs(Fraction(estimate) - Fraction(value)) <= abs(Fraction(value)) / 100


def code_of(value: float) -> int:
    return int(quantiles.codes(np.array([value]))[0])


@example(0.0)
@example(-0.0)
@example(TINIEST)
@example(-LARGEST)
@example(2.2250738585072014e-308)
@example(8191 * TINIEST)  # the last that is a bin of its own
@example(8355 * TINIEST)  # the upper end of the first bin of several
@given(doubles)
def test_every_double_is_within_one_percent_of_its_bins_value(value: float) -> None:
    assert near(quantiles.value_of(code_of(value)), value)
    assert quantiles.value_of(code_of(-value)) == -quantiles.value_of(code_of(value))


@given(doubles, doubles)
def test_bins_are_ordered_as_values_are(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert code_of(low) <= code_of(high)


@pytest.mark.parametrize("exponent", [*range(-1074, -1000, 3), -1022, -1, 0, 1, 52, 1023])
def test_both_sides_of_every_bins_edge(exponent: int) -> None:
    values = []
    for step in range(36):
        edge = math.ldexp(2.0 ** (step / 35) / 2, exponent + 1) if exponent < 1023 or step < 35 else LARGEST
        for _ in range(3):
            edge = math.nextafter(edge, 0.0)
        for _ in range(7):
            values.append(edge)
            edge = math.nextafter(edge, math.inf)
    values = sorted({value for value in values if math.isfinite(value)})
    codes = quantiles.codes(np.array(values)).tolist()
    assert codes == sorted(codes)
    assert all(near(quantiles.value_of(code), value) for value, code in zip(values, codes, strict=True))
    assert len(set(codes)) <= 37 or exponent < -1060


def test_a_bin_starts_with_the_first_double_that_is_not_below_its_edge() -> None:
    """So that every machine and release puts a value into the same bin: 2**(step / 35), by whole numbers."""
    for step in range(35):
        edge = round(2.0 ** (step / 35) * 2**52) + 4
        while (edge - 1) ** 35 >= 2 ** (52 * 35 + step):
            edge -= 1
        below, first = quantiles.codes(np.array([math.ldexp(edge - 1, -52), math.ldexp(edge, -52)])).tolist()
        assert (below + 1, first) == (first, quantiles.codes(np.array([1.0]))[0] + step)


@pytest.mark.parametrize("groups", [[[1.0]], [[1.0, 1.01, 1.03, 1.0], [1.02]], [[-2.0, 1e9], [0.0, -2.0]]])
def test_each_value_is_counted_in_its_own_bin(groups: list[list[float]]) -> None:
    """Whether values lie near one another or far apart."""
    starts = np.cumsum([0, *map(len, groups)])[:-1]
    found = quantiles.build(Numbers.of(np.concatenate(groups), starts))
    assert found == [Counter(quantiles.codes(np.array(group)).tolist()) for group in groups]
    assert all(list(counted) == sorted(counted) for counted in found)


@given(st.lists(st.lists(doubles, min_size=1, max_size=9), min_size=1, max_size=6), st.data())
def test_runs_of_one_group_are_counted_together(runs: list[list[float]], data: st.DataObject) -> None:
    """Those that fit into one bin, and those that don't."""
    drawn = data.draw(st.lists(st.integers(0, 2), min_size=len(runs), max_size=len(runs)))
    of = [sorted(set(drawn)).index(it) for it in drawn]
    starts = np.cumsum([0, *map(len, runs)])[:-1]
    for group, found in enumerate(quantiles.build(Numbers(np.concatenate(runs), starts, np.array(of)))):
        held = [value for it, run in zip(of, runs, strict=True) if it == group for value in run]
        assert found == Counter(map(code_of, held)) and list(found) == sorted(found)


@example([TINIEST], 50.0)
@example([-1.0, 0.0, 1.0], 50.0)
@given(st.lists(doubles, min_size=1, max_size=60), percents)
def test_percentiles_are_within_one_percent_of_the_nearest_rank(values: list[float], percent: float) -> None:
    (counted,) = quantiles.build(Numbers.of(np.array(values), np.array([0])))
    (found,) = quantiles.percentiles(counted, (percent,), min(values), max(values))
    ordered = sorted(values)
    at_least = Fraction(str(percent)) * len(values) / 100
    expected = next(value for rank, value in enumerate(ordered, 1) if rank >= at_least)
    assert near(found, expected)
    assert ordered[0] <= found <= ordered[-1]


def test_the_rank_is_reckoned_in_decimals() -> None:
    assert quantiles.rank(99.9, 1000) == 999
    assert quantiles.rank(0.0, 5) == 1
    assert quantiles.rank(100.0, 5) == 5
    assert quantiles.rank(50.0, 4) == 2


@given(st.lists(st.lists(doubles, min_size=1, max_size=20), min_size=1, max_size=5))
def test_bins_merge_as_if_counted_together(groups: list[list[float]]) -> None:
    flat = np.array([value for group in groups for value in group])
    starts = np.cumsum([0] + [len(group) for group in groups])[:-1]
    merged: dict[int, int] = {}
    for counted in quantiles.build(Numbers.of(flat, starts)):
        merged = quantiles.merge(merged, counted)
    assert merged == quantiles.build(Numbers.of(flat, np.array([0])))[0]
    assert sum(merged.values()) == len(flat)
