"""Sums are exact, whatever is added to what; the oracles are fsum and fractions."""

from __future__ import annotations

import math
import random
import statistics
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bucketwise.rollups.statistics import moments
from bucketwise.rollups.statistics.base import Numbers

pytestmark = pytest.mark.filterwarnings("error")
TINIEST, LARGEST = 5e-324, 1.7976931348623157e308
numbers = st.floats(allow_nan=False, allow_infinity=False)
runs = st.lists(st.lists(numbers, min_size=1, max_size=20), min_size=1, max_size=5)


def lay_out(groups: list[list[float]]) -> tuple[Any, Any]:
    lengths = [len(group) for group in groups]
    values = np.array([value for group in groups for value in group], dtype=np.float64)
    return values, np.array([sum(lengths[:at]) for at in range(len(groups))], dtype=np.int64)


@example([[1e16, 1.0, -1e16], [TINIEST, -TINIEST, -0.0], [LARGEST, LARGEST, -LARGEST]])
@example([[0.1] * 20, [LARGEST, TINIEST, -LARGEST]])
@given(runs)
def test_sums_are_exact(groups: list[list[float]]) -> None:
    values, starts = lay_out(groups)
    for found, group in zip(moments.sums(values, starts), groups, strict=True):
        assert Fraction(found, 2**1074) == sum(map(Fraction, group))


@example([[LARGEST, TINIEST, -0.0, 1.5]])
@given(runs)
def test_sums_of_squares_are_exact(groups: list[list[float]]) -> None:
    values, starts = lay_out(groups)
    for found, group in zip(moments.squares(values, starts), groups, strict=True):
        assert Fraction(found, 2**2148) == sum(Fraction(value) ** 2 for value in group)


near = st.floats(-1e6, 1e6).filter(lambda value: not value or abs(value) > 1e-3)
alike = st.lists(st.lists(near, min_size=1, max_size=20), min_size=1, max_size=5)


@example([[56.57, -56.57, 0.01, -0.0], [0.0]])
@example([[1.0, 2.0**-79], [2.0**-80, 1.0], [1e16]])
@example([[2.0**299, 2.0**-300]])
@example([[1.5 * 2.0**559, -(2.0**558)]])
@example([[1.5 * 2.0**-560, -(2.0**-561)]])
@given(st.one_of(alike, runs))
def test_sums_and_squares_taken_together_are_exact(groups: list[list[float]]) -> None:
    values, starts = lay_out(groups)
    for total, squares, group in zip(
        *moments.sums_and_squares(Numbers.of(values, starts)), groups, strict=True
    ):
        assert Fraction(total, 2**1074) == sum(map(Fraction, group))
        assert Fraction(squares, 2**2148) == sum(Fraction(value) ** 2 for value in group)


@pytest.mark.parametrize("bits", range(5, 12))
def test_magnitudes_that_three_pieces_just_hold_and_just_do_not(bits: int) -> None:
    held = [math.nextafter(2.0**bits, 0), math.nextafter(1, 2)]
    (total,), (square,) = moments.sums_and_squares(Numbers.of(np.array(held), np.array([0])))
    assert Fraction(total, 2**1074) == sum(map(Fraction, held))
    assert Fraction(square, 2**2148) == sum(Fraction(value) ** 2 for value in held)


@given(st.one_of(alike, runs), st.data())
def test_runs_of_one_group_are_added_up(groups: list[list[float]], data: st.DataObject) -> None:
    """Whatever the order of the runs; magnitudes of one group do not spoil those of another."""
    values, starts = lay_out(groups)
    drawn = data.draw(st.lists(st.integers(0, 2), min_size=len(groups), max_size=len(groups)))
    of = [sorted(set(drawn)).index(it) for it in drawn]
    totals, squares = moments.sums_and_squares(Numbers(values, starts, np.array(of)))
    for group in range(max(of) + 1):
        held = [Fraction(value) for it, run in zip(of, groups, strict=True) if it == group for value in run]
        assert Fraction(totals[group], 2**1074) == sum(held)
        assert Fraction(squares[group], 2**2148) == sum(value**2 for value in held)


