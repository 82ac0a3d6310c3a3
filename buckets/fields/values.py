"""Values of readings, of any type, as doubles and kinds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.types import DECIMAL128, DOUBLE, INT32, INT64, decode_value
from bucketwise.buckets.columns import ValueKind
from bucketwise.buckets.layouts.layout import Cell, Element, Group, by_type

#: The types that are numbers.
NUMBERS = (DOUBLE, INT32, INT64, DECIMAL128)
_DTYPES = {DOUBLE: "<f8", INT32: "<i4", INT64: "<i8"}


def read_values(group: Group, cells: Sequence[Cell]) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """Returns values as doubles, (n, k), NaN where there is no number, and their kinds. Longs beyond 2**53
    and decimals become the nearest double."""
    if (alike := group.of_one_type(cells)) and alike[0] in NUMBERS:
        return _numbers(group, *alike)
    shape = (len(group.matrix), len(cells))
    values, kinds = np.full(shape, np.nan), np.full(shape, ValueKind.MISSING, dtype=np.uint8)
    for kind, at, elements in by_type(cells):
        if kind in NUMBERS:
            read, found = _numbers(group, kind, elements)
            group.put(values, at, read, elements)
            group.put(kinds, at, found, elements)
        else:
            group.put(kinds, at, np.array(ValueKind.NONNUMERIC, dtype=np.uint8), elements)
    return values, kinds


def _numbers(
    group: Group, kind: int, elements: Sequence[Element]
) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    if kind == DECIMAL128:
        read = np.array([_decimals(group, element) for element in elements]).T
    else:
        read = group.read(elements, _DTYPES[kind]).astype(np.float64, copy=False)
    return read, np.uint8(ValueKind.NONFINITE) - np.isfinite(read).view(np.uint8)  # FINITE is one less


def _decimals(group: Group, element: Element) -> NDArray[np.float64]:
    found = np.full(len(group.matrix), np.nan)
    rows = np.flatnonzero(group.present[:, element.flag]) if group.present is not None else range(len(found))
    for row in rows:
        raw = group.matrix[row, element.start : element.start + element.size].tobytes()
        decimal = decode_value(DECIMAL128, raw).to_decimal()
        if not decimal.is_nan():  # no float is an sNaN
            found[row] = float(decimal)
    return found


def rounded_sum(values: Iterable[float]) -> float:
    """Returns the sum of finite numbers, rounded once; ±inf or NaN where doubles can't hold the way to it."""
    numbers = list(values)
    try:
        return math.fsum(numbers)
    except OverflowError:
        return sum(numbers, 0.0)
