"""What the statistics of steps look like where people ask: `summarize`, `query`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from tests.cases.case import Stage, all_cases
from tests.jobs.command import CommandLine

Db = Database[dict[str, Any]]
_STATES = [it for it in all_cases() if str(it) == "state-edges"]


@pytest.fixture
def stage(
    request: pytest.FixtureRequest, tmp_path: Path, database: Db, mongodb_uri: str, bucketwise: CommandLine
) -> Iterator[Stage]:
    yield Stage(request.param, tmp_path, database, mongodb_uri, bucketwise)


@pytest.mark.proof
@pytest.mark.parametrize("stage", _STATES, ids=str, indirect=True)
def test_states_are_answered_from_hours(stage: Stage) -> None:
    assert stage.run("run").code == 0
    hours = "2025-04-02T02", "2025-04-02T23"
    span = {"$gte": datetime(2025, 4, 2, 2, tzinfo=UTC), "$lt": datetime(2025, 4, 2, 23, tzinfo=UTC)}
    of_day = {"pump": "a", "start": span}
    parts = [it["mode"] for it in stage.database["c_hourly"].find(of_day)]
    asked = stage.run("summarize", "-p", "c", "--since", hours[0], "--until", hours[1], "--series", "pump=a")
    (one,) = json.loads(asked.out)["policies"][0]["series"]
    mode = one["values"]["mode"]
    assert mode["changes"] == sum(it["changes"] for it in parts)
    # An hour without a reading has no summary: its part of a step is in what is asked for.
    assert all(mode["seconds"][state] >= sum(it["seconds"].get(state, 0) for it in parts) for state in "0123")
    together = stage.run("summarize", "-p", "c", "--since", hours[0], "--until", hours[1], "--by", "none")
    (both,) = json.loads(together.out)["policies"][0]["series"]
    assert both["values"]["mode"]["changes"] > mode["changes"]
    told = "sum(mode_changes) AS n, max(mode_seconds['0']) AS s, bool_or(mode_states_over) AS o"
    queried = stage.run("query", f"SELECT {told} FROM c_hourly", "-p", "c")
    assert queried.code == 0, queried.err
    ((changes, longest, is_over),) = json.loads(queried.out)["rows"]
    hourly = [it["mode"] for it in stage.database["c_hourly"].find()]
    assert changes == sum(it["changes"] for it in hourly)
    assert longest == max(it["seconds"].get("0", 0) for it in hourly)
    assert is_over is False