@pytest.mark.parametrize("value", [math.nextafter(2.0, 1.0), -math.nextafter(1.0, 0.0), 2.0 - 2.0**-19])
@pytest.mark.parametrize("length", [4095, 4096, 4097, 500_000])
def test_long_runs_taken_together_are_exact(value: float, length: int) -> None:
    starts, lengths = np.array([0, 5]), (5, length - 5)
    totals, squares = moments.sums_and_squares(Numbers.of(np.full(length, value), starts))
    assert totals == [int(count * Fraction(value) * 2**1074) for count in lengths]
    assert squares == [int(count * Fraction(value) ** 2 * 2**2148) for count in lengths]


@pytest.mark.parametrize("bits", [19, 20, 21, 22, 40, 52])
@pytest.mark.parametrize("length", [4096, 20_000])
def test_long_runs_of_large_mantissas_are_exact(bits: int, length: int) -> None:
    """Just below 2, each with its last bit set: products of pieces are as long as they can be."""
    source = random.Random(bits)
    whole = [(2 << bits) - source.randrange(1, 64, 2) for _ in range(length)]
    (total,), (squares,) = moments.sums_and_squares(
        Numbers.of(np.ldexp(np.array(whole, float), -bits), np.array([0]))
    )
    assert Fraction(total, 2**1074) == Fraction(sum(whole), 2**bits)
    assert Fraction(squares, 2**2148) == Fraction(sum(one * one for one in whole), 4**bits)


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=50))
def test_the_total_is_fsum(values: list[float]) -> None:
    (found,) = moments.sums(np.array(values), np.array([0]))
    assert moments.total(found) == math.fsum(values)


def test_many_readings_of_all_magnitudes_cancel_to_the_bit() -> None:
    source = random.Random(5)
    values = [source.uniform(-1, 1) * 2.0 ** source.randint(-1000, 1000) for _ in range(3000)]
    values += [-value for value in values] + [0.1]
    source.shuffle(values)
    (found,) = moments.sums(np.array(values), np.array([0]))
    assert moments.total(found) == 0.1


def test_two_million_of_the_largest_mantissa_do_not_overflow_the_limbs() -> None:
    value = math.nextafter(2.0, 1.0)
    values = np.full(2_000_000, -value)
    assert moments.sums(values, np.array([0])) == [int(-2_000_000 * Fraction(value) * 2**1074)]
    assert moments.squares(values, np.array([0])) == [int(2_000_000 * Fraction(value) ** 2 * 2**2148)]


def test_a_sum_beyond_doubles_is_infinite_and_its_mean_is_not() -> None:
    (found,) = moments.sums(np.array([-LARGEST, -LARGEST]), np.array([0]))
    assert moments.total(found) == -math.inf
    assert moments.mean(found, 2) == -LARGEST


@given(st.lists(numbers, min_size=1, max_size=30))
def test_the_mean_is_correctly_rounded(values: list[float]) -> None:
    (found,) = moments.sums(np.array(values), np.array([0]))
    mean = moments.mean(found, len(values))
    assert mean == float(sum(map(Fraction, values)) / len(values))
    assert math.copysign(1, mean) == 1 or mean < 0


def rounded_root(square: Fraction) -> float:
    """The square root to 900 digits, then to a double."""
    with localcontext() as context:
        context.prec, context.Emin, context.Emax = 900, -10_000, 10_000
        return float((Decimal(square.numerator) / Decimal(square.denominator)).sqrt())


@example([LARGEST, -LARGEST])
@example([TINIEST, 0.0])
@example([TINIEST, 0.0, 0.0, 0.0, 0.0])
@example([0.1, 0.1, 0.1])
@example([1e16, 1e16 + 2])
@given(st.lists(numbers, min_size=1, max_size=30))
def test_the_deviation_is_correctly_rounded(values: list[float]) -> None:
    array, starts = np.array(values), np.array([0])
    (total,), (squared) = moments.sums(array, starts), moments.squares(array, starts)
    fractions = list(map(Fraction, values))
    mean = sum(fractions, Fraction(0)) / len(values)
    variance = sum(((value - mean) ** 2 for value in fractions), Fraction(0)) / len(values)
    assert moments.deviation(total, squared[0], len(values)) == rounded_root(variance)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_the_deviation_is_the_populations(values: list[float]) -> None:
    array, starts = np.array(values), np.array([0])
    found = moments.deviation(moments.sums(array, starts)[0], moments.squares(array, starts)[0], len(values))
    assert found == pytest.approx(statistics.pstdev(values), rel=1e-12, abs=1e-300)
