"""The roles that rights.md shows, and the whole cycle under one of them, on a server that asks."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pymongo import MongoClient
from pymongo.database import Database

from bucketwise.jobs.suite import GROUPS
from tests.docs.pages import ROOT, blocks
from tests.jobs.command import CommandLine, Ran

Document = dict[str, Any]
Client = MongoClient[Document]
RIGHTS = ROOT / "docs" / "rights.md"
DATABASE = "market"
NOW = "2018-09-01"
#: When hourly summaries are past the README's `retain`, and what is archived has stayed for long enough: it
#: gets a tombstone, and goes.
LATE, LATER = "2021-06-05", "2021-06-13"
START = datetime(2018, 6, 30, tzinfo=UTC)
FRESH = datetime(2018, 9, 2, 12, tzinfo=UTC)
EARLY, AFTER = "2018-07-01", "2018-09-04"
#: Of a bucket that an archive keeps no longer.
ANCIENT = datetime(2015, 6, 30, tzinfo=UTC)
#: The readings of the old buckets, whatever happens.
OLD = ("--since", "2018-06-30T00:00Z", "--until", "2018-06-30T04:00Z")
READINGS = {"ticks": 8, "iot": 10, "weather": 4}
#: The verbs that change nothing, and what they are told: whoever asks, and some others.
READING: dict[str, tuple[str, ...]] = dict.fromkeys(("plan", "verify", "audit", *GROUPS["Ask"]), ()) | {
    "summarize": OLD,
    "readings": (*OLD, "-o", "out.csv"),
    "explain": ("--at", "2018-06-30T00:00:00Z"),
    "query": ("FROM {policy}, {policy}_hourly, {policy}_coverage LIMIT 1",),
}

#: What the roles besides the README's policy are for.
MORE = """
[policies.iot]
collection = "iot"
model = "samples"
series_fields = ["sensor"]
value_fields = ["val"]
samples_field = "samples"
sample_time_field = "time"
start_field = "first"
end_field = "last"
schedule = "0 0 1 1 *"
[policies.iot.rollup]
hourly = "iot_hourly"
[policies.iot.archive]
after = "30d"
to = "online"
collection = "iot_archive"
[policies.iot.retain]
hourly = "365d"
archive = "1095d"
[policies.iot.overflow]
flag_field = "more"
collection = "iot_extra"
ref_field = "of"
samples_field = "samples"

[policies.weather]
collection = "weather"
model = "timeseries"
time_field = "d"
series_fields = ["place"]
value_fields = ["t"]
schedule = "0 0 1 1 *"
[policies.weather.rollup]
hourly = "weather_hourly"
[policies.weather.archive]
after = "30d"
to = "offline"
delete = false
[policies.weather.retain]
hourly = "365d"
"""


class Right(NamedTuple):
    collection: str  # "": the database as a whole
    action: str


def role(name: str) -> Document:
    (block,) = [it for it in blocks(RIGHTS) if it.marks == ("role", name)]
    shown = re.search(r"createRole\((.*)\)", block.text, re.DOTALL)
    assert shown
    assert f'db.getSiblingDB("{DATABASE}")' in block.text
    found: Document = json.loads(shown[1])
    return found


def rights(*names: str) -> list[Right]:
    """All that the roles grant, with what they take over from others of the page."""
    found: list[Right] = []
    for name in names:
        shown = role(name)
        assert shown["role"] == f"bucketwise_{name}"
        found += rights(*(it["role"].removeprefix("bucketwise_") for it in shown["roles"]))
        for privilege in shown["privileges"]:
            assert privilege["resource"]["db"] == DATABASE
            found += [Right(privilege["resource"]["collection"], it) for it in privilege["actions"]]
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Market:
    """The README's policy file and more in a folder, and a user who may do what it was last allowed."""

    client: Client
    folder: Path
    command: CommandLine
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def database(self) -> Database[Document]:
        return self.client[DATABASE]

    def allow(self, granted: list[Right]) -> None:
        collections = dict.fromkeys(right.collection for right in granted)
        privileges = [
            {
                "resource": {"db": DATABASE, "collection": name},
                "actions": [right.action for right in granted if right.collection == name],
            }
            for name in collections
        ]
        self.database.command("updateRole", "granted", privileges=privileges, roles=[])

    def __call__(self, verb: str, *arguments: str, now: str | None = NOW) -> Ran:
        given = [verb, "--quiet", "--json", *arguments, *(["--now", now] if now else [])]
        return self.command(*given, cwd=self.folder, **self.environment)

    def lay_out(self) -> None:
        """Readings of all three policies, as they are before the first run; an empty store."""
        shutil.rmtree(self.folder / "store", ignore_errors=True)
        (self.folder / "store").mkdir()
        for name in self.database.list_collection_names(filter={"name": {"$not": re.compile(r"^system\.")}}):
            self.database.drop_collection(name)
        database = self.database
        minutes = [START + timedelta(minutes=30 * count) for count in range(4)]
        for name, key in (("ticks", "d"), ("iot", "first"), ("iot", "last"), ("iot_extra", "of")):
            database[name].create_index(key)
        database.ticks.insert_many(tick(at) for at in minutes)
        database.ticks.insert_one({"_id": "bad", **tick(START), "p": {"0": 1.0, "99": 1.0}})
        database.iot.insert_many(bucket(i, at, more=i % 2 == 0) for i, at in enumerate(minutes))
        database.iot.insert_one(bucket("bad", START, more=False) | {"samples": "none"})
        database.iot_extra.insert_many(
            {"of": i, "samples": [{"val": 9.0, "time": minutes[i]}]} for i in (0, 2)
        )
        database.create_collection("weather", timeseries={"timeField": "d", "metaField": "place"})
        database.weather.insert_many({"place": "here", "d": at, "t": 20.5} for at in minutes)


