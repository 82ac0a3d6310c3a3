"""What runs do last: parts move to another storage class, and a table lists what stands. Traces that no
program of the model could leave are told."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.explore.explorer import Scope
from tests.explore.paths import Paths
from tests.faults.crashes.traces import words

#: Without the copy, another run has made it.
MOVED = [
    *("mongo commit schedule of moves", "s3 HeadObject data", "s3 CopyObject data", "s3 HeadObject data"),
    "mongo commit move of parts",
]
LISTED = [
    *("file put iceberg", "mongo commit note of the table", "file remove iceberg", "file put iceberg"),
]
BEFORE = (
    *(("write", "insert", 1, 0), ("start", "A", "run", 0), ("step", "A", 1000)),
    *(("write", "insert", 2, 0), ("start", "A", "archive", 0), ("step", "A", 1000)),
    *[("tick", 24)] * 3,
)


@pytest.fixture(scope="module")
def paths() -> Paths:
    found = Paths()
    for kind in ("lake", "moving alone"):
        found.explore_crashes(BEFORE, "run", 0, kind)
    found.explore(Scope(("archive",), (0,), kind="lake"), range(3))
    return found


@pytest.mark.parametrize(
    ("program", "trace", "needed"), [("run_and_move", MOVED, (1, 3)), ("run_and_sync", LISTED, (0, 1))]
)
def test_no_step_can_be_left_out(paths: Paths, program: str, trace: list[str], needed: Iterable[int]) -> None:
    whole = list(words(iter(trace)))
    ends = range(len(whole) + 1)
    assert [paths.fault(program, whole[:end]) for end in ends] == [None] * len(ends)
    for at in needed:
        assert paths.fault(program, [*whole[:at], *whole[at + 1 :]]) is not None, trace[at]


def test_a_table_is_noted_once_it_is_there(paths: Paths) -> None:
    assert paths.fault("run_and_sync", list(words(iter([LISTED[1], LISTED[0], *LISTED[2:]])))) is not None
