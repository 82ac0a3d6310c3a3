"""Roll-ups of many days of sample buckets: what is looked at grows with the days, and with nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bucketwise.buckets.source import Source
from bucketwise.config.models import make_policy
from bucketwise.config.policies import Policy
from tests.rollups.conftest import Bench

Document = dict[str, Any]
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
FIRST = datetime(2020, 3, 1, tzinfo=UTC)


def policy_of(**more: Any) -> Policy:
    return make_policy(
        name="p",
        collection="c",
        model="samples",
        start_field="first",
        end_field="last",
        sample_time_field="t",
        samples_field="samples",
        value_fields=("v",),
        series_fields=("s",),
        rollup={"hourly": "h", "daily": "d"},
        **more,
    )


def bucket(first: datetime, last: datetime) -> Document:
    times = [first, first + (last - first) / 2, last]
    samples = [{"t": at.replace(microsecond=0), "v": 1.5} for at in times]
    return {"s": "a", "first": first, "last": last, "samples": samples}


def load(bench: Bench, days: int) -> None:
    """A bucket an hour, and one as long as all of them."""
    found = bench.database["c"]
    for field in ("first", "last"):
        found.create_index(field)
    end = FIRST + days * DAY
    found.insert_many([bucket(FIRST + i * HOUR, FIRST + i * HOUR + HOUR / 2) for i in range(24 * days)])
    found.insert_one(bucket(FIRST + HOUR, end - HOUR))


def examined(bench: Bench, days: int) -> int:
    """How many buckets MongoDB looks at in a first roll-up of so many days."""
    load(bench, days)
    database = bench.database
    database.create_collection("system.profile", capped=True, size=50_000_000)
    database.command({"profile": 2, "slowms": 0})
    bench.roll_up(policy_of(), FIRST + (days + 2) * DAY)
    database.command({"profile": 0})
    ns = {"ns": f"{database.name}.c"}
    found = sum(int(it.get("docsExamined", 0)) for it in database["system.profile"].find(ns))
    assert database["h"].count_documents({}) == 24 * days
    database.client.drop_database(database.name)
    return found


def test_a_first_roll_up_looks_at_each_bucket_a_few_times(bench: Bench) -> None:
    assert examined(bench, 60) <= 2.2 * examined(bench, 30)


@pytest.mark.parametrize("long_before", [True, False])
def test_one_that_becomes_long_meanwhile_is_rolled_up_by_the_next_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, long_before: bool
) -> None:
    load(bench, 12)
    database, policy, now = bench.database, policy_of(), FIRST + 14 * DAY
    look = Source.look_at_lengths

    def grow(source: Source, *given: Any) -> None:
        look(source, *given)
        database["c"].delete_one({"s": "b"})
        late = {**bucket(FIRST + 2 * HOUR, FIRST + 11 * DAY), "s": "b"}
        if not long_before:
            late["first"] = FIRST + 10 * DAY
            database["c"].insert_one(late)
            late["first"] = FIRST + 2 * HOUR
            database["c"].replace_one({"s": "b"}, late)
        else:
            database["c"].insert_one(late)

    with monkeypatch.context() as patch:
        patch.setattr(Source, "look_at_lengths", grow)
        bench.roll_up(policy, now)

    def hours() -> set[datetime]:
        return {it["start"] for it in database["h"].find({"_id.series.s": "b"})}

    whole = {FIRST + 2 * HOUR, FIRST + 5 * DAY + 13 * HOUR, FIRST + 11 * DAY}
    assert hours() < whole
    bench.roll_up(policy, now)
    assert hours() == whole
