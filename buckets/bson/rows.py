"""Bytes of documents of one length, as the rows of matrices."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

#: Documents of one length, a row each.
Rows = NDArray[np.uint8]
#: A function of CPython: without a text, it returns bytes of uncleared memory.
unwritten = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_char_p, ctypes.c_ssize_t)(
    ("PyBytes_FromStringAndSize", ctypes.pythonapi)
)


def filled(size: int, fill: Callable[[NDArray[np.uint8]], object]) -> bytes:
    """Returns `size` bytes that `fill` writes in place. An array of numpy's own would have to be copied."""
    buffer = BytesIO(unwritten(None, size))
    fill(np.frombuffer(buffer.getbuffer(), np.uint8))
    return buffer.getvalue()  # nobody can write to them any more; else these would be a copy too


def back_to_back(matrices: list[Rows]) -> bytes:
    """Returns the rows of all matrices. Empties the list, so that memory is freed matrix by matrix."""

    def fill(target: NDArray[np.uint8]) -> None:
        matrices.reverse()
        while matrices:
            matrix = matrices.pop()
            target[: matrix.size].reshape(matrix.shape)[:] = matrix
            target = target[matrix.size :]

    return filled(sum(matrix.size for matrix in matrices), fill)


def take_rows(matrix: NDArray[np.uint8], rows: NDArray[np.int64], target: NDArray[np.uint8]) -> None:
    """Copies rows of a matrix. They must exist: numpy does not check, since the mode that does makes a copy
    first."""
    matrix.take(rows, axis=0, out=target.reshape(len(rows), matrix.shape[1]), mode="clip")
