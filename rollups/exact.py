"""Exact sums of doubles: integers that add up in any order to the same bits.

Every finite double is a whole multiple of 2**-1074, and its square of 2**-2148. So a sum is kept as a Python
integer in those units. It is rounded once, when a person reads it.
"""

from __future__ import annotations

from math import inf, isqrt

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]

UNIT = 1074  # a sum counts in 2**-UNIT, a sum of squares in 2**-(2 * UNIT)

_LIMB = 32
_LOW = (1 << _LIMB) - 1
_HALF = 27  # a mantissa of 53 bits splits into 26 and 27


def sums(values: Doubles, starts: Integers) -> list[int]:
    """The exact sum of each run of finite values, in units of 2**-1074; a run begins at each of `starts`."""
    mantissa, shift, negative = _parts(values)
    return _add_up(mantissa, shift, negative, starts)


def squares(values: Doubles, starts: Integers) -> list[int]:
    """The exact sum of squares of each run of finite values, in units of 2**-2148."""
    mantissa, shift, _ = _parts(values)
    high, low = mantissa >> _HALF, mantissa & ((1 << _HALF) - 1)
    terms = ((high * high, 2 * _HALF), (2 * high * low, _HALF), (low * low, 0))
    parts = [_add_up(term, 2 * shift + extra, None, starts) for term, extra in terms]
    return [sum(part) for part in zip(*parts, strict=True)]


def total(exact: int) -> float:
    """The sum, correctly rounded; ±inf where it is larger than any double."""
    return _divide(exact, 1 << UNIT)


def mean(exact: int, count: int) -> float:
    """The mean, correctly rounded: always finite, also where the sum is not."""
    return _divide(exact, count << UNIT)


def deviation(exact: int, exact_squares: int, count: int) -> float:
    """The population's standard deviation, correctly rounded."""
    spread = count * exact_squares - exact * exact  # (count · deviation)² in units of 2**-2148
    if spread == 0:
        return 0.0
    # Enough bits that no double's rounding boundary, times count, falls between two neighbouring roots.
    extra = max(1, 64 + count.bit_length() - spread.bit_length() // 2)
    scaled = spread << (2 * extra)
    root = isqrt(scaled)
    sticky = 2 * root + (root * root != scaled)
    return _divide(sticky, count << (UNIT + extra + 1))


def _divide(numerator: int, denominator: int) -> float:
    try:
        return numerator / denominator + 0.0  # Python rounds int / int correctly; + 0.0 makes -0.0 0.0
    except OverflowError:
        return inf if numerator > 0 else -inf


def _parts(values: Doubles) -> tuple[Integers, Integers, NDArray[np.bool_]]:
    """value = ± mantissa · 2**shift · 2**-1074"""
    bits = np.ascontiguousarray(values).view(np.int64)
    exponent = (bits >> 52) & 0x7FF
    mantissa = (bits & ((1 << 52) - 1)) | ((exponent > 0).astype(np.int64) << 52)
    return mantissa, np.maximum(exponent, 1) - 1, bits < 0


def _add_up(
    magnitude: Integers, shift: Integers, negative: NDArray[np.bool_] | None, starts: Integers
) -> list[int]:
    """The sum of ± magnitude · 2**shift of each run; 0 <= magnitude < 2**63.

    Each term falls into three limbs of at most 33 bits: int64 holds the sums of 2**30 of them.
    """
    used = magnitude != 0
    if not used.any():
        return [0] * len(starts)
    base = int(shift[used].min())
    place = np.where(used, shift - base, 0)
    limb, offset = place >> 5, place & (_LIMB - 1)
    low = (magnitude & _LOW) << offset
    high = (magnitude >> _LIMB) << offset
    parts = [low & _LOW, (low >> _LIMB) + (high & _LOW), high >> _LIMB]
    if negative is not None:
        parts = [np.where(negative, -part, part) for part in parts]
    result = [0] * len(starts)
    present = np.flatnonzero(np.bincount(limb)).tolist()  # one or two, unless magnitudes differ widely
    for at in present:
        here = limb == at
        for index, part in enumerate(parts):
            mine = part if len(present) == 1 else np.where(here, part, 0)
            column = np.add.reduceat(mine, starts).tolist()
            up = _LIMB * (at + index)
            result = [so_far + (more << up) for so_far, more in zip(result, column, strict=True)]
    return [value << base for value in result]
