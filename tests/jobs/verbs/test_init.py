"""`init` from outside: the file that it writes, what it refuses, and what it costs."""

from __future__ import annotations

import json
import os
import re
import tomllib
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pymongo import MongoClient

from bucketwise.config.load import settings_in
from bucketwise.config.schema import DIRECTIVE, FILE_NAME, policy_file_schema
from bucketwise.jobs.core.subject import Inspector
from tests.archivers import builders
from tests.config.schemas import faults
from tests.jobs.command import CommandLine, Ran
from tests.jobs.counting import Counts
from tests.jobs.place import Db, Place

Document = dict[str, Any]
T0 = datetime(2026, 1, 5, 10, tzinfo=UTC)
HEAD = "[mongodb]\nuri = "


@pytest.fixture
def bare(tmp_path: Path, database: Db, mongodb_uri: str, bucketwise: CommandLine) -> Place:
    """A database, and a folder without a policy file."""
    return Place(tmp_path, database, mongodb_uri, bucketwise)


def at(place: Place, database: str | None = None) -> str:
    """The URI with its database."""
    base, _, options = place.uri.partition("/?")
    return f"{base}/{place.database.name if database is None else database}?{options}"


def init(place: Place, *arguments: str, **environment: str) -> Ran:
    given = ["init", at(place), "--quiet", *arguments]
    return place.command(*given, cwd=place.folder, **environment)


def told(ran: Ran, collection: str) -> Document:
    (found,) = [it for it in ran.json["collections"] if it["collection"] == collection]
    assert isinstance(found, dict)
    return found


def test_a_first_file(bare: Place) -> None:
    bare.load()
    ran = init(bare)
    assert (ran.code, ran.err) == (0, "")
    text = bare.config.read_text()
    assert text.count(HEAD) == 1
    assert 'model = "slots"  # 180 of 180 sampled documents: 60 slots under "p": 10,800 readings' in text
    found = tomllib.loads(text)
    ticks, iot = found["policies"]["ticks"], found["policies"]["iot"]
    assert {key: ticks[key] for key in ("slot", "time_field", "series_fields", "value_fields")} == {
        "slot": "second",
        "time_field": "d",
        "series_fields": ["symbol"],
        "value_fields": ["p"],
    }
    assert (iot["model"], iot["time_field"], iot["series_fields"]) == ("reading", "at", ["sensor"])
    assert [it["archive"]["delete"] for it in (ticks, iot)] == [False, False]
    assert "# ? How long" in text
    assert f"{len(re.findall('(?m)^# [?]', text))} questions" in ran.out
    assert found["mongodb"]["uri"] == at(bare)  # as it was typed
    for fragment in (
        "bucketwise.toml: 2 policies",
        " questions. Answer the lines that begin with `# ?`",
        "bucketwise check, and bucketwise plan",
    ):
        assert fragment in ran.out
    assert {it.name for it in bare.folder.iterdir()} == {"bucketwise.toml", FILE_NAME}
    assert text.startswith(f"{DIRECTIVE}\n")
    assert json.loads((bare.folder / FILE_NAME).read_text()) == policy_file_schema()
    assert faults(found) == []
    Path(urlsplit(found["store"]["url"]).path).mkdir()
    for verb in ("check", "plan", "run", "audit"):
        assert bare(verb).code == 0, verb


def test_it_writes_over_nothing(bare: Place) -> None:
    bare.load()
    bare.config.write_text("mine")
    ran = init(bare)
    assert ran.code == 2 and ran.connected == []
    assert "--output bucketwise.toml: it already exists" in ran.err
    assert bare.config.read_text() == "mine"
    (bare.folder / "dangling").symlink_to(bare.folder / "elsewhere.toml")
    assert init(bare, "-o", "dangling").code == 2
    assert not (bare.folder / "elsewhere.toml").exists()


@pytest.mark.proof
def test_the_json_has_it_all(bare: Place) -> None:
    bare.load()
    bare.database.users.insert_many([{"name": f"u{number}"} for number in range(9)])
    bare.database.create_collection("empty")
    ran = init(bare, "--json", "--output", "market.toml")
    assert ran.code == 0
    assert [it["collection"] for it in ran.json["collections"]] == ["empty", "iot", "ticks", "users"]
    assert told(ran, "users")["model"] is None and "no field holds times" in told(ran, "users")["evidence"][0]
    assert told(ran, "empty")["evidence"] == ["it is empty"]
    assert told(ran, "ticks")["model"] == "slots"
    assert ran.json["config"] == (bare.folder / "market.toml").read_text()
    assert ran.policy("ticks")["fit"]["finite"] == {"p": 1.0}
    assert {it["code"] for it in ran.policy("ticks")["findings"]} == {"policy"}
    assert "--config market.toml" in init(bare, "--output", "other.toml").out.replace("other", "market")


