"""Names of keys in Redis: any series comes back out of its name, and no two series share one."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Binary, Decimal128, ObjectId
from hypothesis import given
from hypothesis import strategies as st

from bucketwise.buckets.models.series import series_key
from bucketwise.jobs.publish.writer import Keys, member_of, series_of, text_of

#: Texts that look like something else, and such as anybody writes.
TEXTS = st.one_of(
    st.text(max_size=6),
    st.text('"{}[]:%,\\ 0123456789.eE+-truefalsn', max_size=6),
    st.sampled_from(["true", "null", "7", "-7", "7.5", "1e3", "NaN", "%7B", "all", "{MDB}", '"7"']),
)
DATES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
SCALARS: st.SearchStrategy[Any] = st.one_of(
    TEXTS,
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda it: not it.is_integer()),
    st.booleans(),
    DATES.map(lambda it: it.replace(microsecond=it.microsecond // 1000 * 1000)),
    st.binary(min_size=12, max_size=12).map(ObjectId),
    st.uuids(),
    st.binary(max_size=5).map(lambda it: Binary(it, 5)),
    st.integers(-(10**20), 10**20).map(lambda it: Decimal128(f"{it}E-3")),
)
VALUES = SCALARS | st.dictionaries(st.text("abc", min_size=1), SCALARS, max_size=3)


@given(st.lists(VALUES, min_size=1, max_size=3).map(tuple))
def test_a_series_comes_back_out_of_its_name(series: tuple[Any, ...]) -> None:
    member = member_of(series)
    assert series_key(series_of(member, ["f"] * len(series))) == series_key(series)
    assert not re.search(r"[{}\s]", member, re.ASCII)
    assert member.count(":") == len(series) - 1
    assert member


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("MDB", "MDB"),
        ("7", '"7"'),
        (7, "7"),
        (7.5, "7.5"),
        (True, "true"),
        ("true", '"true"'),
        ("", '""'),
        ("a b:c{d}%", "a%20b%3Ac%7Bd%7D%25"),
        ("00:1a", "00%3A1a"),
        ("Zürich", "Zürich"),
        ("2018-06", "2018-06"),
        (ObjectId("5b3a0e7c9d1b2c3d4e5f6a7b"), '%7B"$oid"%3A"5b3a0e7c9d1b2c3d4e5f6a7b"%7D'),
    ],
)
def test_values_look_as_the_manual_says(value: Any, text: str) -> None:
    assert text_of(value) == text


def test_the_names_of_keys() -> None:
    keys = Keys("bw:iot")
    assert keys.of("last", member_of((1234, "3"))) == 'bw:iot:last:{1234:"3"}'
    assert keys.index_key("exchange", "NY SE") == "bw:iot:by:exchange:NY%20SE"
    assert (keys.series, keys.expires, keys.meta) == ("bw:iot:series", "bw:iot:expires", "bw:iot:meta")
    assert member_of(()) == "all"
    assert series_of("all", []) == ()
