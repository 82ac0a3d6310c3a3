"""Bad and odd documents through the whole cycle by the command line: each is archived, and comes back bit for
bit, or stays and is named with its reason. None keeps the others from going."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from bucketwise.buckets.bson.types import BOOL, elements
from tests.archivers.builders import insert, raw_documents
from tests.buckets import bad_documents as bad
from tests.buckets import handmade as bson_of
from tests.buckets.bad_documents import BAD_DOCUMENTS, BAD_ID, reading, sound_of
from tests.buckets.odd_documents import IDS, SERIES, odd_documents, odd_overflow
from tests.jobs.command import CommandLine, Ran
from tests.jobs.place import Db, Place

NOW = "2018-12-01T00:00:00Z"
ODD: tuple[dict[str, Any], ...] = (bad.READING, bad.SLOTS_MORE, bad.SAMPLES_MORE, bad.TIMESERIES)
ONLINE = (bad.READING, bad.SLOTS_MORE)


class Case:
    """One policy, and what is sound of its kind; and all, or each so-manieth, of what is bad or odd."""

    def __init__(self, name: str, options: dict[str, Any], to: str, each: int = 1) -> None:
        self.name, self.options, self.to, self.each = name, options, to, each
        self.model = str(options["model"])
        self.more = f"{name}_more"
        self.bad = [it for it in BAD_DOCUMENTS if it.options == options][::each]
        sound = sound_of(self.bad[0])
        if options in ODD:
            sound += [odd.bucket for odd in islice(odd_documents(self.model), 0, None, each)]
        if "overflow" in options and options in ODD:
            sound += [odd.bucket for odd in islice(odd_overflow(self.model), 0, None, each)]
        self.sound = [bucket.main for bucket in sound]
        self.broken = [renamed(it.document, number) for number, it in enumerate(self.bad)]
        self.broken_extras = [renamed(more, n) for n, it in enumerate(self.bad) for more in it.extras]
        self.sound_extras = [extra for bucket in sound for extra in bucket.extras]

    def load(self, database: Db) -> None:
        if self.model == "timeseries":
            database.create_collection(self.name, timeseries={"timeField": "d", "metaField": "symbol"})
        insert(database, self.name, [*self.broken, *self.sound])
        insert(database, self.more, [*self.broken_extras, *self.sound_extras])

    @property
    def config(self) -> str:
        kept = {key: it for key, it in self.options.items() if key != "name" and it not in (None, {})}
        if "overflow" in kept:
            kept["overflow"] = {**kept["overflow"], "collection": self.more}
        kept["collection"] = self.name
        kept["rollup"] = {
            "hourly": f"{self.name}_h",
            "daily": f"{self.name}_d",
            "timezone": "Pacific/Auckland",
        }
        kept["archive"] = {"after": "30d", "to": self.to}
        if self.to == "online":
            kept["archive"]["collection"] = f"{self.name}_archive"
        return f"[policies.{self.name}]\n" + "".join(f"{key} = {toml(it)}\n" for key, it in kept.items())

    def check_told(self, quarantine: list[dict[str, Any]]) -> None:
        """Every bad document is named, where it breaks and why, and nothing else is."""
        told = list(quarantine)
        for number, it in enumerate(self.bad):
            where = it.field.replace("it_more", self.more)
            reason = it.reason.replace("it_more", self.more)
            found = [
                one
                for one in told
                if (one["field"] == where and reason in one["reason"])
                and (it.told != "bad" or one["id"] == f"bad {number}")
            ]
            assert found, (it.id, quarantine)
            told.remove(found[0])
        assert told == []


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def renamed(document: bytes, number: int) -> bytes:
    """With another text for each BAD_ID."""
    document = document.replace(BAD_ID[1], bson_of.text(f"bad {number}")[1])
    return struct.pack("<i", len(document)) + document[4:]


def options_of_all() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for it in BAD_DOCUMENTS:
        if it.options not in found:
            found.append(it.options)
    return found


class Cycle:
    """Cases in one database, worked on by the command line."""

    def __init__(self, place: Place, cases: list[Case]) -> None:
        self.place, self.database, self.cases = place, place.database, cases
        place.write_config("".join(case.config for case in self.cases))
        for case in self.cases:
            case.load(self.database)
        self.inserted = {case.name: raw_documents(self.database, case.name) for case in self.cases}
        self.ran: dict[str, Ran] = {}

    def __call__(self, verb: str, *arguments: str, is_table: bool = False) -> Ran:
        """`Ran.json` reads only what is valid JSON."""
        ran = self.place(verb, *arguments, *([] if is_table else ["--json"]), now=NOW)
        assert is_table or ran.err == "", ran.err
        if not is_table:
            assert len(ran.json["policies"]) in (1, len(self.cases))
        return ran


@pytest.fixture(scope="module", params=["some", pytest.param("all", marks=pytest.mark.proof)])
def cycle(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    client: MongoClient[Any],
    mongodb_uri: str,
    bucketwise: CommandLine,
) -> Iterator[Cycle]:
    """After two runs. That each bad document is found is tested with what decodes it."""
    database = client[f"test_{uuid.uuid4().hex[:12]}"]
    try:
        place = Place(tmp_path_factory.mktemp("place"), database, mongodb_uri, bucketwise)
        whole = request.param == "all"
        offline, online, each = (options_of_all(), ONLINE, 1) if whole else (ONLINE[:1], ONLINE[1:], 5)
        cases = [Case(f"off{n}", options, "offline", each) for n, options in enumerate(offline)]
        cases += [Case(f"on{n}", options, "online", each) for n, options in enumerate(online)]
        it = Cycle(place, cases)
        it.ran["plan"] = it("plan")
        it.ran["run"] = it("run")
        it.ran["again"] = it("run")
        yield it
    finally:
        client.drop_database(database.name)


@pytest.mark.proof
def test_every_bad_document_is_named_by_plan_and_run(cycle: Cycle) -> None:
    for verb in ("plan", "run", "again"):
        ran = cycle.ran[verb]
        assert ran.code == 3
        for case in cycle.cases:
            told = ran.policy(case.name)
            assert told["exit_code"] == 3, (verb, case.name)
            for step in ("rollup", "archive"):
                assert told[step]["quarantined"] == len(case.bad), (verb, case.name, step)
                case.check_told(told[step]["quarantine"])


@pytest.mark.proof
def test_what_is_bad_stays_and_all_else_is_archived(cycle: Cycle) -> None:
    for case in cycle.cases:
        live = raw_documents(cycle.database, case.name)
        archived = cycle.ran["run"].policy(case.name)["archive"]
        assert archived["buckets"] == len(case.sound), case.name
        if case.model == "timeseries":
            assert live == cycle.inserted[case.name]
            continue
        assert live == sorted(case.broken), case.name
        assert raw_documents(cycle.database, case.more) == sorted(case.broken_extras), case.name
        if case.to == "online":
            assert raw_documents(cycle.database, f"{case.name}_archive") == sorted(case.sound)
        again = cycle.ran["again"].policy(case.name)
        assert again["archive"]["buckets"] == again["rollup"]["hourly"]["written"] == 0, case.name


def measurement(document: bytes) -> bytes:
    """The server returns fields in any order."""
    return b"".join(sorted(document[start:end] for start, _, end in elements(document)))


@pytest.mark.proof
def test_restored_bit_for_bit(cycle: Cycle) -> None:
    for case in cycle.cases:
        back = f"{case.name}_back"
        ran = cycle("restore", "-p", case.name, "--to", back)
        assert ran.code == 0
        found = raw_documents(cycle.database, back)
        if case.model == "timeseries":
            live = map(measurement, cycle.inserted[case.name])  # the server orders fields inside, too
            assert len(found) == len(case.sound)
            assert set(map(measurement, found)) < set(live)
        else:
            assert found == sorted(case.sound), case.name
        extras = raw_documents(cycle.database, case.more)
        assert extras == sorted([*case.broken_extras, *case.sound_extras]), case.name


@pytest.mark.proof
def test_only_looking(cycle: Cycle) -> None:
    verified, audited = cycle("verify"), cycle("audit")
    assert (verified.code, audited.code) == (0, 4)
    for case in cycle.cases:
        if case.to == "offline":
            assert verified.policy(case.name)["readings"] > 0
        codes = [it["code"] for it in audited.policy(case.name)["findings"]]
        assert set(codes) <= {"quarantined", "orphaned-overflow"}, audited.policy(case.name)
        assert codes.count("quarantined") == len(case.bad)
    status = cycle("status")
    assert status.code == 0
    assert [status.policy(case.name)["quarantined"] for case in cycle.cases] == [
        len(case.bad) for case in cycle.cases
    ]


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    ("verb", "code"), [("plan", 3), ("run", 3), ("verify", 0), ("audit", 4), ("status", 0)]
)
def test_tables_move_no_cursor(cycle: Cycle, verb: str, code: int) -> None:
    ran = cycle(verb, "-p", "off0", is_table=True)
    assert ran.code == code
    assert all(it.isprintable() for line in ran.out.split("\n") for it in line)
    if code:
        assert "bad 1" in ran.out


@pytest.mark.proof
def test_readings_and_summaries_tell_every_series_apart(cycle: Cycle) -> None:
    """Series that differ in case, in Unicode's forms or by a blank; but 1 and 1.0 are one, as in MongoDB."""
    for case in (it for it in cycle.cases if it.options in ODD):
        span = ("-p", case.name, "--since", "1900-01-01", "--until", "2018-11-01")
        summed = cycle("summarize", *span).policy(case.name)
        told = [json.dumps(one["series"], ensure_ascii=False) for one in summed["series"]]
        assert len(set(told)) >= len(told) - 1  # 2**53 + 1 as text of either type
        same = case.model == "timeseries"  # whose server sorts the fields of a document there
        assert len(told) == -(-len(SERIES) // case.each) + 1 - same, case.name
        output = cycle.place.folder / "readings"
        ran = cycle("readings", "-p", case.name, "--format", "json", "--output", str(output))
        assert ran.code in (0, 3)
        rows = [json.loads(line) for line in output.read_bytes().decode().splitlines()]
        assert len(rows) == ran.policy(case.name)["readings"] == sum(one["count"] for one in summed["series"])


def test_nothing_lies_outside_the_store(cycle: Cycle) -> None:
    store = cycle.place.folder / "store"
    names = {case.name for case in cycle.cases if case.to == "offline"}
    assert {path.name for path in store.iterdir()} <= {".tmp", "bucketwise.json", *names}
    for path in store.rglob("*.parquet"):
        assert path.relative_to(store).parts[1] in ("data", "meta")
    assert {path.name for path in cycle.place.folder.iterdir()} <= {"store", "bucketwise.toml", "readings"}


@pytest.mark.proof
def test_what_comes_late_with_an_id_of_any_type(cycle: Cycle) -> None:
    """A stream tells of it, the quarantine remembers it, and a person reads of it."""
    late = [reading(_id=bson_of.sub(("late", held)), symbol=None) for held in IDS.values()]
    insert(cycle.database, "off0", late)
    quarantined = len(cycle.cases[0].bad) + len(late)
    for _ in range(2):
        told = cycle("run", "-p", "off0").policy("off0")
        assert told["exit_code"] == 3
        assert told["rollup"]["quarantined"] == told["archive"]["quarantined"] == quarantined
    assert cycle("status", "-p", "off0").policy("off0")["quarantined"] == quarantined
    assert set(late) < set(raw_documents(cycle.database, "off0"))


#: What MongoDB itself does not take, so that no bucket holds it.
REFUSED = {
    "a bool of 2": reading(p=(BOOL, b"\x02")),
    "_id is an array": reading(_id=bson_of.array()),
    "_id is a regular expression": reading(_id=bson_of.regex("x")),
    "_id is undefined": reading(_id=bson_of.undefined),
    "_id holds an operator": reading(_id=bson_of.sub(("a", bson_of.sub(("$x", bson_of.int32(1)))))),
    "_id holds an array with an operator": reading(_id=bson_of.sub(("$x", bson_of.int32(1)))),
    "_id of 9 MB": reading(_id=bson_of.text("x" * 9_000_000)),
    "181 levels": reading(("deep", bad.nested(181, bson_of.null))),
    "over 16 MB": reading(("blob", bson_of.binary(bytes(16 << 20)))),
}


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("name", REFUSED)
def test_the_server_refuses(database: Db, name: str) -> None:
    with pytest.raises(PyMongoError):
        insert(database, "it", [REFUSED[name]])
    assert database.it.count_documents({}) == 0


VIEW = """
[policies.it]
collection = "it"
model = "reading"
time_field = "d"
series_fields = ["symbol"]
value_fields = ["p"]
rollup = {hourly = "hourly"}
archive = {after = "30d", to = "offline"}
"""


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("kind", ["a view", "a capped collection"])
def test_a_source_that_gives_nothing_up(
    tmp_path: Path, database: Db, mongodb_uri: str, bucketwise: CommandLine, kind: str
) -> None:
    """What can't be deleted stays, and is told in a sentence."""
    if kind == "a view":
        insert(database, "beneath", [reading()])
        database.command("create", "it", viewOn="beneath", pipeline=[])
    else:
        database.create_collection("it", capped=True, size=1 << 20)
        insert(database, "it", [reading()])
    place = Place(tmp_path, database, mongodb_uri, bucketwise)
    place.write_config(VIEW)
    for verb in ("plan", "run"):
        ran = place(verb, "--json", now=NOW)
        assert (ran.code, ran.policy("it")["exit_code"]) == (1, 1)
        assert f"it is {kind}, and nothing can be deleted from it" in ran.policy("it")["error"]
    assert database.hourly.count_documents({}) == 1
    assert raw_documents(database, "it") == [reading()]
    place.write_config(VIEW.replace('to = "offline"', 'to = "offline", delete = false'))
    ran = place("run", "--json", now=NOW)
    assert (ran.code, ran.policy("it")["archive"]["buckets"]) == (0, 1)
    assert place("audit", now=NOW).code == 0
    (day,) = place("coverage", "--json", now=NOW).policy("it")["days"]
    assert (day["state"], day["readings"]) == ("both", 1)
    rows = place("readings", "--since", "2018-06-01", "--until", "2018-08-01", now=NOW).out.splitlines()
    assert len(rows) == 2


def test_names_of_collections_with_anything_in_them(
    tmp_path: Path, database: Db, mongodb_uri: str, bucketwise: CommandLine
) -> None:
    name = "a b/\\ü'\"{};[x]\n.x"
    insert(database, name, [reading(), reading(_id=bson_of.text("worse"), d=None)])
    place = Place(tmp_path, database, mongodb_uri, bucketwise)
    place.write_config(VIEW.replace('"it"', json.dumps(name)))
    ran = place("run", "--json", now=NOW)
    assert (ran.code, ran.err) == (3, "")
    assert ran.policy("it")["archive"]["deleted"] == 1
    assert place("restore", "-p", "it", "--to", name, now=NOW).code == 0
    assert len(raw_documents(database, name)) == 2
    assert {path.name for path in (tmp_path / "store").iterdir()} <= {"it", ".tmp", "bucketwise.json"}


@pytest.mark.proof
def test_a_clock_that_was_wrong_for_one_sample_makes_no_run_look_at_each_day_since(place: Place) -> None:
    place.write_config(
        """
[policies.it]
collection = "it"
model = "samples"
samples_field = "s"
sample_time_field = "t"
series_fields = ["a"]
value_fields = ["v"]
[policies.it.rollup]
hourly = "it_hourly"
daily = "it_daily"
[policies.it.archive]
after = "1d"
to = "offline"
"""
    )
    at = 1_530_000_000
    for i, first in enumerate((at, at // 1000, at + 7200)):
        samples = [{"t": first, "v": 1}, {"t": at + 600, "v": 2}]
        place.database["it"].insert_one({"_id": i, "a": 1, "s": sorted(samples, key=lambda it: it["t"])})
    for arguments in (("run",), ("coverage",)):
        place.database.command("profile", 2)
        ran = place(*arguments, now=NOW)
        place.database.command("profile", 0)
        assert ran.code == (3 if arguments == ("run",) else 0), ran
        asked = place.database["system.profile"].count_documents({"op": {"$in": ["query", "command"]}})
        place.database["system.profile"].drop()
        assert asked < 4000  # a day each since 1970 would be tens of thousands
    assert place.database["it_hourly"].count_documents({}) == 2
