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

_PIECE = 20  # bits: products of two pieces have 40 …
_LONGEST = 1 << 13  # … and the sum of so many 53
_MOST = 1 << 22  # … and what is cut adds up to 63
_PIECES = 4
_FAR = 300  # products of pieces stay far inside what doubles can hold


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


def sums_and_squares(values: Doubles, starts: Integers) -> tuple[list[int], list[int]]:
    """`sums` and `squares` of the same runs, several times as fast where magnitudes don't differ widely.

    Values are split into a few pieces, each a whole number of up to _PIECE bits times a power of two that
    all share. Sums of pieces, and of products of two, then fit into a double without rounding, as long as
    a run is no longer than _LONGEST; what is longer is cut.
    """
    if not 0 < len(values) < _MOST or (pieces := _pieces(values)) is None:
        return sums(values, starts), squares(values, starts)
    cuts = starts
    if len(values) > _LONGEST:
        cuts = np.union1d(starts, np.arange(0, len(values), _LONGEST))
    firsts = np.searchsorted(cuts, starts)

    def add_up(terms: Doubles, exponent: int, unit: int) -> list[int]:
        """Of each run, in units of 2**-unit."""
        whole = np.ldexp(np.add.reduceat(terms, cuts), -exponent).astype(np.int64)
        return [one << (exponent + unit) for one in np.add.reduceat(whole, firsts).tolist()]

    added = [add_up(piece, exponent, UNIT) for piece, exponent in pieces]
    squared = []
    for at, (piece, exponent) in enumerate(pieces):
        squared.append(add_up(piece * piece, 2 * exponent, 2 * UNIT))
        for other, lower in pieces[at + 1 :]:
            squared.append(add_up(2 * piece * other, exponent + lower, 2 * UNIT))
    return list(map(sum, zip(*added, strict=True))), list(map(sum, zip(*squared, strict=True)))


def _pieces(values: Doubles) -> list[tuple[Doubles, int]] | None:
    """Pieces that add up to the values, each with the exponent of which it is a multiple. None where
    magnitudes differ, or are, so much that it would take more than a few, or lose bits."""
    exponent = int(np.frexp(max(values.max(), -values.min()))[1])
    if not _FAR > exponent > -_FAR:
        return None
    rest, pieces = values, []
    for _ in range(_PIECES):
        exponent -= _PIECE
        # Adding so much makes the sum round to multiples of 2**exponent; taking it off again is exact.
        shift = 1.5 * 2.0 ** (exponent + 52)
        high = (rest + shift) - shift
        pieces.append((high, exponent))
        rest = rest - high
        if not rest.any():
            return pieces
    return None


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