def test_to_stdout(bare: Place) -> None:
    bare.load()
    ran = init(bare, "--output", "-")
    assert ran.code == 0 and set(tomllib.loads(ran.out)["policies"]) == {"ticks", "iot"}
    assert list(bare.folder.iterdir()) == []


def test_only_those_that_are_named(bare: Place) -> None:
    bare.load()
    bare.database.users.insert_one({"name": "u"})
    ran = init(bare, "ticks", "users", "--json")
    assert [it["collection"] for it in ran.json["collections"]] == ["ticks", "users"]
    assert ran.code == 3  # one that was asked for is not in the file
    assert init(bare, "ticks", "-o", "ticks.toml").code == 0


@pytest.mark.proof
def test_what_bucketwise_wrote_is_no_source(bare: Place) -> None:
    bare.write_config()
    bare.load()
    assert bare("run").code == 0
    bare.load()
    ran = init(bare, "--json", "-o", "second.toml")
    models = {it["collection"]: it["model"] for it in ran.json["collections"]}
    assert {name for name, model in models.items() if model} == {"ticks", "iot"}
    assert {"ticks_hourly", "iot_hourly"} & set(models) and "bucketwise_runs" not in models
    assert "archive of iot" in told(ran, "iot_archive")["evidence"][0]
    found = tomllib.loads(ran.json["config"])["policies"]["iot"]
    assert found["rollup"]["hourly"] == "iot_hourly"  # summaries that are there may stay


def test_another_collection_has_the_name(bare: Place) -> None:
    bare.load()
    bare.database.iot_hourly.insert_one({"mine": True})
    rollup = tomllib.loads(init(bare, "--json").json["config"])["policies"]["iot"]["rollup"]
    assert rollup["hourly"] == "iot_summary_hourly"


@pytest.mark.parametrize(
    "make", [builders.samples_overflow, builders.slots_overflow], ids=lambda it: it.__name__
)
def test_overflow_by_its_references(bare: Place, make: Any) -> None:
    case: builders.Case = make()
    case.load(bare.database)
    assert case.policy.overflow is not None
    ran = init(bare, "--json")
    found = tomllib.loads(ran.json["config"])["policies"]
    assert found[case.policy.collection]["overflow"] == case.policy.overflow.model_dump()
    assert list(found) == [case.policy.collection]
    assert "it holds the overflow of" in told(ran, case.policy.overflow.collection)["evidence"][0]
    fit = ran.policy(case.policy.collection)["fit"]
    assert fit["quarantined"] == 0
    assert "sampled documents without overflow" in told(ran, case.policy.collection)["evidence"][0]
    assert told(ran, case.policy.collection)["questions"] == []
    ran = bare("readings", "-p", case.policy.collection, "-o", "all.csv", "--json")
    assert ran.policy(case.policy.collection)["readings"] == len(case.readings)


def test_totals_that_count_the_overflow(bare: Place) -> None:
    """In most buckets the count agrees with the array, and in those that overflow with all there is."""
    for number in range(30):
        values = [i / 4 for i in range(5 + number % 4)]
        times = [T0 + timedelta(hours=number, minutes=i) for i in range(len(values))]
        samples = [{"t": time, "v": value} for time, value in zip(times, values, strict=True)]
        more = samples[4:] if number % 3 == 0 else []
        bucket = {"_id": f"b{number}", "dev": "a", "first": times[0], "last": times[-1], "n": len(values)}
        bucket |= {"total": sum(values), "samples": samples[:4] if more else samples}
        bucket |= {"more": True} if more else {}
        bare.database.iot.insert_one(bucket)
        for it in more:
            bare.database.iot_more.insert_one({"of": f"b{number}", "samples": [it]})
    ran = init(bare, "--json")
    found = tomllib.loads(ran.json["config"])["policies"]["iot"]
    assert (found["count_field"], found["sum_fields"]) == ("n", {"v": "total"})
    assert found["overflow"]["flag_field"] == "more"
    assert told(ran, "iot")["questions"] == [] and ran.policy("iot")["fit"]["quarantined"] == 0


