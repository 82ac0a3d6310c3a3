"""What SQL and Redis show of summaries, of whatever form, and of statistics that a policy leaves out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pymongo.database import Database

from bucketwise.archivers.context import Connections
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy
from bucketwise.jobs.publish.newest import as_fields, published
from bucketwise.jobs.query.rewriting import read_context
from bucketwise.jobs.query.tables import Narrowed, SummariesTable
from bucketwise.rollups.summaries import documents
from tests.rollups.conftest import Bench

Document = dict[str, Any]
START = datetime(2021, 3, 26, tzinfo=UTC)
NOW = START + timedelta(days=2)


def policy_of(*names: str) -> Policy:
    return make_policy(
        name="ticks",
        collection="ticks",
        model="reading",
        time_field="d",
        series_fields=("symbol",),
        value_fields=("p", "of.depth"),
        rollup={"hourly": "hourly", "percentiles": (50,), "statistics": names},
    )


def rolled_up(database: Database[Document], policy: Policy) -> None:
    found = [
        {
            "_id": at,
            "symbol": "S",
            "d": START + at * timedelta(minutes=9),
            "p": at / 8,
            "of": {"depth": "deep"},
        }
        for at in range(12)
    ]
    database["ticks"].insert_many(found)
    Bench(database).roll_up(policy, NOW)


def in_sql(database: Database[Document], policy: Policy) -> list[Document]:
    context = read_context(Connections(database, None), policy, NOW)
    tables = list(SummariesTable(context, "hourly", {"symbol": "string"}).read(Narrowed()))
    return sorted(pa.concat_tables(tables).to_pylist(), key=lambda it: it["start"])


def in_redis(database: Database[Document], policy: Policy) -> list[Document]:
    collection = database.get_collection("hourly", codec_options=documents.OPTIONS)
    return [published(policy, it) for it in collection.find().sort("start", 1)]


def test_zeros_and_nulls_that_are_not_written_are_shown(database: Database[Document]) -> None:
    policy = policy_of()
    rolled_up(database, policy)
    shown = in_sql(database, policy), in_redis(database, policy)
    first = shown[0][0]
    assert (first["p_count"], first["p_nonfinite"], first["p_p50"] is None) == (7, 0, False)
    assert (first["of_depth_count"], first["of_depth_nonnumeric"], first["of_depth_max"]) == (0, 7, None)
    assert shown[1][0]["values"]["of.depth"] == {
        "count": 0, "sum": 0.0, **dict.fromkeys(("min", "max", "avg", "stddev", "first", "first_at")),
        "last": None, "last_at": None, "p50": None, "nonfinite": 0, "nonnumeric": 7,
    }  # fmt: skip
    assert as_fields(shown[1][0])["p.nonfinite"] == "0"


def test_what_is_left_out_is_null(database: Database[Document]) -> None:
    policy = policy_of("max", "nonnumeric")
    rolled_up(database, policy)
    (first, _), (told, _) = in_sql(database, policy), in_redis(database, policy)
    assert (first["p_max"], first["of_depth_nonnumeric"]) == (0.75, 7)
    left_out = {key for key in first if key.startswith("p_")} - {"p_count", "p_max", "p_nonnumeric"}
    assert {key for key, it in first.items() if it is None} >= left_out
    assert told["values"]["p"]["max"] == 0.75
    assert told["values"]["p"]["nonnumeric"] == 0
    assert (told["values"]["p"]["avg"], told["values"]["p"]["nonfinite"]) == (None, None)
    assert "p.avg" not in as_fields(told)
