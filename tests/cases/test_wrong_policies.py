"""Policies written by hand that misread: they are stopped before anything is archived."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bson
import pytest
from pymongo.database import Database

from tests.cases.case import Bench
from tests.jobs.command import CommandLine

Db = Database[dict[str, Any]]
_START = datetime(2025, 3, 3, tzinfo=UTC)
_REST = """
[policies.c.rollup]
hourly = "c_hourly"
[policies.c.archive]
after = "1d"
to = "offline"
"""
_RIGHT = 'slot = "30m"\nspan = "day"'
#: How far apart documents come, how many slots each has, and how a policy misreads them.
WRONG = {
    "half-hours as minutes": (24, 48, 'slot = "minute"'),
    "half-hours as quarters": (24, 48, 'slot = "15m"\nspan = "day"'),
    "hours as half-hours": (24, 24, 'slot = "30m"\nspan = "day"'),
    "hours as minutes": (24, 24, 'slot = "minute"'),
    "five minutes as minutes": (1, 12, 'slot = "minute"'),
    "two minutes as minutes": (1, 30, 'slot = "minute"'),
    "days of a month as hours": (31 * 24, 24, 'slot_levels = ["hour"]'),
}


@pytest.fixture
def bench(tmp_path: Path, database: Db, mongodb_uri: str, bucketwise: CommandLine) -> Bench:
    found = Bench(tmp_path, database, mongodb_uri, bucketwise)
    found.now = "2026-03-03T00:00:00Z"
    return found


def _write(bench: Bench, lines: str) -> None:
    head = '[policies.c]\ncollection = "c"\nmodel = "slots"\ntime_field = "d"\nseries_fields = ["m"]\n'
    bench.write_policy(f'{head}value_fields = ["v"]\n{lines}\n{_REST}')


def _load(bench: Bench, hours: int, slots: int, first: int = 0) -> None:
    documents = []
    for number in range(first, first + 6):
        values = [None if (number + place) % 11 == 3 else float(place) for place in range(slots)]
        document = {"_id": number, "m": "a", "d": _START + number * timedelta(hours=hours), "v": values}
        documents.append(bson.encode(document))
    bench.load(documents)


def _is_stopped(bench: Bench, code: str = "slots-sparse") -> None:
    before, summaries = bench.raw("c"), bench.raw("c_hourly")
    (policy,) = json.loads(bench.run("check").out)["policies"]
    codes = [it["code"] for it in policy["findings"] if it["severity"] == "error"]
    assert codes == [code]
    archived = len(list((bench.folder / "store").rglob("*.parquet")))
    ran = bench.run("run")
    assert (ran.code, bench.raw("c")) == (1, before), ran.out
    assert len(list((bench.folder / "store").rglob("*.parquet"))) == archived
    assert bench.raw("c_hourly") == summaries


@pytest.mark.parametrize(
    "name", [next(iter(WRONG)), *(pytest.param(it, marks=pytest.mark.proof) for it in list(WRONG)[1:])]
)
def test_slots_of_another_width_are_stopped(bench: Bench, name: str) -> None:
    hours, slots, lines = WRONG[name]
    _load(bench, hours, slots)
    _write(bench, lines)
    _is_stopped(bench)


@pytest.mark.parametrize(
    ("hours", "slots", "lines", "code"),
    [
        (1, 24, 'slot = "hour"', "slots-overlap"),
        pytest.param(24, 96, 'slot = "30m"\nspan = "day"', "no-bucket-fits", marks=pytest.mark.proof),
    ],
)
def test_slots_that_are_too_wide_are_stopped(
    bench: Bench, hours: int, slots: int, lines: str, code: str
) -> None:
    _load(bench, hours, slots)
    _write(bench, lines)
    _is_stopped(bench, code)


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("lines", ['slot = "15m"\nspan = "day"'])
def test_a_policy_that_was_right_is_judged_again_when_it_is_edited(bench: Bench, lines: str) -> None:
    _load(bench, 24, 48)
    _write(bench, _RIGHT)
    assert bench.run("run").code == 0
    assert bench.raw("c") == []
    _load(bench, 24, 48, first=10)
    _write(bench, lines)
    _is_stopped(bench)
    _write(bench, f"{lines}\nsparse_ok = true")
    (policy,) = json.loads(bench.run("check").out)["policies"]
    assert "slots-sparse" not in [it["code"] for it in policy["findings"]]
    _write(bench, _RIGHT)
    ran = bench.run("run")
    assert ran.code == 0, ran.out[200:1400]
    assert bench.raw("c") == []


def test_slots_that_are_filled_from_the_first_on_are_no_other_width(bench: Bench) -> None:
    _load(bench, 1, 20)
    _write(bench, 'slot = "minute"\nsparse_ok = true')
    assert bench.run("run").code == 0


@pytest.mark.proof
def test_a_broken_document_that_is_left_stops_no_policy_whose_layout_is_edited(bench: Bench) -> None:
    _load(bench, 24, 48)
    bench.load([bson.encode({"_id": "broken", "m": "a", "d": "soon", "v": [1.5]})])
    _write(bench, _RIGHT)
    assert bench.run("run").code == 3
    _write(bench, f'{_RIGHT}\nseries_defaults = {{m = "unknown"}}')
    ran = bench.run("run")
    assert ran.code == 3, ran.out
    assert len(bench.raw("c")) == 1