def test_native_collections(bare: Place) -> None:
    case = builders.timeseries()
    case.load(bare.database)
    ran = init(bare, "--json")
    assert told(ran, "weather")["model"] == "timeseries"
    assert (ran.policy("weather")["fit"]["readings"], ran.policy("weather")["fit"]["series"]) == (200, 2)


def test_views_are_left_out(bare: Place) -> None:
    bare.load()
    bare.database.create_collection("seen", viewOn="ticks", pipeline=[])
    assert "view" in told(init(bare, "--json"), "seen")["evidence"][0]


def test_values_that_are_called_like_something_in_summaries(bare: Place) -> None:
    bare.database.odd.insert_many(
        {"dev": "a", "at": T0 + timedelta(minutes=i), "count": i / 4} for i in range(9)
    )
    bare.database.worse.insert_many(
        {"dev": "a", "at": T0 + timedelta(minutes=i), "dt": i / 4} for i in range(9)
    )
    ran = init(bare, "--json")
    found = tomllib.loads(ran.json["config"])["policies"]
    assert found["odd"]["values"] == {"count": {"as": "count_value"}}
    assert found["worse"]["values"] == {"dt": {"as": "dt_value"}}
    assert all("rollup" in it for it in found.values())


HOSTILE = [
    'quo"te',
    "new\nline",
    "${HOME}",
    "$${x}",
    "#",
    "\x7f\x1b[2J",
    "naïve 🙂",
    "a b",
    "'''",
    '"""',
    "\\",
]


@pytest.mark.proof
def test_hostile_names(bare: Place) -> None:
    """Names of fields and collections get into the file as what they are, and nothing else does."""
    for number, name in enumerate(HOSTILE):
        collection = f"c{number}" if "$" in name else f"c{number} {name}"
        documents = [
            {f"dev{name}": "a", f"at{name}": T0 + timedelta(minutes=i), f"v{name}": i / 4, "note": name}
            for i in range(9)
        ]
        bare.database[collection].insert_many(documents)
    ran = init(bare, "--json")
    assert ran.code == 0, ran
    assert "\x1b" not in ran.json["config"]
    settings = settings_in(ran.json["config"], bare.config, {"MONGODB_URI": bare.uri})
    values = {it.value_fields for it in settings.policies.values()}
    assert values == {(f"v{name}",) for name in HOSTILE}
    for policy in settings.policies:
        assert ran.policy(policy)["fit"]["readings"] == 9
    assert "\x1b" not in init(bare, "-o", "other.toml").out


BAD: dict[str, tuple[list[str], list[str]]] = {
    "no database": (["{base}/"], ["URI: it names no database", "mongodb://host/DATABASE", "There are: "]),
    "no such database": (["{base}/nowhere"], ["database nowhere has no collections"]),
    "MongoDB's own": (["{base}/admin"], ["database 'admin'", "MongoDB's own"]),
    "a collection in the URI": (["{base}/a.b"], ["database 'a.b'", "not a valid MongoDB database name"]),
    "no such collection": (["{here}", "tick"], ["tick: ", "no such collection", "Did you mean ticks?"]),
    "no such variable": (["${{NO_SUCH}}"], ["URI: the environment variable NO_SUCH is not set"]),
    "no URI": (["localhost/market"], ["URI: does not start with mongodb://"]),
    "nobody there": (
        ["mongodb://bob:hunter2@127.0.0.1:1/market?serverSelectionTimeoutMS=50"],
        ["cannot reach MongoDB at 127.0.0.1:1"],
    ),
    "no folder": (
        ["{here}", "-o", "nowhere/x.toml"],
        ["--output nowhere/x.toml: there is no folder nowhere"],
    ),
    "no place for files": (["{here}", "-o", "/proc/x.toml"], ["/proc/x.toml"]),
    "a policy": (["{here}", "-p", "ticks"], ["leave out --config and --policy"]),
    "a policy file": (["{here}", "-c", "x.toml"], ["leave out --config and --policy"]),
    "nothing to write": (
        ["{here}", "users"],
        ["no collection holds readings", "users: no field holds times"],
    ),
}


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("name", BAD)
def test_what_it_refuses(bare: Place, name: str) -> None:
    bare.load()
    bare.database.users.insert_one({"name": "u"})
    arguments, fragments = BAD[name]
    base = bare.uri.partition("/?")[0]
    given = [it.format(base=base, here=at(bare)) for it in arguments]
    ran = bare.command("init", *given, "--quiet", cwd=bare.folder)
    assert ran.code == (1 if name in ("nobody there", "no place for files") else 2), ran
    for fragment in fragments:
        assert fragment in ran.err
    assert "hunter2" not in ran.err and "Traceback" not in ran.err
    assert list(bare.folder.iterdir()) == []


