"""Finds the distinct values of an array and the index of each value among them, faster than by sorting."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def distinct_rows(rows: NDArray[np.uint8]) -> tuple[list[bytes], NDArray[np.int64]]:
    """Returns all distinct last dimensions, and the index among them for each place of the other
    dimensions."""
    import pyarrow as pa

    *shape, width = rows.shape
    buffers = [None, pa.py_buffer(np.ascontiguousarray(rows).reshape(-1))]
    held = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), math.prod(shape), buffers)
    encoded = held.dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().reshape(shape).astype(np.int64)


def distinct_numbers(numbers: NDArray[np.int64], end: int) -> tuple[list[int], NDArray[np.int64]]:
    """Returns all distinct numbers, none below 0 and all below the end, and the index among them for each
    place."""
    if end > 4 * numbers.size:
        found, which = np.unique(numbers, return_inverse=True)
        return found.tolist(), which.reshape(numbers.shape)
    is_there = np.zeros(end, dtype=np.bool_)
    is_there[numbers] = True
    return np.flatnonzero(is_there).tolist(), (np.cumsum(is_there) - 1)[numbers]


def distinct_doubles(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Returns all distinct values, and the index of each value among them. 0.0 and -0.0 are two."""
    import pyarrow as pa

    encoded = pa.array(values).dictionary_encode()
    return encoded.dictionary.to_numpy(), encoded.indices.to_numpy().astype(np.int64)
