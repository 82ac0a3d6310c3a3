"""Days of a series without a finite number, against plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.archivers.moving.sweep import EmptyDay, ReadingsByDay
from bucketwise.buckets.columns import Columns, ValueKind
from bucketwise.buckets.fields.times import DAY_MS

#: Of each reading: its series, its day, and what it holds in two fields.
Reading = tuple[int, int, ValueKind, ValueKind]
KINDS = st.sampled_from(ValueKind)
BUCKETS = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 2), KINDS, KINDS), max_size=3), max_size=12
)


def columns(buckets: list[list[Reading]], *, of_several: bool) -> Columns:
    held = [reading for readings in buckets for reading in readings]
    series, days, *kinds = np.array(held, dtype=np.int64).T
    own: Any = series.astype(np.int32) if of_several else None
    of_buckets = [0 if of_several or not readings else readings[0][0] for readings in buckets]
    return Columns(
        series=[("a",), ("b",), ("c",)],
        bucket_series=np.array(of_buckets, dtype=np.int32),
        bucket_order=np.arange(len(buckets)).astype("S4"),
        starts=np.cumsum([0, *map(len, buckets)]),
        time=days * DAY_MS + np.arange(len(held)) % DAY_MS,
        values={},
        kinds={name: it.astype(np.uint8) for name, it in zip("pq", kinds, strict=True)},
        reading_series=own,
    )


@given(BUCKETS.filter(any), st.booleans())
def test_finds_what_a_plain_loop_finds(buckets: list[list[Reading]], of_several: bool) -> None:
    if not of_several:
        buckets = [[(readings[0][0], *rest) for _, *rest in readings] for readings in buckets]  # type: ignore[misc]
    cells: dict[tuple[str, int, int], list[ValueKind]] = {}
    for series, day, p, q in (reading for readings in buckets for reading in readings):
        cells.setdefault(("p", series, day), []).append(p)
        cells.setdefault(("q", series, day), []).append(q)
    had = {cell[:2] for cell, kinds in cells.items() if ValueKind.FINITE in kinds}
    empty = {cell for cell, kinds in cells.items() if ValueKind.FINITE not in kinds}
    days = ReadingsByDay(columns(buckets, of_several=of_several))
    found = days.empty_days("pq")
    assert len(found) == len(empty)
    assert set(found) == {EmptyDay(*cell, cell[:2] in had) for cell in empty}
    for doubt in found:
        holding = [
            i
            for i, readings in enumerate(buckets)
            if any((series, day) == (doubt.series, doubt.day) for series, day, _, _ in readings)
        ]
        assert days.buckets([doubt]).tolist() == holding
    assert days.buckets([]).tolist() == []
