"""An `_id` of any type stands in every message as extended JSON, never as Python would write it."""

from __future__ import annotations

import ast
import json
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from bson import ObjectId, json_util
from bson.binary import Binary
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection

from bucketwise.buckets.bson.raw import Docs
from bucketwise.buckets.fields.selectors import extended_json
from tests.buckets import handmade as bson_of
from tests.buckets.bad_documents import reading
from tests.buckets.odd_documents import IDS as ODD_IDS
from tests.jobs.command import ROOT, Ran
from tests.jobs.place import NOW, POLICIES, START, Place

HEX = "5b3f0d1e2f3a4b5c6d7e8f90"
#: By what they are: the `_id`, and how messages have it.
IDS: dict[str, tuple[Any, str]] = {
    "compound": (
        {"dev": ObjectId(HEX), "hour": START, "n": 1.5},
        f'{{"dev": {{"$oid": "{HEX}"}}, "hour": {{"$date": "2018-06-30T00:00:00Z"}}, "n": 1.5}}',
    ),
    "compound, not UTF-8": (
        RawBSONDocument(bson_of.sub(("a", bson_of.text(b"\xff")), ("b", bson_of.int32(1)))[1]),
        '{"a": "\\\\xff", "b": 1}',
    ),
    "ObjectId": (ObjectId(HEX), f'{{"$oid": "{HEX}"}}'),
    "UUID": (
        Binary.from_uuid(UUID("00112233-4455-6677-8899-aabbccddeeff")),
        '{"$binary": {"base64": "ABEiM0RVZneImaq7zN3u/w==", "subType": "04"}}',
    ),
    "string": ('é "x"\x1b[31m', '"é \\"x\\"\\u001b[31m"'),
    "date": (datetime(2018, 6, 30, 1, tzinfo=UTC), '{"$date": "2018-06-30T01:00:00Z"}'),
    "number": (10.5, "10.5"),
}
#: As Python writes them.
FOREIGN = ("RawBSONDocument", "codec_options", "ObjectId(", "UUID(", "datetime.", "Binary(", "Int64(")
OVERFLOW = """
[policies.ticks.overflow]
flag_field = "more"
collection = "ticks_more"
ref_field = "of"
samples_field = "p"
"""
NUMBERS = """
[policies.numbers]
collection = "numbers"
model = "reading"
time_field = "at"
series_fields = ["sensor"]
value_fields = ["t"]
expected_interval = "1m"
max_hole = "5m"
[policies.numbers.rollup]
hourly = "numbers_hourly"
[policies.numbers.archive]
after = "30d"
to = "offline"
"""
TEXTS_OF_IDS = [text for _, text in IDS.values()]


def check(ran: Ran, code: int, *texts: str) -> None:
    """The exit code; each text is told, and nothing as Python would write it."""
    assert ran.code == code, ran
    told = ran.out + ran.err
    assert [it for it in FOREIGN if it in told] == []
    assert [it for it in texts if it not in told] == [], told


# From outside


@pytest.fixture
def broken(place: Place) -> Place:
    """A broken bucket of each `_id`, in both policies."""
    for identity, _ in IDS.values():
        place.database.ticks.insert_one({"_id": identity, "symbol": "MDB", "d": START, "p": {"60": 1.5}})
        place.database.iot.insert_one({"_id": identity, "at": START, "t": 1.5})
    return place


def check_both(ran: Ran, code: int) -> None:
    """Of both policies the first `_id`s are told, of those with one reason two at least."""
    check(ran, code)
    told = ran.out + ran.err
    assert sum(told.count(it) >= 2 for it in TEXTS_OF_IDS) >= 2, told


