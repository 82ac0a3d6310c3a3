"""Which keys the documents that a query meets may have, and how keys are named and written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64, ObjectId, Regex, Timestamp
from bson.min_key import MinKey
from hypothesis import given
from hypothesis import strategies as st
from pymongo.database import Database

from bucketwise.buckets.bson.types import first_at
from bucketwise.buckets.sharding.commands import UnwrittenError, js
from bucketwise.buckets.sharding.keys import ShardKey, parse_keys, part_of, spans
from bucketwise.config.errors import UsageError

Document = dict[str, Any]
COMPARED = {"$gt": "__gt__", "$gte": "__ge__", "$lt": "__lt__", "$lte": "__le__"}
values = st.integers(-3, 3) | st.sampled_from(["", "a", "b"])
documents = st.dictionaries(st.sampled_from("ab"), values)
conditions = (
    values
    | st.builds(lambda it: {"$eq": it}, values)
    | st.builds(lambda it: {"$in": it}, st.lists(values, max_size=3))
    | st.dictionaries(st.sampled_from(sorted(COMPARED)), values, min_size=1)
    | st.just({"$exists": True})
)
plain = st.dictionaries(st.sampled_from("ab"), conditions)
queries = st.recursive(
    plain,
    lambda inner: (
        st.builds(lambda it: {"$and": it}, st.lists(inner, min_size=1, max_size=3))
        | st.builds(lambda it, rest: {"$or": it} | rest, st.lists(inner, min_size=1, max_size=3), plain)
    ),
    max_leaves=4,
)
keys = st.sampled_from(["a", "b", "a,b", "a:hashed", "a:hashed,b", "b,a:hashed"]).map(
    lambda it: parse_keys(it)[0]
)


def meets(document: Document, query: Document) -> bool:
    """As MongoDB says, of values that are no null."""
    for name, condition in query.items():
        if name in ("$and", "$or"):
            found = (all if name == "$and" else any)(meets(document, it) for it in condition)
        elif isinstance(condition, dict):
            found = name in document and all(_holds(document[name], *it) for it in condition.items())
        else:
            found = name in document and document[name] == condition
        if not found:
            return False
    return True


def _holds(value: Any, operator: str, given: Any) -> bool:
    if operator == "$in":
        return value in given
    if operator in COMPARED:
        return type(value) is type(given) and bool(getattr(value, COMPARED[operator])(given))
    return operator == "$exists" or bool(value == given)


def key_of(key: ShardKey, document: Document) -> bytes:
    raw = bson.encode(document)
    return b"".join(part_of(first_at(raw, (path,)), is_hashed=is_hashed) for path, is_hashed in key.fields)


@given(keys, queries, st.lists(documents, max_size=8))
def test_no_document_that_a_query_meets_is_outside(
    key: ShardKey, query: Document, some: list[Document]
) -> None:
    found = spans(key, query)

    for document in some:
        if meets(document, query):
            assert any(low <= key_of(key, document) < high for low, high in found)


@pytest.mark.parametrize(
    ("key", "query", "inside", "outside"),
    [
        ("a", {"a": 1}, [{"a": 1}, {"a": 1.0}], [{"a": 2}, {}]),
        (
            "a,b",
            {"a": 1, "b": {"$gte": 2, "$lt": 4}},
            [{"a": 1, "b": 2}],
            [{"a": 1, "b": 4}, {"a": 1, "b": "x"}],
        ),
        ("a,b", {"b": 1}, [{"a": 5, "b": 9}], []),
        ("a:hashed", {"a": {"$in": [1, 2]}}, [{"a": 1}, {"a": 2}], [{"a": 3}]),
        ("a:hashed", {"a": {"$gt": 1}}, [{"a": 0}], []),
        ("a", {"$and": [{"a": {"$gt": 1}}, {"a": {"$lte": 3}}]}, [{"a": 3}], [{"a": 4}, {"a": 0}]),
        ("a", {"$or": [{"a": 1}, {"a": 5}], "b": 0}, [{"a": 1}, {"a": 5}], [{"a": 3}]),
        ("a", {"a": None}, [{}, {"a": None}], [{"a": 0}]),
        ("a", {"a": Regex("^x")}, [{"a": "x"}, {"a": 1}], []),
        ("a", {"$expr": {"$eq": ["$a", 1]}}, [{"a": 2}], []),
    ],
)
def test_spans_are_as_narrow_as_a_query_tells(
    key: str, query: Document, inside: list[Document], outside: list[Document]
) -> None:
    named = parse_keys(key)[0]

    found = spans(named, query)

    for document in (*inside, *outside):
        is_in = any(low <= key_of(named, document) < high for low, high in found)
        assert is_in == (document in inside), document


def test_keys_are_read_as_people_write_them() -> None:
    assert [it.document for it in parse_keys("symbol, d; _id:hashed;a.b:1,c:hashed;symbol,d")] == [
        {"symbol": 1, "d": 1},
        {"_id": "hashed"},
        {"a.b": 1, "c": "hashed"},
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (" ; ", "it names no field"),
        ("a,,b", "a part of the field.s path is empty"),
        ("a,$b", "is an operator to MongoDB"),
        ("a,b,a:hashed", "names a field twice"),
    ],
)
def test_what_is_no_key_is_told(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=f"--shard-keys.*{told}"):
        parse_keys(text)


VALUES: list[tuple[Any, str]] = [
    (ObjectId("5b3f0d1e2f3a4b5c6d7e8f90"), 'ObjectId("5b3f0d1e2f3a4b5c6d7e8f90")'),
    (datetime(2018, 6, 30, 1, 2, 3, 4000, tzinfo=UTC), 'ISODate("2018-06-30T01:02:03.004Z")'),
    (Int64(5), 'NumberLong("5")'),
    (Decimal128("1.50"), 'NumberDecimal("1.50")'),
    (2**60, f'NumberLong("{2**60}")'),
    (float("-inf"), "-Infinity"),
    ('a"\n\u2028</script>\\', '"a\\"\\n\\u2028</script>\\\\"'),
    ({"a.b": None, "c": [1.5, True]}, '{ "a.b": null, "c": [1.5, true] }'),
    (b"\x00\xff", 'BinData(0, "AP8=")'),
    (Timestamp(3, 4), "Timestamp(3, 4)"),
    (MinKey(), "MinKey()"),
]


def test_values_are_written_as_mongosh_reads_them(database: Database[Document]) -> None:
    """MongoDB itself parses the JavaScript."""
    database.one.insert_one({})
    for value, text in VALUES:
        assert js(value) == text
        assert is_javascript(database, f"f({text})")
    assert not is_javascript(database, "f({ )")
    with pytest.raises(UnwrittenError):
        js(Regex("a"))


def is_javascript(database: Database[Document], code: str) -> bool:
    """Whether the server's JavaScript engine can parse it. It is not run."""
    parse = "function(code) { try { new Function(code); return true } catch (error) { return false } }"
    stages: list[Document] = [
        {"$limit": 1},
        {"$project": {"is": {"$function": {"body": parse, "args": [code], "lang": "js"}}}},
    ]
    (found,) = database.one.aggregate(stages)
    return bool(found["is"])
