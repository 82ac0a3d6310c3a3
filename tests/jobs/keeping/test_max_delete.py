"""A limit on deletes stops a run that would delete too much, before it deletes anything."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.jobs.command import Ran
from tests.jobs.place import NOW, POLICIES, START, Place
from tests.jobs.states import after

DAY = timedelta(days=1)


def _limited(place: Place, limit: str, further: str = "") -> None:
    place.write_config(POLICIES.replace('after = "30d"\n', f'after = "30d"\nmax_delete = {limit}\n{further}'))


def _documents(place: Place) -> dict[str, int]:
    return {name: place.database[name].count_documents({}) for name in ("ticks", "iot", "iot_archive")}


def _grow(place: Place, days: int) -> None:
    """Readings of later days, so that what has expired is a small part."""
    later = [START + DAY * (day + 60) for day in range(days)]
    place.database.ticks.insert_many({"symbol": "MDB", "d": at, "p": {"0": 1.5}} for at in later)


def test_a_run_that_would_delete_too_much_stops(place: Place) -> None:
    _limited(place, '"20%"')
    ran = place("run", "--json")
    assert ran.code == 5
    ticks, iot = ran.policy("ticks"), ran.policy("iot")
    assert ticks["error"] == (
        "policy ticks: this run stopped: it would delete 180 of the 180 buckets of ticks, and "
        "archive.max_delete (20%) allows 36. Check that the policy says what you mean; if so, run once "
        "with --allow-large. Nothing was archived or deleted"
    )
    assert "18 of the 18 buckets of iot" in iot["error"]
    assert _documents(place) == {"ticks": 180, "iot": 18, "iot_archive": 0}
    assert not list(place.folder.rglob("*.parquet"))
    assert place.database.ticks_hourly.count_documents({}) == 3, "the roll-up deletes nothing, and is done"


def test_the_plan_announces_it(place: Place) -> None:
    _limited(place, '"20%"')
    planned = place("plan", "--json", "-p", "ticks")
    assert planned.code == 5
    limit = planned.policy("ticks")["archive"]["limit"]
    assert {key: limit[key] for key in ("due", "of", "most")} == {"due": 180, "of": 180, "most": 36}
    assert limit["stops"].startswith("this run would stop: it would delete 180 of the 180 buckets of ticks")
    assert planned.policy("ticks")["archive"]["deleted"] == 180, "and says what it would do"
    assert "--allow-large" in place("plan", "-p", "ticks").out
    nothing_is_rolled_up_yet = ("archive", "--dry-run", "-p", "ticks")
    for allowed in ((), ("--allow-large",)):
        assert place(*nothing_is_rolled_up_yet, *allowed).code == 0


@pytest.mark.proof
def test_a_first_run_is_allowed_by_hand_and_later_ones_fit(place: Place) -> None:
    _limited(place, '"20%"')
    _grow(place, 60)
    assert place("run", "--allow-large").code == 0
    assert _documents(place) == {"ticks": 60, "iot": 0, "iot_archive": 18}
    place.database.ticks.delete_many({"d": {"$gte": START + 110 * DAY}})
    planned = place("plan", "--json", "-p", "ticks", now="2018-10-05T00:00:00Z")
    assert planned.policy("ticks")["archive"]["limit"]["stops"] is None
    ran = place("run", "--json", "-p", "ticks", now="2018-10-05T00:00:00Z")
    assert (ran.code, ran.policy("ticks")["archive"]["deleted"]) == (0, 7)
    assert "limit" not in ran.policy("ticks")["archive"]


@pytest.mark.parametrize(("least", "less"), [("180", "179"), ('"100%"', '"99.99%"')])
@after("rollup -p ticks")
def test_the_limit_itself_is_allowed(place: Place, least: str, less: str) -> None:
    for limit, code, left in ((less, 5, 180), (least, 0, 0)):
        _limited(place, limit)
        assert place("archive", "-p", "ticks").code == code
        assert _documents(place)["ticks"] == left


def _codes(ran: Ran) -> dict[str, int]:
    """Of each policy; what ends the process is the worst of them."""
    found = {it["policy"]: it["exit_code"] for it in ran.json["policies"]}
    assert ran.code == max(found.values())
    return found


def _due(place: Place, now: str = NOW) -> list[int]:
    planned = place("plan", "--json", now=now).json["policies"]
    return [it["archive"]["limit"]["due"] for it in planned]


@pytest.mark.proof
def test_what_was_copied_counts_once_its_grace_is_over(place: Place) -> None:
    _limited(place, '"20%"', 'grace = "2d"\n')
    assert _due(place) == [0, 0]
    assert place("run").code == 0, "to copy is no delete"
    assert place("run", now="2018-09-02T00:00:00Z").code == 0
    late = "2018-09-03T00:00:00Z"
    assert _due(place, late) == [180, 18]
    assert _codes(place("run", "--json", now=late)) == {"ticks": 5, "iot": 5}
    assert _documents(place) == {"ticks": 180, "iot": 18, "iot_archive": 18}
    assert place("run", "--allow-large", now=late).code == 0
    assert _documents(place) == {"ticks": 0, "iot": 0, "iot_archive": 18}


@pytest.mark.proof
@after("run")
def test_what_was_restored_and_is_pinned_does_not_count(place: Place) -> None:
    _limited(place, '"20%"')
    for policy in ("ticks", "iot"):
        assert place("restore", "-p", policy, "--to", policy, "--yes").code == 0
    assert _due(place) == [0, 0]
    assert place("run").code == 0
    assert place("unpin").code == 0
    assert _codes(place("run", "--json")) == {"ticks": 5, "iot": 5}, "now they would go"


@pytest.mark.proof
@after("run -p ticks")
def test_what_is_quarantined_does_not_count(place: Place) -> None:
    _limited(place, '"20%"')
    broken = [{"_id": i, "symbol": "MDB", "d": START + i * DAY, "p": {"60": 1.5}} for i in range(9)]
    place.database.ticks.insert_many(broken)
    _grow(place, 9)
    ran = place("run", "-p", "ticks", "--json")
    assert (ran.code, ran.policy("ticks")["archive"]["quarantined"]) == (3, 9)
    mended = {"p": {"59": 1.5}}
    place.database.ticks.update_many({"_id": {"$lt": 9}}, {"$set": mended})
    assert place("run", "-p", "ticks").code == 5, "and once they are mended they do"


@after("rollup -p ticks")
def test_a_narrower_archive_run_may_fit(place: Place) -> None:
    _limited(place, "10")
    assert place("archive", "-p", "ticks").code == 5
    assert place("archive", "-p", "ticks", "--until", "2018-06-30T00:10").code == 0
    assert _documents(place)["ticks"] == 170


def test_another_policy_runs_all_the_same(place: Place) -> None:
    place.write_config(POLICIES.replace('after = "30d"\n', 'after = "30d"\nmax_delete = 1\n', 1))
    ran = place("run", "--json")
    assert (ran.code, ran.policy("ticks")["exit_code"], ran.policy("iot")["exit_code"]) == (5, 5, 0)
    assert _documents(place) == {"ticks": 180, "iot": 0, "iot_archive": 18}


def test_without_a_limit_nothing_is_counted(place: Place) -> None:
    assert "limit" not in place("plan", "--json", "-p", "ticks").policy("ticks")["archive"]


@pytest.mark.proof
def test_it_is_allowed_for_one_run(place: Place) -> None:
    """The command for one that failed does not allow it again, and one that is done settles what the limit
    stopped."""
    _limited(place, '"20%"')
    place.database.create_collection("ticks_daily", viewOn="iot", pipeline=[])
    assert place("run", "-p", "ticks", "--allow-large").code == 1
    place.database.drop_collection("ticks_daily")
    for code in (1, 5):
        (it,) = place("status", "--failed", "--json").policy("ticks")["failed"]
        assert it["command"] == "bucketwise run --policy ticks"
        assert ("archive.max_delete (20%) allows 36" in it["error"]) == (code == 5)
        assert place("run", "-p", "ticks").code == 5
    assert place("run", "-p", "ticks", "--allow-large").code == 0
    assert place("status", "--failed", "--json").policy("ticks")["failed"] == []
