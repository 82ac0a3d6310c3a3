"""What the statistics of steps look like where people ask: `summarize`, `query`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from tests.cases.case import Stage, cases
from tests.jobs.command import CommandLine

Db = Database[dict[str, Any]]
_STATES = [it for it in cases() if str(it) == "state-edges"]


@pytest.fixture
def stage(
    request: pytest.FixtureRequest, tmp_path: Path, database: Db, mongodb_uri: str, bucketwise: CommandLine
) -> Iterator[Stage]:
    yield Stage(request.param, tmp_path, database, mongodb_uri, bucketwise)


@pytest.mark.parametrize("stage", _STATES, ids=str, indirect=True)
def test_a_day_of_states_is_answered_from_its_hours(stage: Stage) -> None:
    assert stage.run("run").code == 0
    (day, *_) = (it for it in stage.database["c_daily"].find({"pump": "a"}).sort("start"))
    hours = "2025-04-02T00", "2025-04-03T00"
    stage.database["c_daily"].delete_many({})
    asked = stage.run("summarize", "-p", "c", "--since", hours[0], "--until", hours[1], "--series", "pump=a")
    (one,) = json.loads(asked.out)["policies"][0]["series"]
    assert one["values"]["mode"]["seconds"] == day["mode"]["seconds"]
    together = stage.run("summarize", "-p", "c", "--since", hours[0], "--until", hours[1], "--by", "none")
    (both,) = json.loads(together.out)["policies"][0]["series"]
    assert both["values"]["mode"]["changes"] > day["mode"]["changes"]
    sql = "SELECT sum(mode_changes) AS n, max(mode_seconds['0']) AS s, bool_or(mode_states_over) AS o FROM c_hourly"
    queried = stage.run("query", sql, "-p", "c")
    assert queried.code == 0, queried.err
    (row,) = json.loads(queried.out)["rows"]
    hourly = list(stage.database["c_hourly"].find())
    assert row["n"] == sum(it["mode"]["changes"] for it in hourly)
    assert row["s"] == max(it["mode"]["seconds"].get("0", 0) for it in hourly)
    assert row["o"] is False