@pytest.mark.proof
def test_quarantined_buckets(broken: Place) -> None:
    page = broken.folder / "audit.html"
    for verb in ("plan", "rollup", "archive", "run"):
        check_both(broken(verb), 3)
    check_both(broken("audit", "--html", str(page)), 4)
    assert [it for it in FOREIGN if it in page.read_text()] == []
    check_both(broken("explain", "--at", "2018-06-30"), 0)
    check(broken("explain", "--at", "2018-06-30", "--json"), 0)
    check(broken("coverage"), 0)
    check(broken("status"), 0)
    for policy in ("ticks", "iot"):
        span = ("--since", "2018-06-30", "--until", "2018-07-01")
        check(broken("readings", "-p", policy, *span), 3, *TEXTS_OF_IDS)
    told = [json_util.loads(text) for text in TEXTS_OF_IDS]
    for verb in ("plan", "rollup", "archive", "run"):
        ran = broken(verb, "--json")
        check(ran, 3)
        for found in map(ran.policy, ("ticks", "iot")):
            bodies = [found] if "quarantine" in found else [found["rollup"], found["archive"]]
            for body in bodies:
                named = [json_util.loads(json.dumps(it["id"])) for it in body["quarantine"]]
                assert sorted(map(str, named)) == sorted(map(str, told))
    check(broken("audit", "--json"), 4)


def rename(collection: Collection[dict[str, Any]], identity: Any) -> None:
    """Give a document of the collection this `_id`."""
    found = collection.find_one_and_delete({})
    assert found is not None
    collection.insert_one(found | {"_id": identity})


@pytest.mark.proof
@pytest.mark.parametrize(
    ("kind", "policy"),
    [
        pytest.param(kind, policy, id=f"{policy}-{kind}", marks=[pytest.mark.proof] * (at != more))
        for at, kind in enumerate(IDS)
        for more, policy in enumerate(("ticks", "iot"))
    ],
)
def test_conflicts_of_restores_and_copies(place: Place, policy: str, kind: str) -> None:
    identity, text = IDS[kind]
    source = place.database[policy]
    rename(source, identity)
    assert place("run", "-p", policy).code == 0
    place.database.back.insert_one({"_id": identity, "another": True})
    check(place("restore", "-p", policy, "--to", "back"), 1, text)
    check(place("restore", "-p", policy, "--to", "back", "--json"), 1)
    late = {"symbol": "MDB", "d": START, "p": {"0": -1.5}}
    source.insert_one(
        {"_id": identity} | (late if policy == "ticks" else {"sensor": 7, "at": START, "t": -1.5})
    )
    code = place("plan", "-p", policy).code
    assert code in (0, 3)
    for verb in ("plan", "run"):
        check(place(verb, "-p", policy, "--json"), code)
        check(place(verb, "-p", policy), code)


@pytest.mark.in_turn(1)
@pytest.mark.parametrize(
    "kind", [pytest.param(it, marks=[pytest.mark.proof] * ("compound" not in it)) for it in IDS]
)
def test_halts(place: Place, kind: str) -> None:
    """Copies that are not as they should be, and restored documents that are not."""
    identity, text = IDS[kind]
    place.database.iot.delete_many({})
    place.database.iot.insert_one({"_id": identity, "sensor": 7, "at": START, "t": 1.5})

    def spoilt(module: str, *command: str) -> Ran:
        meddle = ("tests.jobs.unequal", {"module": module, "field": "t"})
        given = [*command, "-p", "iot", "--now", NOW]
        return place.command.meddled(meddle, *given, cwd=place.folder, MONGODB_URI=place.uri)

    check(spoilt("bucketwise.archivers.writes", "run"), 5, text)
    assert place("run", "-p", "iot").code == 0
    check(spoilt("bucketwise.archivers.restoring.put", "restore", "--to", "back"), 5, text)


@pytest.mark.proof
def test_overflow_without_a_bucket(place: Place) -> None:
    place.write_config(POLICIES.replace("\n[policies.iot]", OVERFLOW + "\n[policies.iot]"))
    place.database.ticks_more.create_index("of")
    assert place("run", "-p", "ticks").code == 0
    for kind in ("compound", "compound, not UTF-8", "string"):
        identity, text = IDS[kind]
        place.database.ticks_more.delete_many({})
        place.database.ticks_more.insert_one({"_id": identity, "of": "nobody", "p": {"7": 1.5}})
        check(place("audit", "-p", "ticks"), 4, f"_id {text}")
    check(place("audit", "-p", "ticks", "--json"), 4)


