"""Real readings in buckets with `_id`s of the writer's own making; half come when their bucket has gone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pymongo import UpdateOne

from tests.acceptance.readings import NAB, Origin, Reading
from tests.archivers.harness import in_turn
from tests.jobs.command import CommandLine
from tests.jobs.place import Db, Place

NOW = "2026-01-05T00:00:00Z"
#: One reading: series, time.
Key = tuple[str, datetime]
COMMON = 'collection = "rigs"\nseries_fields = ["rig"]\nvalue_fields = ["value"]\n'
MODELS = {
    "slots": COMMON + 'model = "slots"\nslot = "minute"\ntime_field = "at"\n',
    "samples": COMMON
    + """
model = "samples"
samples_field = "held"
sample_time_field = "time"
start_field = "first"
end_field = "last"
count_field = "n"
sum_fields = {value = "total"}
""",
}
ROLLUP = '[policies.rigs.rollup]\nhourly = "rigs_hourly"\n'
ARCHIVES = {
    "offline": '[policies.rigs.archive]\nafter = "30d"\nto = "offline"\n',
    "online": '[policies.rigs.archive]\nafter = "30d"\nto = "online"\ncollection = "rigs_archive"\n',
}


def upsert(model: str, reading: Reading) -> UpdateOne:
    """As a writer does that knows nothing of archives."""
    hour = reading.time.replace(minute=0, second=0, microsecond=0)
    value = reading.values["value"]
    name = {"_id": f"{reading.series}_{hour:%Y%m%d%H}"}
    if model == "slots":
        change: dict[str, Any] = {"$set": {f"value.{reading.time.minute}": value}}
        return UpdateOne(name, {**change, "$setOnInsert": {"rig": reading.series, "at": hour}}, upsert=True)
    change = {
        "$push": {"held": {"value": value, "time": reading.time}},
        "$min": {"first": reading.time},
        "$max": {"last": reading.time},
        "$inc": {"n": 1, "total": value},
    }
    return UpdateOne(name, {**change, "$setOnInsert": {"rig": reading.series}}, upsert=True)


def read(model: str, documents: Sequence[dict[str, Any]]) -> dict[Key, float]:
    """In plain Python; each reading once."""
    found: dict[Key, float] = {}
    for it in documents:
        if model == "slots":
            held = {it["at"].replace(minute=int(slot)): value for slot, value in it["value"].items()}
        else:
            held = {sample["time"]: sample["value"] for sample in it["held"]}
            assert len(held) == len(it["held"]) == it["n"]
        for at, value in held.items():
            assert found.setdefault((it["rig"], at.astimezone(UTC)), value) == value
    return found


@pytest.mark.proof
@pytest.mark.parametrize(("model", "to"), in_turn(list(MODELS), list(ARCHIVES)))
@pytest.mark.parametrize(
    "origin", [NAB.first(60), pytest.param(NAB, marks=pytest.mark.soak)], ids=["few", "all"]
)
def test_half_of_the_readings_late(
    tmp_path: Path,
    database: Db,
    mongodb_uri: str,
    bucketwise: CommandLine,
    model: str,
    to: str,
    origin: Origin,
) -> None:
    place = Place(tmp_path, database, mongodb_uri, bucketwise)
    place.write_config("[policies.rigs]\n" + MODELS[model] + ROLLUP + ARCHIVES[to])
    for field in ("at", "first", "last"):
        database["rigs"].create_index(field)
    readings = list({(it.series, it.time): it for it in origin.of("slots")}.values())
    expected = {(it.series, it.time): it.values["value"] for it in readings}
    chance = random.Random(5)
    chance.shuffle(readings)
    for share in (readings[::2], readings[1::2]):
        database["rigs"].bulk_write([upsert(model, it) for it in sorted(share, key=lambda it: it.time)])
        ran = place("run", "--json", now=NOW)
        assert ran.code == 0, ran
        assert database["rigs"].count_documents({}) == 0
    hours = {(series, at.replace(minute=0, second=0)) for series, at in expected}
    for _ in range(2):
        ran = place("restore", "--json", "-p", "rigs", "--to", "back", now=NOW)
        assert ran.code == 0, ran
        body = ran.policy("rigs")
        assert (body["buckets"], body["readings"]) == (len(hours), len(expected))
        assert read(model, list(database["back"].find())) == expected
    assert body["versions"] > 0.4 * len(hours) if to == "offline" else body["versions"] == 0
    ran = place(
        "restore",
        "--json",
        "-p",
        "rigs",
        "--to",
        "last",
        "--versions",
        "all",
        "--versions-to",
        "older",
        now=NOW,
    )
    assert ran.code == 0, ran
    assert database["older"].count_documents({}) == ran.policy("rigs")["versions"] > 0.4 * len(hours)
    found = list(database["older"].find()) + list(database["last"].find())
    assert read(model, found) == expected
    summaries = {(it["rig"], it["start"]): it["count"] for it in database["rigs_hourly"].find()}
    assert sum(summaries.values()) == len(expected) and len(summaries) == len(hours)
    assert place("audit", "--json", now=NOW).code == 0
