"""Texts of times and of series in a collection with a default collation: found by their bytes, by an index
where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import product
from random import Random
from typing import Any

import bson
import pytest
from pymongo.collation import Collation
from pymongo.database import Database

from bucketwise.buckets.bson.cursor import SIMPLE
from bucketwise.buckets.collations import byte_test
from bucketwise.buckets.fields.formats import format_of
from bucketwise.buckets.fields.times import LAST_TEXT
from bucketwise.buckets.source import Source
from bucketwise.config.models import make_policy
from tests.buckets.bad_documents import READING, SAMPLES

Document = dict[str, Any]
Mongo = Database[Document]
DAY = timedelta(days=1)
START = datetime(2024, 12, 28)  # noqa: DTZ001
COLLATIONS: list[Document] = [
    {"locale": "en", "strength": 1},
    {"locale": "en", "strength": 2, "caseLevel": True},
    {"locale": "en", "numericOrdering": True},
    {"locale": "fr_CA", "backwards": True},
    {"locale": "en", "alternate": "shifted", "strength": 1, "numericOrdering": True},
    {"locale": "de@collation=phonebook", "caseFirst": "upper"},
    {"locale": "zh@collation=stroke", "strength": 3},
    {"locale": "ar"},
]
FORMATS = [
    *("%Y-%m-%d %H:%M:%S", "%Y%m%d%H%M%S", "%Y/%m/%dT%H:%M", "%Y-%m-%d", "%Y.%m", "%Y年%m月%d日"),
    *("%Y-%m-%dT%H:%M:%S.%f", "%Y,%m,%d,%H,%M,%S,%f", "%Y-%m-%d Tag %H ch %M"),
]


def ids(batches: Any) -> list[Any]:
    return sorted(batch.main.decode_id(i) for batch in batches for i in range(len(batch)))


def ms_of(at: datetime) -> int:
    return (at - datetime(1970, 1, 1)) // timedelta(milliseconds=1)  # noqa: DTZ001


@pytest.mark.parametrize("format", FORMATS)
def test_texts_of_a_format_sort_as_their_bytes_where_we_say_so(database: Mongo, format: str) -> None:
    """The order that a server gives texts of a format, with fractions of all widths, and what is behind."""
    random = Random(7)
    at = [START + timedelta(microseconds=random.randrange(10 ** (13 - i % 2 * 7))) for i in range(300)]
    texts = sorted({_cut(it.strftime(format), random) for it in at} | {"", LAST_TEXT})
    database["it"].insert_many([{"t": it} for it in texts])
    for collation in COLLATIONS:
        found = [it["t"] for it in database["it"].find().sort("t", 1).collation(Collation(**collation))]
        assert (found == texts) == format_of(format).sorts_under(collation), collation


def _cut(text: str, random: Random) -> str:
    """A text whose fraction of a second, at the end, lacks digits."""
    return text[: len(text) - random.choice([0, 0, 2, 5])] if text[-6:].isdigit() and len(text) > 20 else text


@contextmanager
def plans(database: Mongo, collection: str) -> Iterator[set[str]]:
    """How the server finds what is asked of a collection."""
    found: set[str] = set()
    database.command("profile", 2)
    yield found
    database.command("profile", 0)
    profile = database["system.profile"]
    asked = {"ns": f"{database.name}.{collection}", "planSummary": {"$exists": True}}
    found |= {it["planSummary"].split()[0] for it in profile.find(asked)}
    profile.drop()


@pytest.mark.parametrize("is_simple", [False, True])
@pytest.mark.parametrize("collation", COLLATIONS[:3])
@pytest.mark.parametrize(
    "keys",
    [
        {"time_unit": "iso"},
        {"time_unit": "iso", "timezone": "Asia/Tokyo"},
        {"time_format": "%Y-%m-%dT%H:%M:%S"},
    ],
    ids=str,
)
def test_an_index_finds_texts_whatever_its_collation(
    database: Mongo, keys: Document, collation: Document, is_simple: bool
) -> None:
    policy = make_policy(**{**READING, **keys})
    it = database.create_collection(policy.collection, collation=collation)
    it.create_index("d", collation=SIMPLE if is_simple else None)
    days = [START + day * DAY + timedelta(hours=hour) for day in range(11) for hour in (0, 9, 23)]
    it.insert_many([{"_id": i, "symbol": "x", "p": 1.0, "d": at.isoformat()} for i, at in enumerate(days)])
    shift = timedelta(hours=9 if "timezone" in keys else 0)
    times = [ms_of(at - shift) for at in days]
    source = Source(database, policy)
    source.look_at_texts()
    with plans(database, policy.collection) as found:
        for start, length in product(
            (times[0], times[4], times[13] + 1, times[30]), (1, 40_000_000, 86_400_000)
        ):
            expected = [i for i, at in enumerate(times) if start <= at < start + length]
            assert ids(source.ending(start, start + length)) == expected
            assert ids(source.batches(start, start + length)) == expected
            assert source.count_ending(start, start + length) == len(expected)
        assert ids(source.untimed()) == []
        assert source.earliest() is not None
        assert source.latest() is not None
        assert source.comparison.has_index("d")
    assert found == {"IXSCAN"}


def test_an_index_by_numbers_inside_of_texts_is_not_used_for_fractions(database: Mongo) -> None:
    policy = make_policy(**{**READING, "time_format": "%Y-%m-%d %H:%M:%S.%f"})
    it = database.create_collection(policy.collection, collation={"locale": "en", "numericOrdering": True})
    it.create_index("d")
    texts = [f"2025-01-01 10:00:00.{fraction}" for fraction in ("45", "5", "123", "7")]
    it.insert_many([{"_id": i, "symbol": "x", "p": 1.0, "d": text} for i, text in enumerate(texts)])
    source = Source(database, policy)
    source.look_at_texts()
    start = ms_of(datetime(2025, 1, 1, 10))  # noqa: DTZ001
    assert ids(source.ending(start + 400, start + 600)) == [0, 1]
    assert not source.comparison.has_index("d")


def test_samples_are_found_by_an_index_of_their_texts(database: Mongo) -> None:
    without: Document = {"start_field": None, "end_field": None, "count_field": None, "sum_fields": {}}
    policy = make_policy(**{**SAMPLES, **without, "sample_time_unit": "iso"})
    it = database.create_collection(policy.collection, collation=COLLATIONS[2])
    it.create_index("samples.time")
    texts = [[f"2025-01-{day:02}T{hour:02}:00Z" for hour in (1, 9)] for day in range(1, 12)]
    it.insert_many(
        [
            {"_id": i, "symbol": "x", "samples": [{"time": at, "p": 1.0} for at in some]}
            for i, some in enumerate(texts)
        ]
    )
    source = Source(database, policy)
    source.look_at_texts()
    start = ms_of(datetime(2025, 1, 3))  # noqa: DTZ001
    with plans(database, policy.collection) as found:
        assert set(ids(source.batches(start, start + 86_400_000))) >= {2}
        assert ids(source.ending(start, start + 86_400_000)) == [2]
        assert source.earliest() is not None
        assert source.latest() is not None
    assert found == {"IXSCAN"}


def test_a_user_who_may_not_ask_for_indexes_finds_all_the_same(database: Mongo) -> None:
    """So does one of a view, which has none."""
    policy = make_policy(**{**READING, "time_unit": "iso"})
    database["held"].insert_one({"_id": 1, "symbol": "x", "d": START.isoformat(), "p": 1.0})
    database.command("create", policy.collection, viewOn="held", pipeline=[])
    start = ms_of(START)
    assert ids(Source(database, policy).batches(start, start + 1, {"symbol": "x"})) == [1]


@pytest.mark.parametrize("keys", [{}, {"time_unit": "iso"}])
def test_series_that_an_index_takes_for_one_are_told_apart(database: Mongo, keys: Document) -> None:
    policy = make_policy(**{**READING, **keys})
    it = database.create_collection(policy.collection, collation=COLLATIONS[0])
    it.create_index([("symbol", 1), ("d", 1)])
    at = START.isoformat() if keys else START
    it.insert_many(
        [{"_id": i, "symbol": name, "d": at, "p": 1.0} for i, name in enumerate(["a", "A", "á", 5])]
    )
    source, start = Source(database, policy), ms_of(START)
    for query, expected in ({"symbol": {"$in": ["a", 5]}}, [0, 3]), ({"symbol": {"$eq": "A"}}, [1]):
        assert ids(source.batches(start, start + 1, query)) == expected
        assert ids(source.matching(query)) == expected
        assert source.count_ending(start, start + 1, query) == len(expected)
    with plans(database, policy.collection) as found:
        list(source.matching({"symbol": "a"}))
    assert found == {"IXSCAN"}


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        ({}, "aAbx"),
        ({"m": "a"}, "ax"),
        ({"m": {"$in": ["a", "b", 5]}}, "abx"),
        ({"$or": [{"m": "a"}, {"m": {"$eq": "A"}}]}, "aAx"),
        ({"$and": [{"m": {"$gte": bson.MinKey()}}, {"m": "b"}]}, "bx"),
        ({"m": {"$nin": ["a"]}}, None),
        ({"m": {"$gt": "a"}}, None),
        ({"m": {"$regex": "a"}}, None),
        ({"m": {"$in": [{"k": "a"}]}}, None),
        ({"m": {"$in": ["a", bson.Regex("^b")]}}, None),
        ({"$nor": [{"m": "a"}]}, None),
        ({"$expr": {"$eq": ["$m", "a"]}}, None),
    ],
    ids=str,
)
def test_texts_are_compared_in_what_comes_back(query: Document, meant: str | None) -> None:
    """`x` stands for a document in which the field is no text."""
    test = byte_test(query)
    documents = {name: bson.encode({"m": 7 if name == "x" else name}) for name in "aAbx"}
    found = None if test is None else "".join(name for name, it in documents.items() if test(it))
    assert found == meant