def tick(at: datetime) -> Document:
    return {"symbol": "MDB", "d": at, "p": {"0": 56.5, "59": 57.0}}


def bucket(identity: Any, at: datetime, *, more: bool) -> Document:
    samples = [{"val": 1.0, "time": at}, {"val": 2.0, "time": at + timedelta(seconds=5)}]
    return {
        "_id": identity, "sensor": 7, "first": at, "last": at + timedelta(seconds=5), "samples": samples,
        **({"more": True} if more else {}),
    }  # fmt: skip


def whole_cycle(market: Market, policy: str) -> Iterator[Ran]:
    """Every verb but `schedule`, with all that may come between; gives each call as it ended."""
    database, source = market.database, market.database[policy]
    is_native = policy == "weather"

    def call(verb: str, *arguments: str, now: str = NOW) -> Ran:
        return market(verb, "-p", policy, *arguments, now=now)

    yield call("check")
    yield call("plan")
    if policy == "iot":
        source.insert_one(bucket("ancient", ANCIENT, more=False))
        yield call("run", now=EARLY)  # what is ancient is archived, and nothing else
    yield call("rollup")  # finds the bad bucket
    yield call("run")
    if not is_native:
        source.delete_one({"_id": "bad"})
    yield call("run")
    for verb in READING:
        yield call(verb, *(it.format(policy=policy) for it in READING[verb]))
    yield call("restore", "--to", f"{policy}_restored")
    if not is_native:
        first = database[f"{policy}_restored"].find_one({"more": {"$exists": False}})
        assert first is not None
        late: Document = {"p": {}} if policy == "ticks" else {"samples": []}
        source.insert_one({**first, **late, "note": "late"})  # a later version, without further readings
        yield call("run")
        yield call("restore", "--to", f"{policy}_restored")
    yield call("restore", "--to", policy)
    if not is_native:
        yield call("run")
        source.update_one({"_id": {"$ne": None}}, {"$set": {"note": "changed"}})
        yield call("run")  # the pin learns what the summaries hold now
        yield call("unpin")
        yield call("run")  # what was changed takes the place of the old copy
        yield call("restore", "--to", policy, "--keep-for", "1d")
    fresh = {
        "ticks": tick(FRESH), "iot": bucket("fresh", FRESH, more=False),
        "weather": {"place": "here", "d": FRESH, "t": 1.0},
    }[policy]  # fmt: skip
    source.insert_one(fresh)
    yield call("run", now=AFTER)  # the pins are over
    if not is_native:
        source.delete_one({"_id": fresh["_id"]})
        yield call("rollup", "--since", "2018-09-02", "--until", "2018-09-03T12:00", now=AFTER)
    yield call("run", now=LATE)
    for _ in range(3):  # the first takes out what is ancient
        yield call("run", now=LATER)  # the last two have nothing to do, and share an entry of the ledger
    assert database.list_collection_names()
