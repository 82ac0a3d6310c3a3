"""Values of readings: whatever stands there, as doubles and kinds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from buckets.bsontypes import DECIMAL128, DOUBLE, INT32, INT64, decode_value
from buckets.columns import Kind
from buckets.layout import Bytes2D, Element, read_holes

#: The types that are numbers.
NUMBERS = (DOUBLE, INT32, INT64, DECIMAL128)
_DTYPES = {DOUBLE: "<f8", INT32: "<i4", INT64: "<i8"}


def read_values(
    matrix: Bytes2D, elements: Sequence[Element | None]
) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """Values as n × k doubles (NaN where there is no number) and their kinds. Longs beyond 2**53 and
    decimals become the nearest double."""
    shape = (len(matrix), len(elements))
    by_type: dict[int, list[tuple[int, Element]]] = {}
    for i, element in enumerate(elements):
        if element is not None:
            by_type.setdefault(element.type, []).append((i, element))
    values, kinds = np.full(shape, np.nan), np.full(shape, Kind.MISSING, dtype=np.uint8)
    for kind, chosen in by_type.items():
        at = [i for i, _ in chosen]
        if kind not in NUMBERS:
            kinds[:, at] = Kind.NONNUMERIC
            continue
        if kind == DECIMAL128:
            read = np.array([_decimals(matrix, element) for _, element in chosen]).T
        else:
            holes = np.array([element.hole for _, element in chosen], dtype=np.int64)
            read = read_holes(matrix, holes, _DTYPES[kind]).astype(np.float64, copy=False)
        found = Kind.NONFINITE - np.isfinite(read).view(np.uint8)  # FINITE is one less
        if len(at) == len(elements):
            return read, found
        values[:, at], kinds[:, at] = read, found
    return values, kinds


def _decimals(matrix: Bytes2D, element: Element) -> list[float]:
    cells = matrix[:, element.start : element.start + element.size]
    decimals = [decode_value(DECIMAL128, cell.tobytes()).to_decimal() for cell in cells]
    return [math.nan if decimal.is_nan() else float(decimal) for decimal in decimals]  # no float is an sNaN
