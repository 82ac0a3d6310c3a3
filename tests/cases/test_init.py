"""Each case from outside: what `init` makes of its documents, of which it knows nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from tests.cases.case import Bench, Case, Stage, all_cases, differences
from tests.cases.shown import is_right
from tests.jobs.command import CommandLine

Db = Database[dict[str, Any]]


@pytest.fixture
def stage(
    request: pytest.FixtureRequest, tmp_path: Path, database: Db, mongodb_uri: str, bucketwise: CommandLine
) -> Iterator[Stage]:
    yield Stage(request.param, tmp_path, database, mongodb_uri, bucketwise)


def _told(cases: list[Case]) -> list[Case]:
    return [it for it in cases if it.init != "free"]


@pytest.mark.in_turn(12)
@pytest.mark.parametrize("stage", _told(all_cases()), ids=str, indirect=True)
def test_it_is_known_or_asked(stage: Stage) -> None:
    case = stage.case
    (stage.folder / "bucketwise.toml").unlink()
    ran = stage.init()
    assert ran.code == 0, ran.err
    (found,) = [it for it in json.loads(ran.out)["collections"] if it["collection"] == "c"]
    assert not (found["asked"] and case.init == "knows"), found["readings"]
    assert found["asked"] or case.init != "asks", found["readings"]
    assert len(found["readings"]) > 1 if found["asked"] else len(found["readings"]) == 1
    assert any(is_right(it["first"], case) for it in found["readings"]), found["readings"]
    text = (stage.folder / "bucketwise.toml").read_text()
    assert ("\n[policies.c]" in text) == (not found["asked"])
    if not found["asked"]:
        (stage.folder / f"{stage.database.name}-archive").mkdir()
        stage.load(case.documents("late"))
        ran = stage.run("rollup")
        assert ran.code in (0, 3), ran.err
        assert differences(stage.database, case.as_inferred()) == []


def test_one_of_the_ways_is_taken_by_hand(
    tmp_path: Path, database: Db, mongodb_uri: str, bucketwise: CommandLine
) -> None:
    """The lines of a way, and those that all ways share, are a policy once they are no comment any more."""
    (case,) = [it for it in all_cases() if it.init == "asks"]
    stage = Stage(case, tmp_path, database, mongodb_uri, bucketwise)
    path = stage.folder / "bucketwise.toml"
    path.unlink()
    assert stage.init().code == 0
    lines = path.read_text().splitlines()
    ways = [number for number, line in enumerate(lines) if line.startswith("# # Way")]
    lines[ways[1] : lines.index('# collection = "c"')] = []
    begin = lines.index("# [policies.c]")
    path.write_text("\n".join([*lines[:begin], *(it.removeprefix("# ") for it in lines[begin:])]))
    (stage.folder / f"{database.name}-archive").mkdir()
    ran = stage.run("rollup")
    assert ran.code == 0, ran.err
    assert differences(database, case) == []


def test_texts_alone_are_states_in_the_policy_that_is_written(
    tmp_path: Path, database: Db, mongodb_uri: str, bucketwise: CommandLine
) -> None:
    """It passes its own check, and a run with it tells how long each lasted."""
    bench = Bench(tmp_path, database, mongodb_uri, bucketwise)
    bench.now = "2025-06-10T00:00:00Z"
    start, names = datetime(2025, 6, 3, tzinfo=UTC), ["läuft", "steht", "v1.2"]
    database.c.insert_many(
        {"at": start + i * timedelta(minutes=10), "pumpe": pump, "zustand": names[i // 12 % 3]}
        for i in range(72)
        for pump in ("nord", "süd")
    )
    database.c.create_index("at")
    (found,) = json.loads(bench.init().out)["collections"]
    (way,) = found["readings"]
    assert way["policy"]["values"] == {"zustand": {"kind": "state", "max_gap": "100m"}}
    assert way["first"][0]["value"] == {"zustand": "läuft"}
    (tmp_path / f"{database.name}-archive").mkdir()
    (policy,) = json.loads(bench.run("check").out)["policies"]
    assert {it["severity"] for it in policy["findings"]} <= {"ok", "warning"}, policy["findings"]
    assert bench.run("run").code == 0
    lasted = [it["zustand"]["seconds"] for it in database.c_daily.find().sort("pumpe", 1)]
    assert lasted == [{"läuft": 14_400.0, "steht": 14_400.0, "v1%2E2": 13_800.0}] * 2
    assert "zustand=läuft" in bucketwise("check", cwd=tmp_path).out
