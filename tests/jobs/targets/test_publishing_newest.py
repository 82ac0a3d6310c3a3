"""Series and their newest summaries are found by an index, whatever values tell series apart."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId, encode
from pymongo.database import Database

from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy, Rollup
from bucketwise.jobs.publish.newest import Newest
from bucketwise.rollups.calendar.levels import levels_of
from bucketwise.rollups.context import RunContext, dry_run_guard

START = datetime(2026, 3, 1, tzinfo=UTC)
VALUES: list[Any] = [
    "a", "", "1", 1, 2.5, -3, True, False, START, ObjectId(b"123456789012"), b"x", {"a": 1}, {"a": "1"}, {},
    Decimal128("2.75"), Int64(2**40), "ü",
]  # fmt: skip
FIELDS = [(), ("s",), ("a.b", "c"), ("_id.k", "_id.t"), ("_id",)]


def policy(fields: tuple[str, ...]) -> Policy:
    return make_policy(
        name="it",
        collection="it",
        model="reading",
        time_field="d",
        series_fields=fields,
        value_fields=("v",),
        rollup=Rollup(hourly="hourly"),
    )


def nested(names: tuple[str, ...], values: tuple[Any, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in zip(names, values, strict=True):
        *path, leaf = name.split(".")
        inner = found
        for part in path:
            inner = inner.setdefault(part, {})
        inner[leaf] = value
    return found


def plain(series: tuple[Any, ...]) -> bytes:
    return encode({str(i): value for i, value in enumerate(series)})


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("fields", FIELDS, ids=",".join)
def test_all_series_and_their_newest(database: Database[dict[str, Any]], fields: tuple[str, ...]) -> None:
    it = policy(fields)
    wanted = list(itertools.product(VALUES, VALUES[: 1 if len(fields) == 1 else 3]))
    series = [values[: len(fields)] for values in wanted] if fields else [()]
    hours = [START + timedelta(hours=hour) for hour in range(4)]
    documents = []
    for values, (number, start) in itertools.product(series, enumerate(hours)):
        named = nested(it.series_names, values)
        own = {} if fields == ("_id",) else named
        facts = {"start": start, "end": start + timedelta(hours=1), "count": number, "v": {"state": b"x"}}
        documents.append({"_id": {"series": named, "start": start}, **own, **facts})
    others = {"_id": "somebody's", "start": START - timedelta(hours=1), "s": "z"}
    database["hourly"].insert_many([*documents, others])
    newest = Newest(
        RunContext(database, it, START, dry_run_guard, lambda: None), levels_of(it), {"hourly": 2}
    )
    found = list(newest.series(levels_of(it)[0]))
    assert sorted(map(plain, found)) == sorted(map(plain, series))
    for one in found:
        assert [told["count"] for told in newest.of(one)["hourly"]] == [3, 2]


def test_a_policy_without_summaries(database: Database[dict[str, Any]]) -> None:
    it = policy(("s",))
    newest = Newest(RunContext(database, it, START, dry_run_guard, lambda: None), levels_of(it), {})
    assert list(newest.series(levels_of(it)[0])) == []
    assert newest.of(("a",)) == {"hourly": []}
    assert database.list_collection_names() == []