@pytest.mark.proof
def test_series_of_another_type(place: Place) -> None:
    """What the archive's columns can't hold, and holes: the series is told as `_id`s are."""
    place.write_config(POLICIES + NUMBERS)
    numbers = place.database.numbers
    numbers.create_index("at")
    numbers.insert_one({"sensor": 7, "at": START, "t": 1.5})
    assert place("run", "-p", "numbers").code == 0
    numbers.insert_many(
        {"_id": identity, "sensor": ObjectId(HEX), "at": START, "t": 1.5} for identity, _ in IDS.values()
    )
    numbers.insert_one({"sensor": ObjectId(HEX), "at": START + timedelta(hours=1), "t": 1.5})
    oid = IDS["ObjectId"][1]
    ran = place("run", "-p", "numbers")
    check(ran, 3, f"a column of another type than {oid}")
    assert sum(text in ran.out for text in TEXTS_OF_IDS) >= 3, ran  # the first and the last of one reason
    check(place("audit", "-p", "numbers"), 4, f"no reading of sensor={oid} from")


# Alone


@pytest.mark.parametrize("kind", ODD_IDS)
def test_any_id_can_be_told(kind: str) -> None:
    """As queries name it, and as it is told; one is told as the other."""
    documents = Docs.of([reading(_id=ODD_IDS[kind])])
    text = extended_json(documents.decode_id(0))
    assert text == extended_json(documents.legible_id(0))
    assert text.isprintable()
    json.loads(text)


def test_a_document_as_it_is_queried_is_told_with_odd_bytes_as_escapes() -> None:
    identity = bson_of.sub(("a", bson_of.text(b"\xff")), ("b", bson_of.binary(b"short", 4)))
    documents = Docs.of([reading(_id=identity)])
    assert extended_json(documents.decode_id(0)) == (
        '{"a": "\\\\xff", "b": {"$binary": {"base64": "c2hvcnQ=", "subType": "04"}}}'
    )


# In the code


PRODUCT = ("config", "buckets", "rollups", "archivers", "jobs")
#: What may stand in a message as `repr` has it: texts, and nothing that comes out of a document.
TEXTS = {
    "collection", "field", "foreign", "key", "name", "raw[:_SHOWN]", "settings.url", "span", "text", "to",
    "begun.reason", "mongodb.database", "data[:80]", "place.url", "record.get('kind')", "state",
    "got", "wanted",  # of the demo, whose documents are its own
    "it['reason']", "it", "min(names)", "seen",  # of an erasure; a module; keys in a store
}  # fmt: skip
#: The `_id`s of a lease and of receipts, which are names.
NO_BUCKETS = {
    "_subject(document['_id'])", "receipt['_id']['name']", "found['_id']['name']",
    "found['_id']['version']", "policy.id", "present.id", "self.id",  # of a policy, and of replica sets
}  # fmt: skip


@cache
def formatted() -> list[tuple[str, ast.FormattedValue]]:
    """All that f-strings of the product put in, and where."""
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno}", node)
        for path in sorted(it for package in PRODUCT for it in Path(ROOT, package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FormattedValue)
    ]


def names_an_id(node: ast.AST) -> bool:
    """Whether it is an `_id` by what it is called."""
    if isinstance(node, ast.Attribute):
        return node.attr in ("id", "decode_id", "legible_id")
    return isinstance(node, ast.Constant) and node.value in ("id", "_id")


def is_told(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "extended_json"


@pytest.mark.proof
def test_ids_go_into_messages_in_one_way() -> None:
    found = formatted()
    told = [where for where, node in found if is_told(node.value)]
    assert len(told) >= 5
    bare = [
        f"{where}: {ast.unparse(node.value)}"
        for where, node in found
        if any(map(names_an_id, ast.walk(node.value)))
        and not is_told(node.value)
        and ast.unparse(node.value) not in NO_BUCKETS
    ]
    assert bare == []


@pytest.mark.proof
def test_what_is_told_as_python_has_it_is_text() -> None:
    """`!r` of anything else may be of a document: use extended_json. Add the name of a text above."""
    reprs = [
        f"{where}: {ast.unparse(node.value)}"
        for where, node in formatted()
        if (node.conversion == ord("r") or "repr(" in ast.unparse(node.value))
        and ast.unparse(node.value) not in TEXTS
    ]
    assert reprs == []
