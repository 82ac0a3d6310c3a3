"""What check tells of statistics that a policy has gained, and that others' summaries stay as they are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import bson
from pymongo.database import Database

from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy
from bucketwise.jobs.check.verb import gained
from tests.rollups.conftest import Bench

START = datetime(2021, 3, 26, tzinfo=UTC)
HOUR = timedelta(hours=1)


def policy_of(*names: str, **field: Any) -> Policy:
    return make_policy(
        name="ticks",
        collection="ticks",
        model="reading",
        time_field="d",
        series_fields=("s",),
        value_fields=("p", "q"),
        values={"q": field} if field else {},
        rollup={"hourly": "hourly", "percentiles": (50,), "statistics": names},
    )


def messages(database: Database[dict[str, Any]], policy: Policy) -> list[tuple[str, str]]:
    found = list(gained(database, policy))
    assert {(it.code, it.policy, it.severity) for it in found} <= {("statistics-since", "ticks", "ok")}
    return [(it.place, it.message.partition(".")[0]) for it in found]


def test_it_tells_from_when_on_a_statistic_is_there(database: Database[dict[str, Any]]) -> None:
    bench, few, more = Bench(database), policy_of("avg"), policy_of("avg", "max", "p50", "nonfinite")
    database["ticks"].insert_many(
        [{"_id": at, "s": "a", "d": START + at * HOUR, "p": float(at), "q": None} for at in range(6)]
    )
    assert messages(database, few) == []
    bench.roll_up(few, START + 4 * HOUR + HOUR / 2)
    assert messages(database, few) == []
    assert messages(database, more) == [
        ("hourly, p", "no summary tells max, p50 yet: they come with windows that are rolled up from now on")
    ]
    bench.roll_up(more, START + 9 * HOUR)
    told = [("hourly, p", "summaries tell max, p50 from 2021-03-26T04:00:00Z on")]
    assert messages(database, more) == told
    assert messages(database, policy_of("avg", "nonfinite")) == []
    bench.roll_up(more, START + 9 * HOUR, since=START, until=START + 4 * HOUR)
    assert messages(database, more) == []


def test_states_that_are_texts_are_told_from_when_on(database: Database[dict[str, Any]]) -> None:
    bench, texts = Bench(database), {"nonnumeric_ok": ("q",)}
    plain = policy_of().model_copy(update=texts)
    worded = policy_of(kind="state", max_gap="2h").model_copy(update=texts)
    database["ticks"].insert_many(
        [{"_id": at, "s": "a", "d": START + at * HOUR, "p": 1.0, "q": "on"} for at in range(6)]
    )
    bench.roll_up(plain, START + 9 * HOUR)
    database["ticks"].delete_many({"_id": {"$lt": 3}})
    bench.roll_up(worded, START + timedelta(days=30))
    assert messages(database, worded) == [
        ("hourly, q", "summaries tell changes, seconds, states_over from 2021-03-26T03:00:00Z on")
    ]
    assert messages(database, plain) == []


def test_a_kind_is_made_for_what_readings_still_give(database: Database[dict[str, Any]]) -> None:
    bench, plain, counter = Bench(database), policy_of(), policy_of(kind="counter")
    database["ticks"].insert_many(
        [{"_id": at, "s": "a", "d": START + at * HOUR, "p": 1.0, "q": float(at)} for at in range(6)]
    )
    bench.roll_up(plain, START + 9 * HOUR)
    before = bench.raw("hourly")
    database["ticks"].delete_many({"_id": {"$lt": 3}})
    late = START + timedelta(days=30)
    bench.roll_up(plain, late)
    assert bench.raw("hourly") == before
    bench.roll_up(counter, late)
    after = bench.raw("hourly")
    in_order = sorted(before, key=lambda it: bson.decode(it)["start"])
    assert [after[key] == before[key] for key in in_order] == [True] * 3 + [False] * 3
    assert messages(database, counter) == [
        ("hourly, q", "summaries tell increase, resets, rate from 2021-03-26T03:00:00Z on")
    ]
    assert messages(database, plain) == []
