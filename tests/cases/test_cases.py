"""Each case from outside: what a run makes of it, and what a restore gives back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from tests.cases.case import CASES, Case, Stage, all_cases, differences
from tests.conftest import missing
from tests.jobs.command import CommandLine

Db = Database[dict[str, Any]]


@pytest.fixture
def stage(
    request: pytest.FixtureRequest, tmp_path: Path, database: Db, mongodb_uri: str, bucketwise: CommandLine
) -> Iterator[Stage]:
    yield Stage(request.param, tmp_path, database, mongodb_uri, bucketwise)


def test_there_are_cases() -> None:
    if not CASES.is_dir():
        missing(f"the folder {CASES.name} beside the project")
    assert all_cases()


def _is_stopped(case: Case) -> bool:
    return bool(case.expected.get("stopped"))


@pytest.mark.parametrize("stage", [it for it in all_cases() if not _is_stopped(it)], ids=str, indirect=True)
def test_it_is_read_as_it_is_meant(stage: Stage) -> None:
    case = stage.case
    quarantined = case.expected["quarantined"]
    stage.load(case.documents("late"))
    ran = stage.run("rollup")
    assert ran.code == (3 if quarantined else 0), ran.err
    assert differences(stage.database, case) == []
    assert ran.policy("c")["quarantined"] == quarantined


@pytest.mark.proof
@pytest.mark.in_turn(6)
@pytest.mark.parametrize("stage", [it for it in all_cases() if not _is_stopped(it)], ids=str, indirect=True)
def test_it_is_archived_and_comes_back(stage: Stage) -> None:
    case = stage.case
    quarantined = case.expected["quarantined"]
    before = stage.raw("c")
    ran = stage.run("run")
    assert ran.code == (3 if quarantined else 0), ran.err
    if late := case.documents("late"):
        stage.load(late)
        before = sorted([*before, *late])
        assert stage.run("run").code == ran.code
    assert differences(stage.database, case) == []
    left = stage.raw("c")
    assert len(left) == quarantined + case.expected.get("remain", 0)
    (policy,) = json.loads(ran.out)["policies"]
    assert policy["archive"]["quarantined"] == quarantined
    plan = stage.run("plan")
    assert plan.out.count(case.expected.get("reason_says", "")) >= quarantined
    summaries = stage.raw("c_hourly"), stage.raw("c_daily")
    assert stage.run("run").code == ran.code
    assert (stage.raw("c_hourly"), stage.raw("c_daily")) == summaries
    restored = stage.run("restore", "-p", "c", "--to", "back")
    assert restored.code == 0, restored.err
    assert sorted([*stage.raw("back"), *left]) == sorted(before)


@pytest.mark.parametrize("stage", [it for it in all_cases() if _is_stopped(it)], ids=str, indirect=True)
def test_it_is_stopped(stage: Stage) -> None:
    before = stage.raw("c")
    checked = stage.run("check")
    (policy,) = json.loads(checked.out)["policies"]
    assert [it for it in policy["findings"] if it["severity"] == "error"], checked.out
    ran = stage.run("run")
    assert ran.code == 1
    assert stage.raw("c") == before
    assert not any((stage.folder / "store").rglob("*.parquet"))