def test_a_file_that_comes_in_between_stays(bare: Place) -> None:
    """The name is free when `init` starts, and taken when it comes to write."""
    bare.load()
    fifo = bare.folder / "bucketwise.toml"
    meddle = ("tests.jobs.late_file", {"path": str(fifo)})
    ran = bare.command.meddled(meddle, "init", at(bare), "-q", cwd=bare.folder)
    assert ran.code == 2 and "it already exists" in ran.err
    assert fifo.read_text() == "mine"


@pytest.mark.proof
def test_the_environment_leads_it_nowhere_else(bare: Place) -> None:
    bare.load()
    ran = init(bare, BUCKETWISE_MONGODB_URI="mongodb://127.0.0.1:1", BUCKETWISE_MONGODB_DATABASE="other")
    assert ran.code == 0, ran


@pytest.mark.proof
def test_it_costs_the_same_however_large_a_collection_is(database: Db, mongodb_uri: str) -> None:
    costs = []
    for size in (1_000, 100_000):
        name = f"{database.name}_{size}"
        with MongoClient[Document](mongodb_uri, tz_aware=True) as client:
            try:
                client[name].iot.insert_many(
                    {"dev": i % 50, "at": T0 + timedelta(seconds=i), "v": i / 4} for i in range(size)
                )
                client[name].iot.create_index("at")
                costs.append(_cost(mongodb_uri, name))
            finally:
                client.drop_database(name)
    assert costs[0] == costs[1]


def _cost(uri: str, name: str) -> tuple[dict[str, int], int]:
    counts = Counts()
    with MongoClient[Document](uri, tz_aware=True, event_listeners=[counts]) as client:
        looker = Inspector(client[name])
        for number, collection in enumerate(looker.wanted([])):
            assert looker.look(collection, f"p{number}", is_named=False).policy is not None
    return {it: count for it, count in counts.commands.items() if it != "endSessions"}, counts.documents


@pytest.mark.proof
def test_it_needs_few_rights(
    asking_mongod: MongoClient[Document], tmp_path: Path, bucketwise: CommandLine
) -> None:
    name = f"test_{uuid.uuid4().hex[:12]}"
    database = asking_mongod[name]
    database.iot.insert_many({"sensor": 1, "at": T0 + timedelta(minutes=i), "t": i / 4} for i in range(9))
    database.command(
        "createRole",
        "looker",
        privileges=[
            {
                "resource": {"db": name, "collection": ""},
                "actions": ["listCollections", "listIndexes", "find"],
            }
        ],
        roles=[],
    )
    database.command("createUser", "bob", pwd="hunter2", roles=["looker"])
    assert asking_mongod.address is not None
    host, port = asking_mongod.address
    try:
        uri = f"mongodb://bob:hunter2@{host}:{port}/{name}?replicaSet=rs0"
        ran = bucketwise("init", "${WHERE}", "--json", cwd=tmp_path, WHERE=uri)
        assert ran.code == 0, ran
        assert "hunter2" not in ran.out + ran.err + (tmp_path / "bucketwise.toml").read_text()
        assert "privilege-missing" in {it["code"] for it in ran.policy("iot")["findings"]}
        wrong = bucketwise("init", uri.replace("hunter2", "hunter3"), "-o", "x.toml", cwd=tmp_path)
        assert wrong.code == 1 and "hunter3" not in wrong.err and not (tmp_path / "x.toml").exists()
    finally:
        database.command("dropAllUsersFromDatabase")
        database.command("dropAllRolesFromDatabase")
        asking_mongod.drop_database(name)


def test_only_people_of_the_folder_may_write(bare: Place) -> None:
    if os.geteuid() == 0:
        return
    bare.load()
    bare.folder.chmod(0o500)
    ran = init(bare)
    assert ran.code == 2 and "Permission denied" in ran.err
