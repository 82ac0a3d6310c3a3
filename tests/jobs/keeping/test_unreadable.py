"""With `duplicates`, a window of which the archive can't be read stays as it is, and the run goes on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.jobs.place import Db, Place

POLICIES = """
[policies.c]
collection = "c"
model = "reading"
time_field = "t"
series_fields = ["s"]
value_fields = ["v"]
duplicates = "last"

[policies.c.rollup]
hourly = "c_hourly"
daily = "c_daily"

[[policies.c.rollup.levels]]
name = "weekly"
collection = "c_weekly"

[policies.c.archive]
after = "1d"
to = "offline"
"""
DAYS = [datetime(2025, 3, day, tzinfo=UTC) for day in (4, 5, 6)]
WEEK = datetime(2025, 3, 3, tzinfo=UTC)
LATER = "2025-03-21"


def _readings(day: datetime, value: float) -> list[dict[str, object]]:
    return [{"s": "a", "t": day + timedelta(hours=it), "v": value + it} for it in range(24)]


def _counts(database: Db, level: str) -> dict[datetime, tuple[int, float]]:
    found = database[f"c_{level}"].find()
    return {it["start"].replace(tzinfo=UTC): (it["count"], it["v"]["last"]) for it in found}


@pytest.mark.proof
def test_its_window_stays_and_is_tried_again(place: Place) -> None:
    place.write_config(POLICIES)
    source = place.database.c
    for day in DAYS:
        source.insert_many(_readings(day, 0))
        assert place("run", now=f"{day + timedelta(days=10):%Y-%m-%d}").code == 0  # a commit each
    before = {level: _counts(place.database, level) for level in ("hourly", "daily", "weekly")}
    (part,) = (place.folder / "store").glob("**/dt=2025-03-05/*.parquet")
    part.rename(aside := place.folder / "aside")
    at = [day + timedelta(hours=7) for day in DAYS]
    late = [{"s": "a", "t": it, "v": 100.0} for it in at]
    new = datetime(2025, 3, 18, 12, tzinfo=UTC)
    source.insert_many([*late, {"s": "a", "t": new, "v": 1.0}])
    ran = place("run", "--json", now=LATER)
    assert ran.code == 3, ran.err
    (left,) = ran.policy("c")["rollup"]["unreadable"]
    assert (left["since"], left["until"]) == ("2025-03-05T07:00:00Z", "2025-03-05T08:00:00Z")
    assert part.name in left["reason"]
    assert [it["t"].replace(tzinfo=UTC) for it in source.find()] == [at[1]]  # the others are archived
    told = {level: _counts(place.database, level) for level in before}
    for level, key in (("hourly", at[1]), ("daily", DAYS[1]), ("weekly", WEEK)):
        assert told[level].pop(key) == before[level].pop(key)
    assert told["hourly"][at[0]] == told["hourly"][at[2]] == (1, 100.0)
    assert told["daily"] == {DAYS[0]: (24, 23.0), DAYS[2]: (24, 23.0), new.replace(hour=0): (1, 1.0)}
    again = place("run", "--json", now=LATER)
    assert (again.code, len(again.policy("c")["rollup"]["unreadable"])) == (3, 1)
    aside.rename(part)
    healed = place("run", "--json", now=LATER)
    assert healed.code == 0, healed.err
    assert "unreadable" not in healed.policy("c")["rollup"]
    assert _counts(place.database, "hourly")[at[1]] == (1, 100.0)
    assert _counts(place.database, "weekly")[WEEK] == (72, 23.0)
    assert source.count_documents({}) == 0
