"""What may be archived goes by the policy's own days: nothing leaves before its local day is rolled up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.jobs.place import Place

HOUR = timedelta(hours=1)
START = datetime(2021, 3, 26, tzinfo=UTC)  # two days before clocks change in Berlin
POLICY = """
[policies.meters]
collection = "meters"
model = "reading"
time_field = "at"
series_fields = ["meter"]
value_fields = ["kwh"]
[policies.meters.rollup]
hourly = "meters_hourly"
daily = "meters_daily"
timezone = "{zone}"
[policies.meters.archive]
after = "1h"
to = "online"
collection = "meters_archive"
"""


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize(
    "zone", ["UTC", "Europe/Berlin", "America/Los_Angeles", "Asia/Kathmandu", "Pacific/Kiritimati"]
)
def test_a_bucket_goes_once_its_local_day_is_rolled_up(place: Place, zone: str) -> None:
    place.write_config(POLICY.format(zone=zone))
    times = [START + count * HOUR / 4 for count in range(4 * 72)]
    place.database.meters.insert_many({"at": at, "meter": 1, "kwh": 0.5} for at in times)
    for now in (datetime(2021, 3, 28, 9, tzinfo=UTC), datetime(2021, 3, 28, 20, 30, tzinfo=UTC)):
        ran = place("run", "--json", now=now.isoformat())
        assert ran.code == 0
        settled = now - timedelta(minutes=10)
        midnight = settled.astimezone(ZoneInfo(zone)).replace(hour=0, minute=0, second=0, microsecond=0)
        gate = min(midnight.astimezone(UTC), settled.replace(minute=0))
        stays = [at for at in times if at >= gate]
        assert [one["at"] for one in place.database.meters.find().sort("at")] == stays
        expired = [at for at in stays if at < now - HOUR]
        archived = ran.policy("meters")["archive"]
        assert archived["left"] == len(expired)
        reasons = [{"reason": "its windows are not rolled up yet", "count": len(expired)}] if expired else []
        assert archived["reasons"] == reasons
    told = {one["start"]: one["count"] for one in place.database.meters_daily.find()}
    days = {at.astimezone(ZoneInfo(zone)).date() for at in times if at < gate}
    assert len(told) == len(days) and sum(told.values()) == sum(at < gate for at in times)
