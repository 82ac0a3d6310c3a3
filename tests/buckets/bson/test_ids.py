"""The order of `_id`s against MongoDB's own."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from bson.raw_bson import RawBSONDocument
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo.database import Database
from pymongo.errors import BulkWriteError

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.ids import sort_key, sort_keys
from bucketwise.buckets.layouts.groups import group_by_layout
from bucketwise.config.models import make_policy
from tests.buckets import handmade as bson_of
from tests.buckets.handmade import Value
from tests.buckets.oracle import OPTIONS
from tests.buckets.strategies import decimals, ids, names, numbers, scalars, texts, uuids
from tests.examples import examples

pytestmark = pytest.mark.filterwarnings("error")

READING = make_policy(
    name="it", collection="it", model="reading", time_field="d", series_fields=(), value_fields=("p",)
)
DUPLICATE = 11000

DECIMALS = """
    NaN -Infinity -9E+6144 -1E+400 -1.5 -1E-400 -1E-6176 0 1E-6176 1E-400 0.1
    0.1000000000000000055511151231257827 0.1000000000000000055511151231257828 9007199254740992.5
    9007199254740993.5 9223372036854775807.5 1E+308 1E+400 9E+6144
"""
DOUBLES = [float("inf"), 0.1, 0.5, -0.5, 2.0**53, 2.0**63, -(2.0**63), 5e-324, -5e-324]
TEXTS = [b"", b"\0", b"a", b"a\0", b"a\0\0", b"a\0b", b"a\x01", b"ab", b"\xc3\xa4"]
TABLE: list[Value] = [
    *(bson_of.decimal(number) for number in DECIMALS.split()),
    *(bson_of.double(number) for number in DOUBLES),
    *(bson_of.int64(n) for n in (2**53 + 1, 2**53 + 2, -(2**53) - 1, 2**63 - 1, -(2**63) + 1, 7, -7)),
    *(bson_of.int32(n) for n in (1, -1, 255, 256, 65_536, 2**31 - 1, -(2**31))),
    *(bson_of.text(text) for text in TEXTS),
    *(bson_of.symbol(text) for text in ("aa", "b")),
    *(bson_of.binary(data, 0) for data in (b"", b"\0", b"\0\0", b"a", b"a\0", b"b", b"a" * 300)),
    *(bson_of.binary(data, 5) for data in (b"\0", b"a\0", b"a" * 255, b"a" * 256)),
    *(bson_of.binary(data, 2) for data in (b"", b"a", b"a\0")),
    *(bson_of.object_id(bytes([n]) + bytes(10) + bytes([m])) for n in (0, 255) for m in (0, 1, 255)),
    *(bson_of.boolean(truth) for truth in (False, True)),
    *(bson_of.date(ms) for ms in (0, -1, 1, 256, 2**63 - 1, -(2**63))),
    *(bson_of.timestamp(s, i) for s in (0, 1, 2**32 - 1) for i in (0, 1, 2**32 - 1)),
    bson_of.null,
    bson_of.min_key,
    bson_of.max_key,
    bson_of.code("a"),
    bson_of.code("a\0"),
    bson_of.code("b"),
    bson_of.sub(),
    bson_of.sub(("a", bson_of.null)),
    bson_of.sub(("a", bson_of.int32(1))),
    bson_of.sub(("a", bson_of.int64(2)), ("b", bson_of.int32(0))),
    bson_of.sub(("a", bson_of.double(2))),
    bson_of.sub(("a", bson_of.text("x"))),
    bson_of.sub(("a", bson_of.text("x\0"))),
    bson_of.sub(("a", bson_of.text("x")), ("b", bson_of.null)),
    bson_of.sub(("aa", bson_of.int32(1))),
    bson_of.sub(("b", bson_of.int32(0))),
    bson_of.sub(("b", bson_of.array())),
    bson_of.sub(("b", bson_of.array(bson_of.int32(1)))),
    bson_of.sub(("b", bson_of.array(bson_of.int32(1), bson_of.min_key))),
    bson_of.sub(("b", bson_of.array(bson_of.int32(2)))),
    bson_of.sub(("b", bson_of.sub(("c", bson_of.max_key)))),
    bson_of.sub(("b", bson_of.regex("a", "i"))),
    bson_of.sub(("b", bson_of.regex("a"))),
    bson_of.sub(("b", bson_of.regex("b"))),
    bson_of.sub(("b", bson_of.undefined)),
    bson_of.sub(("b", bson_of.db_pointer("c", bytes(12)))),
    bson_of.sub(("b", bson_of.code_with_scope("c"))),
]  # fmt: skip

scattered = st.one_of(
    ids,
    numbers,
    decimals,
    texts,
    uuids,
    st.sampled_from(TABLE),
    st.lists(st.tuples(names, scalars), max_size=3, unique_by=lambda field: field[0]).map(
        lambda fields: bson_of.sub(*fields)
    ),
)


def check_order(database: Database[dict[str, Any]], name: str, identities: list[Value]) -> int:
    collection = database.get_collection(name, codec_options=OPTIONS)
    documents = [
        RawBSONDocument(bson_of.document(("_id", identity), ("d", bson_of.date(0))))
        for identity in identities
    ]
    try:
        collection.insert_many(documents, ordered=False)
    except BulkWriteError as error:
        assert error.details is not None
        assert {failure["code"] for failure in error.details["writeErrors"]} == {DUPLICATE}
    stored, by_server = (
        list(Docs.split(b"".join(cast(Any, collection.find_raw_batches(sort=sort)))))
        for sort in (None, [("_id", 1)])
    )
    decoded = decode(Batch.of(Docs.of(stored)), READING)
    assert [stored[unit] for unit in decoded.units] == by_server
    keys = [bytes(key) for key in decoded.columns.bucket_order]
    assert keys == sorted(set(keys))
    return len(stored)


def test_a_table_of_ids_sorts_as_mongodb_sorts_it(database: Database[dict[str, Any]]) -> None:
    assert check_order(database, "table", TABLE) == len(TABLE)


@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))
@given(st.lists(scattered, min_size=2, max_size=40))
def test_ids_sort_as_mongodb_sorts_them(database: Database[dict[str, Any]], identities: list[Value]) -> None:
    database["any"].drop()
    check_order(database, "any", identities)


@pytest.mark.parametrize(
    "equal",
    [
        [bson_of.int32(2), bson_of.int64(2), bson_of.double(2), bson_of.decimal("2.00")],
        [bson_of.double(0.0), bson_of.double(-0.0), bson_of.decimal("-0E+3"), bson_of.int32(0)],
        [bson_of.double(float("nan")), bson_of.bits(0xFFF8000000000001), bson_of.decimal("NaN")],
        [bson_of.text("a"), bson_of.symbol("a")],
        [bson_of.double(2.0**63), bson_of.decimal("9223372036854775808")],
    ],
)
def test_what_mongodb_holds_equal_has_one_key(equal: list[Value]) -> None:
    assert len({sort_key(*value) for value in equal}) == 1
    inside = {sort_key(*bson_of.sub(("a", value))) for value in equal}
    assert len(inside) == 1


@given(st.lists(scattered, min_size=2, max_size=2))
def test_no_key_is_the_beginning_of_another(pair: list[Value]) -> None:
    one, other = (sort_key(*value) for value in pair)
    assert one == other or not (one.startswith(other) or other.startswith(one))


#: `_id`s of one shape: they differ in what is as long in each.
alike = st.tuples(
    st.integers(-(2**31), 2**31 - 1).map(bson_of.int32),
    st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-9, 9)).map(bson_of.int64),
    st.one_of(st.floats(), st.sampled_from([0.0, -0.0])).map(bson_of.double),
    st.text("a\0~ä", min_size=3, max_size=3).map(lambda text: bson_of.text(text.encode().ljust(6, b"-"))),
    st.integers(-(2**63), 2**63 - 1).map(bson_of.date),
    st.binary(min_size=3, max_size=3).map(lambda data: bson_of.binary(data, 5)),
    st.binary(min_size=12, max_size=12).map(bson_of.object_id),
    st.booleans().map(bson_of.boolean),
)
FIELDS = ("i", "long", "x", "text", "at", "data", "oid", "is")


@given(
    st.lists(alike, min_size=1, max_size=12),
    st.one_of(st.sampled_from(FIELDS).map(lambda it: [it]), st.lists(st.sampled_from(FIELDS), unique=True)),
    st.booleans(),
)
def test_many_alike_have_the_keys_of_each(
    found: list[tuple[Value, ...]], named: list[str], alone: bool
) -> None:
    """Also as sub-documents, one inside another."""
    identities = []
    for values in found:
        fields = [(name, values[FIELDS.index(name)]) for name in named]
        is_one = alone and len(fields) == 1
        identities.append(fields[0][1] if is_one else bson_of.sub(*fields, ("more", bson_of.sub(*fields))))
    docs = Docs.of([bson_of.document(("_id", identity)) for identity in identities])
    for some in group_by_layout(docs, None):
        keys = sort_keys(some, some.layout.get(("_id",)))
        expected = [sort_key(*identities[member]) for member in some.members]
        assert keys.tolist() == np.array(expected, dtype=np.bytes_).tolist()
