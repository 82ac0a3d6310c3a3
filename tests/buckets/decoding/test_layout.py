"""Which documents are alike, by changing every byte of one; and holes wherever they may lie."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bucketwise.buckets.bson.raw import Docs
from bucketwise.buckets.layouts.groups import group_by_layout
from bucketwise.buckets.layouts.layout import read_holes, write_holes
from tests.buckets import handmade as bson_of

#: Of each value: how many of its bytes, in front and at the end, say how long it is or what it holds.
FRAMED = [
    (bson_of.double(56.58), 0, 0),
    (bson_of.int32(7), 0, 0),
    (bson_of.int64(7), 0, 0),
    (bson_of.decimal("56.58"), 0, 0),
    (bson_of.date(7), 0, 0),
    (bson_of.timestamp(1, 2), 0, 0),
    (bson_of.boolean(True), 0, 0),
    (bson_of.object_id(b"0123456789ab"), 0, 0),
    (bson_of.text("MDB"), 4, 1),
    (bson_of.text(""), 4, 1),
    (bson_of.code("f()"), 4, 1),
    (bson_of.symbol("sym"), 4, 1),
    (bson_of.binary(b"data", 5), 5, 0),
]
WHOLE = [
    bson_of.regex("^a", "im"),
    bson_of.db_pointer("db.c", b"0123456789ab"),
    bson_of.code_with_scope("f", ("x", bson_of.int32(1))),
    bson_of.null,
    bson_of.undefined,
    bson_of.min_key,
    bson_of.max_key,
]


def is_alike(document: bytes, at: int, bit: int) -> bool:
    changed = bytearray(document)
    changed[at] ^= 1 << bit
    return len(next(group_by_layout(Docs.of([document, bytes(changed)]))).members) == 2


@pytest.mark.parametrize("wrap", ["top", "document", "array"])
def test_two_documents_are_alike_where_just_bytes_of_values_differ(wrap: str) -> None:
    framed = [*FRAMED, *((held, len(held[1]), 0) for held in WHOLE)]
    fields = [(str(i), held) for i, (held, _, _) in enumerate(framed)]
    kind, inner = bson_of.sub(*fields)
    top = bson_of.document(("in", (4 if wrap == "array" else kind, inner)))
    document, position = (inner, 4) if wrap == "top" else (top, 4 + len("\4in\0") + 4)
    free: set[int] = set()
    for name, (held, front, back) in zip((name for name, _ in fields), framed, strict=True):
        position += 1 + len(name) + 1
        free |= set(range(position + front, position + len(held[1]) - back))
        position += len(held[1])
    found = {(at, bit) for at in range(len(document)) for bit in (0, 7) if is_alike(document, at, bit)}
    assert found == {(at, bit) for at in free for bit in (0, 7)}


@example([3, 11, 19, 30, 41, 42])
@example([40, 30, 20, 10, 0])
@example([0, 8, 20, 32, 40])
@given(st.lists(st.integers(0, 56), unique=True, max_size=8))
def test_holes_are_read_wherever_they_lie(offsets: list[int]) -> None:
    matrix = np.arange(3 * 64, dtype=np.uint8).reshape(3, 64)
    rows = [row.tobytes() for row in matrix]
    found = read_holes(matrix, np.array(offsets, dtype=np.int64), "<i8")
    assert found.tolist() == [[struct.unpack_from("<q", row, at)[0] for at in offsets] for row in rows]


@given(st.permutations(range(7)), st.integers(0, 7))
def test_holes_are_written_where_they_are_read(places: list[int], count: int) -> None:
    offsets = np.array([1 + 9 * place - (place > 3) for place in places[:count]], dtype=np.int64)
    matrix, values = np.zeros((2, 64), np.uint8), np.arange(2 * count, dtype="<i8").reshape(2, count) - 3
    write_holes(matrix, offsets, values)
    expected = [bytearray(64), bytearray(64)]
    for row, held in zip(expected, values.tolist(), strict=True):
        for at, value in zip(offsets.tolist(), held, strict=True):
            struct.pack_into("<q", row, at, value)
    assert [row.tobytes() for row in matrix] == list(map(bytes, expected))
