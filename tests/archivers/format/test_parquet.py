"""The files of a commit, as Parquet's own tools see them."""

from __future__ import annotations

import io
import itertools

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bucketwise.archivers.format.parquet import read_buckets, write_buckets
from bucketwise.archivers.format.writing import _edges_of_days, write_parts
from bucketwise.buckets.fields.times import DAY_MS
from bucketwise.buckets.packing import Packed, PackedGroup, Rows


def group(n: int) -> PackedGroup:
    """Of n documents with a hole each."""
    some = np.arange(n, dtype=np.int32)
    one = np.ones(1, dtype=np.int32)
    return PackedGroup(
        overflow=False,
        units=some,
        order=np.zeros_like(some),
        readings=1,
        rows=some[::-1].astype(np.int64),
        held=b"",
        skeleton=bytes(9),
        hole=4 * one,
        width=4 * one,
        source=np.zeros(1, dtype=np.int8),
        reading=0 * one,
        field=np.zeros(1, dtype=np.int16),
        residue=bytes(4 * n),
        flag=0 * one[:0],
        present=b"",
    )


@pytest.mark.parametrize("n", [1, 16_000, 17_000, 100_000])
def test_of_a_buckets_file_short_lists_alone_are_not_compressed(n: int) -> None:
    data = write_buckets([group(n)])
    row_group = pq.read_metadata(io.BytesIO(data)).row_group(0)
    columns = [row_group.column(i) for i in range(row_group.num_columns)]
    plain = {it.path_in_schema.split(".")[0] for it in columns if it.compression == "UNCOMPRESSED"}
    short, by_bucket = {"hole", "width", "source", "reading", "field", "flag"}, {"units", "order", "rows"}
    assert plain == short | (by_bucket if 4 * n < 1 << 16 else set())
    assert {it.compression for it in columns} == {"UNCOMPRESSED", "ZSTD"}
    (again,) = read_buckets(data)
    assert vars(again).keys() == vars(group(n)).keys()
    for name, value in vars(group(n)).items():
        assert np.array_equal(getattr(again, name), value), name


def test_rows_of_a_day_that_lie_apart_are_refused() -> None:
    time = np.array([DAY_MS, 0, DAY_MS + 1])
    rows = Rows([("A",)], np.zeros(3, dtype=np.int32), time, {}, {})
    packed = Packed(rows, [], 0, 1)
    with pytest.raises(ValueError, match="rows of 1970-01-02 are not contiguous"):
        list(write_parts(packed, "p/{}".format, {"s": "string"}, {}, lambda _key: None))


@example([(0, [0]), (1, [0])])
@given(
    st.lists(st.tuples(st.integers(-800_000, 2_900_000), st.lists(st.integers(0, DAY_MS - 1), min_size=1)))
)
def test_the_rows_of_each_day_lie_together(days: list[tuple[int, list[int]]]) -> None:
    by_day = dict(sorted(days))
    time = [day * DAY_MS + at for day, times in by_day.items() for at in times]
    edges = _edges_of_days(np.array(time, dtype=np.int64))
    found = [time[start:end] for start, end in itertools.pairwise(edges)]
    assert found == [list(it) for _, it in itertools.groupby(time, key=lambda at: at // DAY_MS)]
    assert edges[0] == 0
    assert edges[-1] == len(time)
