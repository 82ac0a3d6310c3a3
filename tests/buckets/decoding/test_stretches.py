"""Documents padded and cut again: the same as plain Python has it, byte by byte."""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bucketwise.buckets.layouts.union import cut, pad


class Padded(NamedTuple):
    flag: list[int]  # of each byte
    present: list[list[bool]]  # of each document
    rows: list[bytes]

    @property
    def held(self) -> bytes:
        """Back to back."""
        return bytes(
            byte
            for there, row in zip(self.present, self.rows, strict=True)
            for flag, byte in zip(self.flag, row, strict=True)
            if there[flag]
        )

    @property
    def flags(self) -> NDArray[np.bool_]:
        return np.array(self.present, dtype=np.bool_)

    @property
    def matrix(self) -> NDArray[np.uint8]:
        return np.frombuffer(b"".join(self.rows), dtype=np.uint8).reshape(len(self.rows), -1)


@st.composite
def documents(draw: st.DrawFn, always: bool = False) -> Padded:
    """Of up to four flags, in runs; `always`: as in a union, where the last flag is always set."""
    runs = draw(st.lists(st.tuples(st.integers(-1, 3), st.integers(1, 12)), min_size=1, max_size=12))
    flag = list(chain.from_iterable([number] * width for number, width in runs))
    there = st.lists(st.booleans(), min_size=4, max_size=4).map(lambda it: [*it, always or it[0]])
    count = draw(st.integers(1, 6))
    rows = st.binary(min_size=len(flag), max_size=len(flag))
    present = draw(st.lists(there, min_size=count, max_size=count))
    return Padded(flag, present, draw(st.lists(rows, min_size=count, max_size=count)))


@given(documents() | documents(always=True))
def test_what_is_there_is_cut(it: Padded) -> None:
    assert cut(it.matrix, it.flags, np.array(it.flag)).tobytes() == it.held


@given(documents() | documents(always=True), st.binary(min_size=1, max_size=1))
def test_what_is_padded_has_its_own_bytes_and_else_those_of_the_empty_ones(it: Padded, byte: bytes) -> None:
    flag, flags = np.array(it.flag), it.flags
    empty = np.full_like(it.matrix, byte[0])
    held = np.frombuffer(it.held, dtype=np.uint8)
    found = pad(held, flags, flag, empty)
    for row, expected, there in zip(found.tolist(), it.rows, it.present, strict=True):
        assert row == [own if there[of] else byte[0] for own, of in zip(expected, it.flag, strict=True)]
    assert cut(found, flags, flag).tobytes() == it.held


@given(documents(always=True), st.integers(-3, 3).filter(bool))
def test_documents_of_another_length_than_their_flags_say_are_refused(it: Padded, more: int) -> None:
    held = (it.held + bytes(3))[: max(0, len(it.held) + more)]
    if len(held) == len(it.held):
        held += b"\0"
    with pytest.raises(ValueError, match=f"{len(held)} bytes where the flags"):
        pad(np.frombuffer(held, dtype=np.uint8), it.flags, np.array(it.flag), it.matrix)


@pytest.mark.parametrize("size", [7, 9])
def test_a_matrix_of_another_width_than_its_flags_is_refused(size: int) -> None:
    """What lies beyond it is never read."""
    flag, present = np.array([0] * 4 + [1] * 4), np.array([[True, False], [True, True]])
    matrix = np.zeros((2, size), dtype=np.uint8)
    with pytest.raises(ValueError, match=f"{2 * size} bytes where 2 documents of 8"):
        cut(matrix, present, flag)
    with pytest.raises(ValueError, match="12 bytes where"):
        pad(np.zeros(12, dtype=np.uint8), present, flag, matrix)


def test_stretches_go_on_from_one_document_to_the_next() -> None:
    flag = np.array([1, 0, 0, 1])
    rows = [b"abcd", b"efgh", b"ijkl"]
    matrix = np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(3, 4)
    for there, expected in [
        ([1, 1, 1], b"abcdefghijkl"),
        ([1, 0, 1], b"abcdehijkl"),
        ([0, 0, 0], b"adehil"),
    ]:
        present = np.array([[it, True] for it in there], dtype=np.bool_)
        assert cut(matrix, present, flag).tobytes() == expected
