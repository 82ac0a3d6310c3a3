"""The release of a hold takes out what it alone has kept, and nothing else."""

from __future__ import annotations

from datetime import timedelta

from tests.jobs.keeping.test_holds import NAME, added, counted, hold
from tests.jobs.place import NOW, POLICIES, START, Place

HOUR = timedelta(hours=1)
NO_ARCHIVE = POLICIES.replace('[policies.ticks.archive]\nafter = "30d"\nto = "offline"\n', "", 1)
SECOND = {"symbol": "MDB", "d": {"$gte": START + HOUR, "$lt": START + 2 * HOUR}}
A_DAY_LATER = [{"$set": {"d": {"$add": ["$d", 86_400_000]}}}]
OTHERS = {"_id.series.symbol": "OTHER", "start": START + HOUR}


def begin(place: Place, policies: str, *held: str, now: str = NOW) -> int:
    """Two series, rolled up; of one, an hour moves under a hold."""
    place.write_config(policies)
    others = [{**it, "symbol": "OTHER"} for it in place.database.ticks.find({}, {"_id": 0})]
    place.database.ticks.insert_many(others)
    assert place("rollup", "-p", "ticks", now=now).code == 0
    before = sum(int(it["count"]) for it in place.database.ticks_hourly.find())
    added(place, "--series", "symbol=MDB", *held)
    place.database.ticks.update_many(SECOND, A_DAY_LATER)
    assert place("rollup", "-p", "ticks", now=now).code == 0
    return before


def purge(place: Place) -> None:
    """As a script does that removes what is old: its summaries stay."""
    place.database.ticks.delete_many({"d": {"$lt": START + 12 * HOUR}})
    assert place("rollup", "-p", "ticks").code == 0


def test_the_release_of_one_series_takes_no_summary_of_another(place: Place) -> None:
    begin(place, NO_ARCHIVE)
    purge(place)
    assert place.database.ticks_hourly.count_documents(OTHERS) == 1
    hold(place, "release", NAME)
    assert place("rollup", "-p", "ticks").code == 0
    assert place.database.ticks_hourly.count_documents(OTHERS) == 1


def test_a_hold_of_a_part_of_a_window_takes_no_summary_of_another(place: Place) -> None:  # without a release
    begin(place, NO_ARCHIVE, "--since", "2018-06-30T01:30")
    purge(place)
    assert place.database.ticks_hourly.count_documents(OTHERS) == 1


def test_what_a_scan_has_told_as_gone_stays_told(place: Place) -> None:
    scan = POLICIES.replace('daily = "ticks_daily"\n', 'daily = "ticks_daily"\nlate_data = "scan"\n')
    begin(place, scan, now="2018-06-30T04:00:00Z")
    place.database.ticks.delete_many({"symbol": "OTHER"})
    assert place("rollup", "-p", "ticks", "--since", "2018-06-30", now="2018-07-20T05:00:00Z").code == 3
    assert place.database.ticks_hourly.count_documents(OTHERS) == 1
    hold(place, "release", NAME)
    place("rollup", "-p", "ticks", now="2018-07-20T06:00:00Z")
    assert place.database.ticks_hourly.count_documents(OTHERS) == 1


def test_of_two_holds_on_series_each_release_counts(place: Place) -> None:
    before = begin(place, POLICIES)
    added(place, "--series", "symbol=OTHER", name="other")
    hold(place, "release", NAME)
    assert place("rollup", "-p", "ticks").code == 0
    assert counted(place) == before


def test_a_release_outlives_an_archive_that_cant_be_read(place: Place) -> None:
    last = POLICIES.replace("sparse_ok = true\n", 'sparse_ok = true\nduplicates = "last"\n')
    before = begin(place, last, now="2018-07-05T00:00:00Z")
    assert place("run", "-p", "ticks").code == 0
    hold(place, "release", NAME)
    sound = {it: it.read_bytes() for it in place.folder.rglob("*/data/*/*.parquet")}
    assert sound
    for file, data in sound.items():
        file.chmod(0o644)
        file.write_bytes(data[:-9] + b"?" + data[-8:])
    assert place("rollup", "-p", "ticks").code == 3
    for file, data in sound.items():
        file.write_bytes(data)
    assert place("rollup", "-p", "ticks").code == 0
    assert counted(place) == before


def test_a_release_outlives_other_statistics(place: Place) -> None:
    before = begin(place, POLICIES)
    more = POLICIES.replace('daily = "ticks_daily"\n', 'daily = "ticks_daily"\npercentiles = [50]\n')
    place.write_config(more)
    place("rollup", "-p", "ticks")
    hold(place, "release", NAME)
    assert place("rollup", "-p", "ticks").code == 0
    assert counted(place) == before


def test_an_erasure_leaves_no_note_of_its_series(place: Place) -> None:
    begin(place, POLICIES)
    hold(place, "release", NAME)
    told = ("--series", "symbol=MDB", "--reason", "case 17", "--confirm", "ticks")
    assert place("erase", "-p", "ticks", *told).code == 0
    (held,) = place.database.bucketwise_progress.find({"_id": {"held": "ticks"}})
    assert held["windows"] == []
