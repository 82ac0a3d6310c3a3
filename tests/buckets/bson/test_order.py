"""Readings have the order of a plain sort, whether whole buckets follow one another or not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from bucketwise.buckets.columns import Columns
from bucketwise.buckets.decoding.order import Order

times = st.integers(-30, 30)
ascending = st.builds(
    lambda first, steps: list(np.cumsum([first, *steps])), times, st.lists(st.integers(1, 4))
)
buckets = st.lists(
    st.tuples(st.integers(0, 2), st.one_of(ascending, st.lists(times, max_size=6))), max_size=8
)


@pytest.mark.parametrize("part", [None, 7])
@example(found=[(0, [0, 1, 2]), (0, [2, 3, 4]), (1, [5, 6, 7])], rank=[1, 0, 2])
@example(found=[(0, [2, 3, 4]), (0, [0, 1, 2]), (1, [5, 6, 7])], rank=[1, 0, 2])
@example(found=[(0, [3, 4, 5]), (0, [0, 1, 2]), (1, [0, 1, 2])], rank=[1, 0, 2])
@example(found=[(0, [7, 8, 9]), (1, [0, 1, 2]), (0, [0, 1, 2])], rank=[0, 1, 2])
@example(found=[(0, [0, 1, 5, 3]), (1, [10, 11, 12])], rank=[0, 1, 2])
@example(found=[(0, [0, 1, 2]), (1, [10, 5, 12])], rank=[0, 1, 2])
@given(found=buckets, rank=st.permutations(range(3)))
def test_readings_are_sorted_by_part_then_series_then_time(
    part: int | None, found: list[tuple[int, list[int]]], rank: list[int]
) -> None:
    owner = [at for at, (_, held) in enumerate(found) for _ in held]
    time = [int(instant) for _, held in found for instant in held]
    columns = Columns(
        series=[("a",), ("b",), ("c",)],
        bucket_series=np.array([series for series, _ in found], dtype=np.int32),
        bucket_order=np.array([b"%d" % at for at in range(len(found))], dtype=np.bytes_),
        starts=np.array([sum(of < at for of in owner) for at in range(len(found) + 1)]),
        time=np.array(time, dtype=np.int64),
        values={},
        kinds={},
    )

    def key(at: int) -> tuple[int, int, int]:
        return time[at] // part if part else 0, rank[found[owner[at]][0]], time[at]

    wanted = sorted(range(len(time)), key=key)  # stable, as it must be
    event(f"strict: {len(set(map(key, wanted))) == len(wanted)}")
    order = Order.of(columns, np.array(rank), part)
    assert order.readings.tolist() == wanted
    assert order.take(columns.time).tolist() == [time[at] for at in wanted]
    assert order.take_series(np.arange(len(columns.series))).tolist() == [
        found[owner[at]][0] for at in wanted
    ]
    lowest = [
        min((wanted.index(at) for at, of in enumerate(owner) if of == b), default=len(time))
        for b in range(len(found))
    ]
    assert order.first.tolist() == lowest
