"""Days by the readings' own clocks, through the command line: nothing leaves before its date is rolled up."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from tests.jobs.place import Place

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
START = datetime(2021, 3, 26, tzinfo=UTC)
POLICY = """
[policies.meters]
collection = "meters"
model = "reading"
time_field = "at"
series_fields = ["meter"]
value_fields = ["kwh"]
local_offset_field = "tz"
[policies.meters.rollup]
hourly = "meters_hourly"
daily = "meters_daily"
[policies.meters.archive]
after = "1h"
to = "{to}"
{more}
"""


@pytest.mark.proof
def test_a_run_at_any_time_archives_no_reading_before_its_date_stands(place: Place) -> None:
    place.write_config(POLICY.format(to="online", more='collection = "meters_archive"'))
    zones = (300, -330, -840, 720)
    documents = [
        {"at": START + count * HOUR / 2, "meter": 1, "kwh": 0.5, "tz": zones[count % 4]}
        for count in range(2 * 96)
    ]
    place.database.meters.insert_many(documents)
    for now in (START + 2 * DAY + 9 * HOUR, START + 3 * DAY + 18 * HOUR + 30 * MINUTE, START + 9 * DAY):
        planned = place("plan", "--json", now=now.isoformat())
        ran = place("run", "--json", now=now.isoformat())
        assert (planned.code, ran.code) == (0, 0)
        dates = {one["start"].date() for one in place.database.meters_daily.find()}
        archived = list(place.database.meters_archive.find())
        assert {_date(one) for one in archived} <= dates
        assert place.database.meters.count_documents({}) + len(archived) == len(documents)
        assert ran.policy("meters")["archive"]["buckets"] == planned.policy("meters")["archive"]["buckets"]
        # A late reading beside what is archived merges with it, by its own date.
        late = {"at": START + 5 * HOUR, "meter": 1, "kwh": 2.5, "tz": 720}
        place.database.meters.insert_one(late)
        documents.append(late)
        since = (START + 5 * HOUR).isoformat()
        until = (START + 6 * HOUR).isoformat()
        assert place("rollup", "--since", since, "--until", until, now=now.isoformat()).code == 0
        counts = Counter(map(_date, documents))
        told = {one["start"].date(): one["count"] for one in place.database.meters_daily.find()}
        assert told == {date: counts[date] for date in dates}
    assert place("run", now=(START + 9 * DAY).isoformat()).code == 0
    assert place.database.meters.count_documents({}) == 0
    assert set(told) == set(counts)


def _date(one: dict[str, object]) -> object:
    at, offset = one["at"], one["tz"]
    assert isinstance(at, datetime) and isinstance(offset, int)
    return (at - offset * MINUTE).date()


@pytest.mark.proof
def test_the_offline_archive_brings_the_offsets_back(place: Place) -> None:
    place.write_config(POLICY.format(to="offline", more=""))
    place.database.meters.insert_many(
        [{"at": START + count * HOUR, "meter": 1, "kwh": 0.5, "tz": -330} for count in range(48)]
    )
    before = list(place.database.meters.find())
    now = (START + 9 * DAY).isoformat()
    assert place("run", now=now).code == 0
    assert place.database.meters.count_documents({}) == 0
    stood = list(place.database.meters_daily.find().sort("start"))
    counts = Counter(map(_date, before))
    assert {one["start"].date(): one["count"] for one in stood} == counts and len(counts) == 3
    place.database.meters_daily.drop()
    ran = place("rollup", "--since", (START - DAY).isoformat(), now=now)
    assert ran.code == 0 and list(place.database.meters_daily.find().sort("start")) == stood
    restored = place(
        "restore", "-p", "meters", "--since", START.isoformat(), "--until", (START + 3 * DAY).isoformat(),
        "--to", "back", "--yes", now=now,
    )  # fmt: skip
    assert restored.code == 0
    assert list(place.database.back.find().sort("_id")) == before
