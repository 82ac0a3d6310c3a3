"""Rules per series, from outside: what goes when, what stays, and who says why."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bucketwise.jobs.core.clock import iso
from tests.jobs.place import START, Place

Document = dict[str, Any]
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
HOURS = 48
POLICY = """
[policies.rooms]
collection = "rooms"
model = "reading"
time_field = "at"
series_fields = ["site", "kind"]
value_fields = ["v"]
[policies.rooms.rollup]
hourly = "rooms_hourly"
daily = "rooms_daily"
[policies.rooms.archive]
after = "1d"
{to}
[policies.rooms.retain]
{retain}
[[policies.rooms.rules]]
match = {{kind = "hum"}}
after = "forever"
[[policies.rooms.rules]]
match = {{site = "lab-*"}}
after = "3d"
retain = {lab}
"""
KINDS = {"offline": 'to = "offline"', "online": 'to = "online"\ncollection = "rooms_archive"'}


def reading(site: str, kind: str, hours: float) -> Document:
    return {"site": site, "kind": kind, "at": START + hours * HOUR, "v": hours}


@pytest.fixture
def rooms(place: Place) -> Place:
    """Two days of a reading an hour, of four series."""
    series = [(site, kind) for site in ("lab-1", "hall") for kind in ("temp", "hum")]
    place.database.rooms.insert_many(reading(*it, hour) for hour in range(HOURS) for it in series)
    return place


def write(place: Place, to: str, retain: str, lab: str) -> None:
    place.write_config(POLICY.format(to=KINDS[to], retain=retain, lab=lab))


def run(place: Place, days: float, verb: str = "run", *arguments: str, code: int = 0) -> Document:
    ran = place(verb, "-p", "rooms", "--json", *arguments, now=iso(START + days * DAY))
    assert ran.code == code, ran
    return dict(ran.policy("rooms"))


def live(place: Place) -> dict[str, int]:
    group: Document = {"_id": {"$concat": ["$site", " ", "$kind"]}, "n": {"$sum": 1}}
    return {it["_id"]: it["n"] for it in place.database.rooms.aggregate([{"$group": group}])}


def hours_of(place: Place, site: str, kind: str) -> int:
    return place.database.rooms_hourly.count_documents({"site": site, "kind": kind})


@pytest.mark.proof
@pytest.mark.parametrize("to", ["offline", "online"])
def test_buckets_go_by_the_first_rule_that_fits_and_archives_by_the_longest(rooms: Place, to: str) -> None:
    write(rooms, to, 'archive = "30d"\narchive_grace = "1d"', '{archive = "400d"}')
    planned = run(rooms, 4, "plan")["archive"]
    assert planned["deleted"] == 72
    told = " ".join(it["reason"] for it in planned["reasons"])
    assert 'rules.1 {kind = "hum"}' in told and 'rules.2 {site = "lab-*"}' in told
    assert run(rooms, 4)["archive"]["deleted"] == 72
    assert live(rooms) == {"lab-1 temp": 24, "lab-1 hum": 48, "hall hum": 48}
    assert run(rooms, 6)["archive"]["deleted"] == 24
    rooms.database.rooms.insert_one(reading("hall", "temp", 120))
    assert run(rooms, 7)["archive"]["deleted"] == 1
    assert run(rooms, 7)["archive"]["deleted"] == 0
    assert live(rooms) == {"lab-1 hum": 48, "hall hum": 48}

    found = run(rooms, 7, "explain", "--at", iso(START + HOUR))["buckets"]
    rules = {(it["series"]["site"], it["series"]["kind"]): it["rule"] for it in found}
    assert rules["hall", "hum"].startswith('rules.1 {kind = "hum"}: archive.after = "forever"')
    # Offline the commit that holds both stays as long as the longest says.
    lab = 'rules.2 {site = "lab-*"}: retain.archive = "400d"'
    assert rules["lab-1", "temp"] == lab
    assert rules["hall", "temp"] == (lab if to == "offline" else 'retain.archive = "30d"')

    gone = 1 if to == "offline" else 49
    assert run(rooms, 40, "plan")["archive_expiry"]["tombstoned"]["buckets"] == gone
    assert run(rooms, 40)["archive_expiry"]["tombstoned"]["buckets"] == gone
    assert run(rooms, 42)["archive_expiry"]["expired"]["buckets"] == gone
    assert run(rooms, 43)["archive_expiry"] == run(rooms, 44)["archive_expiry"]
    read = rooms("readings", "-p", "rooms", now=iso(START + 43 * DAY)).out
    assert len(read.splitlines()) - 1 == 96 + 97 - gone
    assert run(rooms, 420)["archive_expiry"]["tombstoned"]["buckets"] == 97 - gone
    assert run(rooms, 422)["archive_expiry"]["expired"]["buckets"] == 97 - gone
    assert run(rooms, 423, "audit")["findings"] == []
    assert rooms("verify", "-p", "rooms", now=iso(START + 423 * DAY)).code == 0


@pytest.mark.proof
def test_summaries_go_by_the_rules_and_late_readings_bring_none_back(rooms: Place) -> None:
    write(rooms, "offline", 'hourly = "30d"\ngrace = "0s"', '{hourly = "400d"}')
    run(rooms, 4)
    assert hours_of(rooms, "hall", "temp") == HOURS
    planned = run(rooms, 40, "plan")["expiry"]
    assert planned["hourly"] == 3 * HOURS
    assert run(rooms, 40)["expiry"]["hourly"] == 3 * HOURS
    assert {(it["site"], it["kind"]) for it in rooms.database.rooms_hourly.find()} == {("lab-1", "temp")}
    assert hours_of(rooms, "lab-1", "temp") == HOURS

    rooms.database.rooms.insert_many([reading(site, "temp", 10.5) for site in ("lab-1", "hall")])
    run(rooms, 41)
    assert hours_of(rooms, "hall", "temp") == 0
    hour = rooms.database.rooms_hourly.find_one({"start": START + 10 * HOUR})
    days = {
        it["site"]: it["count"] for it in rooms.database.rooms_daily.find({"start": START, "kind": "temp"})
    }
    assert hour and hour["count"] == 2 and days == {"lab-1": 25, "hall": 25}
    again = run(rooms, 41)
    assert (again["rollup"]["hourly"]["written"], again["expiry"]["hourly"]) == (0, 0)
    assert run(rooms, 41, "audit")["findings"] == []
    assert run(rooms, 402 + 3)["expiry"]["hourly"] == HOURS


@pytest.mark.proof
def test_a_changed_rule_is_told_beforehand_and_limited(rooms: Place) -> None:
    write(rooms, "offline", "", '{archive = "forever"}')
    run(rooms, 2.5)
    before = rooms.config.read_text()
    changed = rooms.folder / "changed.toml"
    changed.write_text(before.replace('after = "forever"', 'after = "1h"'))
    body = run(rooms, 2.5, "plan", "--against", str(changed))
    assert body["now"]["difference"]["deleted"] == 2 * HOURS
    assert any("rules" in it for it in body["irreversible"])
    rooms.config.write_text(changed.read_text().replace('after = "1d"', 'after = "1d"\nmax_delete = 90'))
    ran = rooms("run", "-p", "rooms", now=iso(START + 2.5 * DAY))
    assert ran.code == 5 and "it would delete 96 of the" in ran.err
