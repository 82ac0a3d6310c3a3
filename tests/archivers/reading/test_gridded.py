"""Readings on an even grid, against a plain loop over the readings."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bucketwise.archivers.reading import gridded
from bucketwise.archivers.reading.formats import Format, write
from bucketwise.archivers.reading.gridded import GriddedReadings, Instants, reach_of
from bucketwise.buckets.packing import Rows
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy
from bucketwise.rollups.grids import FILLINGS, Fill

POLICY = make_policy(
    name="ticks",
    collection="ticks",
    model="reading",
    time_field="d",
    series_fields=("s",),
    value_fields=("p", "q"),
)
GAPS = {"p": 30, "q": 10}
#: Time, series, p and q; None: no number.
Plain = tuple[int, str, float | None, float | None]

values = st.one_of(st.none(), st.floats(-1e3, 1e3))
readings = st.lists(st.tuples(st.integers(0, 120), st.sampled_from("abc"), values, values), max_size=25).map(
    lambda found: sorted(found, key=lambda it: it[:2])
)


@dataclass(frozen=True)
class Pieces:
    """The readings, as `Readings` gives them: in pieces that don't part what has one time."""

    found: Sequence[Plain]
    size: int
    marks: tuple[str, ...] = ()
    policy: Policy = POLICY

    def __iter__(self) -> Iterator[Rows]:
        piece: list[Plain] = []
        for one in self.found:
            if len(piece) >= self.size and one[0] != piece[-1][0]:
                yield self._rows(piece)
                piece = []
            piece.append(one)
        if piece:
            yield self._rows(piece)

    @staticmethod
    def _rows(piece: Sequence[Plain]) -> Rows:
        names = sorted({it[1] for it in piece})
        numbers = {"p": [it[2] for it in piece], "q": [it[3] for it in piece]}
        return Rows(
            [(name,) for name in names],
            np.array([names.index(it[1]) for it in piece], dtype=np.int32),
            np.array([it[0] for it in piece], dtype=np.int64),
            {name: np.array([it or 0.0 for it in column]) for name, column in numbers.items()},
            {name: np.array([it is not None for it in column]) for name, column in numbers.items()},
        )

    def series_types(self) -> dict[str, str]:
        return {}


Row = tuple[int, str, bool, list[float | None]]


def plain(found: Sequence[Plain], instants: Sequence[int], fill: Fill) -> list[Row]:
    rows = []
    for at in instants:
        for series in sorted({it[1] for it in found if it[0] <= at}):
            of_series = [it for it in found if it[1] == series]
            has_own = any(it[0] == at for it in of_series)
            held = {
                "p": [(it[0], it[2]) for it in of_series if it[2] is not None],
                "q": [(it[0], it[3]) for it in of_series if it[3] is not None],
            }
            if has_own:
                own = [[number for time, number in held[name] if time == at] for name in held]
                row = [it[-1] if it else None for it in own]
            else:
                row = [between(held[name], at, GAPS[name], fill) for name in held]
            rows.append((at, series, not has_own, row))
    return rows


def between(numbers: Sequence[tuple[int, float]], at: int, gap: int, fill: Fill) -> float | None:
    before = [it for it in numbers if it[0] < at]
    after = [it for it in numbers if it[0] > at]
    if fill == "null" or not before:
        return None
    time, number = before[-1]
    if fill == "previous":
        return number if at - time <= gap else None
    if not after or after[0][0] - time > gap:
        return None
    later, other = after[0]
    return number + (other - number) * (at - time) / (later - time)


def rows_of(source: GriddedReadings) -> list[Row]:
    found = []
    for rows in source:
        assert len(rows.time)
        for row, (at, series, is_filled) in enumerate(
            zip(rows.time.tolist(), rows.row_series.tolist(), rows.marks["filled"].tolist(), strict=True)
        ):
            told = [float(rows.values[it][row]) if rows.present[it][row] else None for it in ("p", "q")]
            found.append((at, rows.series[series][0], is_filled, told))
    return found


#: At 30, the next reading of "a" has not been read yet; at 70, it is too far away.
WAITING: list[Plain] = [(20, "a", 1.0, 1.0), (30, "b", 5.0, 5.0), (40, "a", 3.0, 3.0), (75, "b", 5.0, 5.0)]


@example(WAITING, "linear", 1, 10, 1000)
@example(WAITING, "linear", 1, 10, 1)
@example(WAITING, "linear", 9, 10, 4)
@example(WAITING, "previous", 1, 10, 4)
@given(
    readings,
    st.sampled_from(list(FILLINGS)),
    st.integers(1, 9),
    st.integers(1, 40),
    st.sampled_from([1, 4, 1000]),
)
def test_each_instant_is_what_a_loop_gives(
    found: list[Plain], fill: Fill, size: int, step: int, cells: int
) -> None:
    instants = Instants(20, 100, step)
    with patch.object(gridded, "_CELLS", cells):
        told = rows_of(GriddedReadings(Pieces(found, size), instants, FILLINGS[fill], GAPS))
    wanted = plain(found, range(20, 100, step), fill)
    assert [it[:3] for it in told] == [it[:3] for it in wanted]
    for one, other in zip(told, wanted, strict=True):
        for held, expected in zip(one[3], other[3], strict=True):
            assert held == (None if expected is None else pytest.approx(expected, abs=1e-9)), one


@given(readings.filter(len), st.sampled_from(list(FILLINGS)))
def test_formats_have_the_mark(found: list[Plain], fill: Fill) -> None:
    wanted = plain(found, range(0, 150, 10), fill)
    texts: Mapping[Format, io.BytesIO] = {form: io.BytesIO() for form in Format}
    for form, file in texts.items():
        source = GriddedReadings(Pieces(found, 5), Instants(0, 150, 10), FILLINGS[fill], GAPS)
        assert write(source, form, file) == len(wanted)
    csv, lines = (texts[it].getvalue().decode().splitlines() for it in (Format.csv, Format.json))
    assert csv[0] == "s,time,p,q,filled"
    assert [line.rsplit(",", 1)[1] for line in csv[1:]] == [str(it[2]).lower() for it in wanted]
    assert [json.loads(line)["filled"] for line in lines] == [it[2] for it in wanted]
    table = pq.read_table(texts[Format.parquet])
    assert table["filled"].to_pylist() == [it[2] for it in wanted]


def test_the_same_rows_are_there_whatever_fills_them() -> None:
    """What was read before a grid tells which series are known when it begins."""
    assert {reach_of(GAPS, it)[0] for it in FILLINGS.values()} == {timedelta(milliseconds=30)}
