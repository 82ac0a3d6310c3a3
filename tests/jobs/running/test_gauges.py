"""How late a policy is, against plain arithmetic; and what it costs to look."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import encode
from hypothesis import given
from hypothesis import strategies as st
from pymongo import MongoClient
from pymongo.database import Database

from bucketwise.config.models import recorded_policy
from bucketwise.config.policies import Archive, Policy, Rollup
from bucketwise.jobs.core.gauges import archive_lag, rollup_lag
from bucketwise.jobs.core.runner import Runner
from bucketwise.jobs.core.stopping import Stop
from bucketwise.jobs.output.progress import ProgressDisplay
from bucketwise.jobs.run.verb import RUN
from bucketwise.rollups.calendar.due import Calendar
from tests.jobs.counting import Counts, ticks_policy
from tests.jobs.place import START

HOUR, DAY = 3_600_000, 86_400_000
NOW = datetime(2026, 3, 29, 10, 20, 30, tzinfo=UTC)
NOW_MS = int(NOW.timestamp()) * 1000
ago = st.integers(-2 * DAY, 400 * DAY)


def policy_of(**given: Any) -> Policy:
    said = {**dict(ticks_policy(to="online", collection="old")), **given}
    return recorded_policy({key: it for key, it in said.items() if it is not None})


@given(hours=st.none() | ago, days=st.none() | ago, oldest=st.none() | ago, settle=st.integers(0, 90))
def test_roll_up_is_as_late_as_its_first_window_that_is_due(
    hours: int | None, days: int | None, oldest: int | None, settle: int
) -> None:
    rollup = Rollup(hourly="h", daily="d", settle=timedelta(minutes=settle))
    calendar = Calendar(policy_of(rollup=rollup), rollup, NOW)
    through = {
        name: (NOW_MS - it) // length * length
        for name, it, length in (("hourly", hours, HOUR), ("daily", days, DAY))
        if it is not None
    }
    first = None if oldest is None else NOW_MS - oldest
    late = 0
    for name, length in (("hourly", HOUR), ("daily", DAY)):
        begins = through.get(name, first)
        if begins is not None:
            due = (begins // length + 1) * length + settle * 60_000
            late = max(late, NOW_MS - due)
    assert rollup_lag(calendar, through, first) == late  # type: ignore[arg-type]


@given(
    ended=st.none() | ago,
    after=st.integers(0, 60),
    grace=st.integers(0, 72),
    batch=st.sampled_from([None, 1, 24]),
    model=st.sampled_from(["slots", "reading"]),
)
def test_archiving_is_as_late_as_the_oldest_bucket(
    ended: int | None, after: int, grace: int, batch: int | None, model: str
) -> None:
    hours = None if batch is None else timedelta(hours=batch)
    archive = Archive(after=timedelta(days=after), to="offline", grace=timedelta(hours=grace), batch=hours)
    policy = policy_of(archive=archive, model=model, slot="second" if model == "slots" else None)
    last = None if ended is None else NOW_MS - ended
    late = 0
    if last is not None:
        due = last + (59_999 if model == "slots" else 0)
        if batch is not None:
            due += batch * HOUR - due % (batch * HOUR)
        late = max(0, NOW_MS - (due + after * DAY + grace * HOUR))
    assert archive_lag(policy, NOW_MS - after * DAY, last) == late


@pytest.mark.parametrize("to", ["none", "kept"])
def test_what_does_not_apply_is_not_told(
    to: str, database: Database[dict[str, Any]], mongodb_uri: str
) -> None:
    archive = Archive(after=timedelta(days=30), to="online", collection="old", delete=False)
    changes = {"rollup": None, "archive": None} if to == "none" else {"archive": archive}
    database.ticks.insert_one({"symbol": "A", "d": START, "p": 1.0})
    told = run(policy_of(**changes), database.name, mongodb_uri, is_measured=True)[0]
    lag = {"rollup_lag_seconds": 0.0} if to == "kept" else {}
    oldest = {"oldest_live_bucket_timestamp_seconds": START.timestamp()}
    sizes = {it: told.pop(f"{it}_bytes") for it in ("live", "index", "summary", "store", "removed")}
    assert told == {**lag, **oldest, "lease_held": 0.0}
    assert sizes["live"] == len(encode(database.ticks.find_one() or {}))
    assert (sizes["removed"], sizes["store"] > 0) == (0, to == "kept")


def run(policy: Policy, database: str, uri: str, *, is_measured: bool) -> tuple[dict[str, float], Counts]:
    counts = Counts()
    with MongoClient[dict[str, Any]](uri, tz_aware=True, event_listeners=[counts]) as client:
        runner = Runner(
            "run",
            RUN,
            client[database],
            None,
            NOW,
            Stop(),
            ProgressDisplay(quiet=True),
            is_now_given=True,
            is_measured=is_measured,
        )
        result = runner.run_one(policy)
    assert result.exit_code == 0, result
    return dict(result.measures.gauges), counts


@pytest.mark.proof
def test_a_look_costs_the_same_however_much_there_is(
    database: Database[dict[str, Any]], mongodb_uri: str
) -> None:
    """A run with nothing to do, with and without it; nothing where nobody asked."""
    archive = Archive(after=timedelta(days=30000), to="online", collection="old")
    policy = policy_of(archive=archive)
    database.ticks.create_index("d")
    costs = []
    for size in (10, 2000):
        several = range(database.ticks.count_documents({}), size)
        database.ticks.insert_many(
            {"symbol": "A", "d": START + it * timedelta(hours=1), "p": 1.0} for it in several
        )
        run(policy, database.name, mongodb_uri, is_measured=False)
        told, plain = run(policy, database.name, mongodb_uri, is_measured=False)
        assert told == {}
        told, measured = run(policy, database.name, mongodb_uri, is_measured=True)
        assert told["rollup_lag_seconds"] == told["archive_lag_seconds"] == 0
        more = measured.commands - plain.commands
        costs.append((Counter({"find": more["find"]}), measured.documents - plain.documents))
    assert costs[0] == costs[1]
    assert costs[0][0]["find"] <= 10 and costs[0][1] <= 10
