"""Times of other forms beside the run: late documents, an online archive, erasure, other models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import Int64
from pymongo.database import Database

from tests.cases.case import CASES, Bench, Case, Stage, differences
from tests.jobs.command import CommandLine

Db = Database[dict[str, Any]]
FORMS = ["bson-timestamp", "date-and-time", "german-text", "local-text", "objectid-only", "parts"]


@pytest.fixture
def stage(
    request: pytest.FixtureRequest, tmp_path: Path, database: Db, mongodb_uri: str, bucketwise: CommandLine
) -> Iterator[Stage]:
    case = Case(CASES / request.param)
    yield Stage(case, tmp_path, database, mongodb_uri, bucketwise)


@pytest.mark.proof
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


def test_samples_with_text_that_does_not_sort_and_no_end_are_remodelled(
    tmp_path: Path, database: Db, mongodb_uri: str, bucketwise: CommandLine
) -> None:
    bench = Bench(tmp_path, database, mongodb_uri, bucketwise)
    bench.now = "2025-12-01T00:00:00Z"
    bench.write_policy("""
[policies.c]
collection = "c"
model = "samples"
samples_as = "arrays"
sample_time_field = "t"
sample_time_format = "%d.%m.%Y %H:%M"
start_field = "from"
time_unit = "ms"
series_fields = ["dev"]
value_fields = ["v"]
""")
    start = 1_761_343_200_000  # 2025-10-24T22:00:00Z
    times = ["24.10.2025 22:30", "24.10.2025 22:40", "26.10.2025 01:00"]
    bench.load([bson.encode({"_id": 1, "dev": "a", "from": Int64(start), "t": times, "v": [1.5, 2.5, 4.0]})])
    remodelled = bench.run("remodel", "c", "--to", "reading", "--into", "c_new")
    assert remodelled.code == 0, remodelled.err
    assert sorted(it["v"] for it in database.c_new.find()) == [1.5, 2.5, 4.0]
