"""Of readings of one series at one instant, the first or the last counts: by `_id`, then by their place."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.buckets.columns import Columns
from bucketwise.rollups.rolling import slices as duplicates
from bucketwise.rollups.rolling.slices import Gathered

#: By bucket: series and time of each reading. The value tells its bucket and its place in there.
Buckets = dict[int, list[tuple[int, int]]]


def _columns(buckets: Buckets) -> Columns:
    held = [(name, place, *it) for name in sorted(buckets) for place, it in enumerate(buckets[name])]
    lengths = [len(buckets[name]) for name in sorted(buckets)]
    used = sorted({series for _, _, series, _ in held})
    return Columns(
        series=[(it,) for it in used],
        bucket_series=np.zeros(len(buckets), dtype=np.int32),
        bucket_order=np.array([b"%09d" % name for name in sorted(buckets)], dtype="S9"),
        starts=np.cumsum([0, *lengths]).astype(np.int64),
        time=np.array([time for *_, time in held], dtype=np.int64),
        values={"v": np.array([1000.0 * name + place for name, place, *_ in held])},
        kinds={"v": np.ones(len(held), dtype=np.uint8)},
        reading_series=np.array([used.index(series) for _, _, series, _ in held], dtype=np.int32),
    )


def _found(columns: Columns) -> list[tuple[int, int, float]]:
    series = [columns.series[i][0] for i in columns.series_of_readings.tolist()]
    return list(zip(series, columns.time.tolist(), columns.values["v"].tolist(), strict=True))


@pytest.mark.parametrize("counts", ["first", "last"])
@pytest.mark.parametrize("limit", [1 << 20, 0])
@given(
    held=st.dictionaries(
        st.integers(0, 99), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=6), max_size=8
    ),
    split=st.integers(0, 99),
)
def test_one_of_each_series_and_instant_counts(
    held: Buckets, split: int, limit: int, counts: Literal["first", "last"]
) -> None:
    wanted: dict[tuple[int, int], float] = {}
    for name in sorted(held):
        for place, key in enumerate(held[name]):
            if 2 <= key[1] < 8 and (counts == "last" or key not in wanted):
                wanted[key] = 1000.0 * name + place
    gathered = Gathered(counts, 2, 8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "GATHERED_BYTES", limit)
        for part in (
            {it: held[it] for it in held if it >= split},
            {it: held[it] for it in held if it < split},
        ):
            gathered.add(_columns(part))
        found = [it for columns in gathered.counted() for it in _found(columns)]
    assert sorted(found) == sorted((*key, value) for key, value in wanted.items())


def test_what_counts_stays_in_the_order_of_its_buckets() -> None:
    gathered = Gathered("last", 0, 100)
    gathered.add(_columns({7: [(1, 5), (1, 6)], 9: [(1, 5)]}))
    gathered.add(_columns({2: [(1, 4), (1, 6)], 8: [(0, 6)]}))
    (columns,) = gathered.counted()
    assert _found(columns) == [(1, 4, 2000.0), (1, 6, 7001.0), (0, 6, 8000.0), (1, 5, 9000.0)]
    assert columns.lengths.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("at_once", [1, 4, 1 << 18])
@pytest.mark.parametrize("counts", ["keep", "last"])
@given(
    held=st.dictionaries(
        st.integers(0, 99), st.tuples(st.integers(0, 3), st.lists(st.integers(0, 9), max_size=4)), max_size=9
    ),
    split=st.integers(0, 99),
)
def test_a_series_is_worked_on_as_a_whole(
    held: dict[int, tuple[int, list[int]]], split: int, counts: Literal["keep", "last"], at_once: int
) -> None:
    """However many readings of several series are worked on at once; where each bucket is of one series."""
    wanted: dict[int, list[tuple[int, float]]] = {}
    for name in sorted(held):
        series, times = held[name]
        for place, time in enumerate(times):
            kept = wanted.setdefault(series, [])
            if counts == "last":
                kept[:] = [it for it in kept if it[0] != time]
            kept.append((time, 1000.0 * name + place))
    gathered = Gathered(counts, 0, 10)
    for half in ({it for it in held if it >= split}, {it for it in held if it < split}):
        part = _columns({it: [(held[it][0], time) for time in held[it][1]] for it in half})
        used = [series for (series,) in part.series]
        of_buckets = [used.index(held[it][0]) if held[it][1] else 0 for it in sorted(half)]
        gathered.add(replace(part, reading_series=None, bucket_series=np.array(of_buckets, dtype=np.int32)))
    found: dict[int, list[tuple[int, float]]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "_AT_ONCE", at_once)
        for columns in gathered.counted():
            several: dict[int, list[tuple[int, float]]] = {}
            for series, time, value in _found(columns):
                several.setdefault(series, []).append((time, value))
            assert not found.keys() & several.keys()
            found |= several
    assert found == wanted
