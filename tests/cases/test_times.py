"""Times of other forms beside the run: late documents, an online archive, erasure, other models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from tests.cases.case import CASES, Case, Stage, differences
from tests.jobs.command import CommandLine

Db = Database[dict[str, Any]]
FORMS = ["bson-timestamp", "date-and-time", "german-text", "local-text", "objectid-only", "parts"]


@pytest.fixture
def stage(
    request: pytest.FixtureRequest, tmp_path: Path, database: Db, mongodb_uri: str, bucketwise: CommandLine
) -> Iterator[Stage]:
    case = Case(CASES / request.param)
    yield Stage(case, tmp_path, database, mongodb_uri, bucketwise)


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("stage", FORMS, ids=str, indirect=True)
def test_late_documents_reach_an_online_archive_and_come_back(stage: Stage) -> None:
    documents = stage.case.documents()
    online = stage.case.policy.replace('to = "offline"', 'to = "online"\ncollection = "c_archive"')
    stage.write_policy(online)
    stage.database.c.delete_many({})
    stage.load(documents[::2])
    ran = stage.run("run")
    assert ran.code == 0, ran.err
    stage.load(documents[1::2])
    ran = stage.run("run")
    assert ran.code == 0, ran.err
    assert differences(stage.database, stage.case) == []
    assert stage.raw("c") == []
    for verb in ("coverage", "check", "audit", "verify"):
        asked = stage.run(verb)
        assert asked.code == 0, (verb, asked.out, asked.err)
    restored = stage.run("restore", "-p", "c", "--to", "back")
    assert restored.code == 0, restored.err
    assert sorted(stage.raw("back")) == sorted(documents)
    read = stage.run("readings", "-p", "c", "--output", str(stage.folder / "all.parquet"))
    assert read.code == 0, read.err


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("stage", FORMS, ids=str, indirect=True)
def test_live_documents_are_covered_erased_and_remodelled(stage: Stage) -> None:
    covered = stage.run("coverage")
    assert covered.code == 0, covered.err
    (policy,) = json.loads(covered.out)["policies"]
    assert sum(it["live"] for it in policy["days"]) == len(stage.case.documents())
    remodelled = stage.run("remodel", "c", "--to", "reading", "--into", "c_new")
    assert remodelled.code == 0, remodelled.err
    assert json.loads(remodelled.out)["equal"] is True
    series = stage.case.expected["hourly"][0]["series"]
    asked = [f"{name}={value}" for name, value in series.items()]
    erased = stage.run("erase", "-p", "c", "--series", *asked, "--reason", "asked", "--confirm", "c")
    assert erased.code == 0, erased.err
    assert stage.database.c.count_documents(series) == 0
