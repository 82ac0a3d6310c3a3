"""While a hold stands, nothing that it covers is destroyed; and receipts tell of each hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo.errors import OperationFailure

from bucketwise.jobs.core.clock import iso
from bucketwise.jobs.core.lease import Lease, touching
from bucketwise.rollups.context import transaction
from tests.jobs.place import AT_ONCE, MINUTES, NOW, POLICIES, START, Place
from tests.jobs.states import after

Document = dict[str, Any]
NAME = "case-17"
WHY = ("--reason", "Litigation 17/2018")
LONG_AFTER = "2020-01-01T00:00:00Z"
SECOND_HOUR = ("--since", "2018-06-30T01:00", "--until", "2018-06-30T02:00")


def hold(place: Place, *arguments: str, code: int = 0, now: str = NOW) -> Document:
    ran = place("hold", *arguments, "--json", now=now)
    assert ran.code == code, ran
    return ran.json


def added(place: Place, *arguments: str, policy: str = "ticks", name: str = NAME) -> Document:
    (found,) = hold(place, "add", name, "-p", policy, *WHY, *arguments)["policies"]
    return dict(found)


def run(place: Place, now: str = NOW, policy: str = "ticks") -> Document:
    ran = place("run", "-p", policy, "--json", now=now)
    assert ran.code == 0, ran
    return ran.policy(policy)


def hours(place: Place) -> list[int]:
    return sorted(it["start"].hour for it in place.database.ticks_hourly.find())


def test_a_hold_is_placed_listed_and_released(place: Place) -> None:
    said = added(place, "--series", "symbol=MDB", *SECOND_HOUR, "--freeze")
    (told,) = said["holds"]
    assert said["placed"] is True
    assert told.pop("by").count("@") == 1
    assert told == {
        "name": NAME,
        "series": {"symbol": "MDB"},
        "since": "2018-06-30T01:00:00Z",
        "until": "2018-06-30T02:00:00Z",
        "reason": WHY[1],
        "placed_at": NOW,
        "freeze": True,
    }
    assert added(place, "--series", "symbol=MDB", *SECOND_HOUR, "--freeze")["placed"] is False
    listed = hold(place, "list")["policies"]
    assert [[it["name"] for it in policy["holds"]] for policy in listed] == [[NAME], []]
    table = place("hold", "list")
    assert (table.code, WHY[1] in table.out, "symbol=MDB" in table.out) == (0, True, True)
    (released,) = hold(place, "release", NAME)["policies"]
    assert (released["policy"], released["released"], released["holds"]) == ("ticks", True, [])
    kinds = [(it["kind"], it["hold"], it["reason"]) for it in _receipts(place)]
    assert kinds == [("hold", NAME, WHY[1]), ("release", NAME, WHY[1])]
    assert "MDB" not in str(_receipts(place))
    assert NAME in place("receipts", "-p", "ticks").out


def _receipts(place: Place, policy: str = "ticks") -> list[Document]:
    return list(place("receipts", "--json", "-p", policy).policy(policy)["deletes"])


@pytest.mark.proof
@after("run -p ticks")
def test_expired_summaries_stay_while_a_hold_covers_them(place: Place) -> None:
    place.write_config(AT_ONCE)
    added(place, *SECOND_HOUR)
    added(place, "--since", "2018-06-30T01:30", name="second")
    added(place, "--series", "symbol=OTHER", "--allow-empty", name="other")
    plan = place("plan", "-p", "ticks", "--json", now=LONG_AFTER).policy("ticks")["expiry"]
    assert (plan["hourly"], plan["held"]) == (1, {NAME: 1, "second": 2})
    said = run(place, LONG_AFTER)["expiry"]
    assert (said["hourly"], said["held"]) == (1, {NAME: 1, "second": 2})
    assert hours(place) == [1, 2]
    table = place("run", "-p", "ticks", now=LONG_AFTER)
    assert f"ticks: 1 expired summaries stay: held by {NAME}" in table.out
    assert place("audit", "-p", "ticks", now=LONG_AFTER).code == 0
    hold(place, "release", NAME)
    run(place, LONG_AFTER)
    assert hours(place) == [1, 2]
    hold(place, "release", "second")
    assert run(place, LONG_AFTER)["expiry"]["hourly"] == 2
    assert hours(place) == []


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("policy", ["ticks", "iot"])
def test_what_is_held_moves_with_a_copy_and_what_is_frozen_does_not(place: Place, policy: str) -> None:
    added(place, *SECOND_HOUR, policy=policy)
    added(place, "--since", "2018-06-30T02:30", "--freeze", policy=policy, name="frozen")
    said = run(place, policy=policy)["archive"]
    whole, frozen = (MINUTES, 30) if policy == "ticks" else (MINUTES // 10, 3)
    assert (said["deleted"], said["left"]) == (whole - frozen, frozen)
    reason = "held by frozen, which freezes: `bucketwise hold release frozen` lifts it"
    assert said["reasons"] == [{"reason": reason, "count": frozen}]
    assert place("audit", "-p", policy).code == 0
    field = {"ticks": "d", "iot": "at"}[policy]
    assert place.database[policy].count_documents({field: {"$gte": START + timedelta(hours=2.5)}}) == frozen
    hold(place, "release", "frozen")
    said = run(place, policy=policy)["archive"]
    assert (said["deleted"], said["left"]) == (frozen, 0)


@pytest.mark.proof
def test_a_copy_whose_original_is_frozen_meanwhile_waits(place: Place) -> None:
    place.write_config(POLICIES.replace('after = "30d"\n', 'after = "30d"\ngrace = "2d"\n'))
    for policy in ("ticks", "iot"):
        run(place, policy=policy)
        added(place, *SECOND_HOUR, "--freeze", policy=policy)
        later = "2018-09-10T00:00:00Z"
        whole, frozen = (MINUTES, 60) if policy == "ticks" else (MINUTES // 10, 6)
        assert run(place, later, policy)["archive"]["deleted"] == whole - frozen
        assert place.database[policy].count_documents({}) == frozen
        assert run(place, later, policy)["archive"]["deleted"] == 0
        hold(place, "release", NAME, "-p", policy)
        assert run(place, later, policy)["archive"]["deleted"] == frozen


def _parts(place: Place) -> set[Path]:
    return set(place.folder.rglob("data/*/*.parquet"))


def _archive_by_the_hour(place: Place) -> None:
    for hour in (1, 2, 3):
        run(place, iso(START + timedelta(days=30, hours=hour, minutes=1)))


@pytest.mark.proof
@after(_archive_by_the_hour)
def test_what_a_compaction_has_merged_stays_while_a_hold_covers_it(place: Place) -> None:
    small = _parts(place)
    assert len(small) > 1
    added(place, "--series", "symbol=MDB", "--since", "2018-06-30T00:10", "--until", "2018-06-30T00:20")
    assert place("compact", "-p", "ticks").code == 0
    run(place, LONG_AFTER)
    left = small & _parts(place)
    assert len(left) == 1
    assert place("verify", "-p", "ticks").code == place("audit", "-p", "ticks").code == 0
    ran = place("readings", "-p", "ticks")
    assert len(ran.out.splitlines()) == MINUTES * 60 + 1
    run(place, LONG_AFTER)
    assert small & _parts(place) == left
    hold(place, "release", NAME)
    run(place, LONG_AFTER)
    assert not small & _parts(place)
    assert place("verify", "-p", "ticks").code == place("audit", "-p", "ticks", now=LONG_AFTER).code == 0


@pytest.mark.proof
@after(_archive_by_the_hour)
def test_commits_of_a_range_that_is_frozen_are_not_merged(place: Place) -> None:
    parts = _parts(place)
    added(place, "--since", "2018-06-30", "--freeze")
    assert place("compact", "-p", "ticks", "--json").policy("ticks")["commits"] == 0
    assert run(place, LONG_AFTER)["compact"]["commits"] == 0
    assert _parts(place) == parts
    hold(place, "release", NAME)
    assert run(place, LONG_AFTER)["compact"]["commits"] == len(parts)


def test_a_hold_is_placed_while_a_run_holds_the_lease(place: Place) -> None:
    with Lease(place.database, "ticks"):
        assert place("unpin", "-p", "ticks").code == 11
        assert added(place)["placed"] is True
    hold(place, "release", NAME)


def test_a_hold_and_a_delete_conflict(place: Place) -> None:
    """A transaction that has seen no hold does not commit behind one that places it."""
    with Lease(place.database, "ticks") as lease:
        placing, tries = touching(place.database, "ticks"), []

        def delete(session: Any) -> bool:
            tries.append(place.database.holds.count_documents({}, session=session))
            if len(tries) == 1:  # on another connection, before this one commits
                conflict = pytest.raises(OperationFailure, match="conflict")
                with place.database.client.start_session() as other, conflict, other.start_transaction():
                    placing(other)
            return True

        transaction(place.database, lease.guard, delete)
        transaction(
            place.database, placing, lambda session: place.database.holds.insert_one({}, session=session)
        )
        transaction(place.database, lease.guard, delete)
    assert tries == [0, 1]


@pytest.mark.proof
def test_the_first_one_of_all_is_placed_before_any_run(place: Place) -> None:
    assert place.database.bucketwise_lease.find_one() is None
    added(place)
    assert run(place)["archive"]["deleted"] == MINUTES
    assert place("audit", "-p", "ticks").code == 0


@pytest.mark.proof
@after("run -p ticks")
def test_holds_that_were_changed_or_taken_out_are_found(place: Place) -> None:
    added(place, *SECOND_HOUR)
    added(place, name="second")
    assert place("audit", "-p", "ticks").code == 0
    stored = place.database.bucketwise_holds.find_one({"_id.name": "second"})
    place.database.bucketwise_holds.delete_one({"_id.name": "second"})
    longer = {"$set": {"until": datetime(2018, 6, 30, 1, 1, tzinfo=UTC)}}
    place.database.bucketwise_holds.update_one({"_id.name": NAME}, longer)
    ran = place("verify", "-p", "ticks", "--json")
    files = place.folder / "store" / "ticks" / "meta" / "holds"
    damage = [(it["code"], it["place"]) for it in ran.policy("ticks")["damage"]]
    found = [it for it in damage if "file:" not in it[1]]
    assert ran.code == 5
    assert damage[2:] == [("hold-missing", it.as_uri()) for it in sorted(files.iterdir())]
    assert found == [
        ("hold-differs", f"bucketwise_holds, {NAME}"),
        ("hold-missing", "bucketwise_holds, second"),
    ]
    assert place("audit", "-p", "ticks").code == 4
    assert stored is not None
    place.database.bucketwise_holds.insert_one({**stored, "_id": {"policy": "ticks", "name": "forged"}})
    codes = [it["code"] for it in place("verify", "-p", "ticks", "--json").policy("ticks")["damage"]]
    assert codes == ["hold-differs", "hold-differs", "hold-missing", "hold-missing", "hold-missing"]


@pytest.mark.proof
@after("run -p ticks")
def test_coverage_and_explain_tell_of_holds(place: Place) -> None:
    added(place, "--series", "symbol=MDB", *SECOND_HOUR)
    added(place, "--since", "2018-06-30T01:30", name="second")
    other = {"symbol": "OTHER", "d": START + timedelta(days=40), "p": {"0": 1.5}}
    place.database.ticks.insert_one(other)
    rows = place("coverage", "-p", "ticks", "--by", "hour", "--json").policy("ticks")["days"]
    assert [it["held"] for it in rows[:3]] == [0, 2, 1]
    of_other = ("--series", "symbol=OTHER", "--since", "2018-06-30", "--until", "2018-07-01")
    rows = place("coverage", "-p", "ticks", "--by", "hour", "--json", *of_other).policy("ticks")["days"]
    assert [it["held"] for it in rows] == [0, 1] + [1] * 22
    found = place("explain", "-p", "ticks", "--at", "2018-06-30T01:45", "--json").policy("ticks")
    assert [it["name"] for it in found["holds"]] == [NAME, "second"]
    assert (found["holds"][0]["reason"], found["state"]) == (WHY[1], "archived")
    found = place("explain", "-p", "ticks", "--at", "2018-06-30T00:45", "--json").policy("ticks")
    assert found["holds"] == []
    assert f"held   by {NAME}: {WHY[1]}" in place("explain", "-p", "ticks", "--at", "2018-06-30T01:45").out


def test_explain_says_what_a_freeze_does(place: Place) -> None:
    added(place, "--freeze", policy="iot")
    found = place("explain", "-p", "iot", "--at", "2018-06-30T01:00", "--json").policy("iot")
    assert found["rule"] == f"held by {NAME}, which freezes: `bucketwise hold release {NAME}` lifts it"
    assert found["next"] == {"action": None, "at": None}


@pytest.mark.in_turn(4)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add", NAME], ["--reason", "why"]),
        (["add", NAME, "--reason", "  "], ["--reason", "why"]),
        (["add", *WHY], ["hold add", NAME]),
        (["add", "a/b", *WHY], ["a/b", "letters"]),
        (["add", "-x", *WHY], ["x"]),
        (["add", "x" * 65, *WHY], ["64"]),
        (["add", NAME, *WHY, "--series", "symbol"], ["--series symbol", "FIELD=VALUE"]),
        (["add", NAME, *WHY, "--series", "symbol=MDB"], ["policy iot has no such series field", "sensor"]),
        (["add", NAME, *WHY, "--since", "2018-07-01", "--until", "2018-07-01"], ["the range is empty"]),
        (["list", NAME], ["hold list", NAME]),
        (["list", "--freeze"], ["--freeze", "hold add"]),
        (["release"], ["hold release", "name the hold"]),
        (["release", "unknown"], ["no such hold", "There are: none"]),
        (["release", NAME, "--series", "symbol=MDB"], ["--series", "hold add"]),
        (["drop", NAME], ["drop"]),
        ([], ["ACTION", "add", "list", "release"]),
    ],
)
def test_what_can_not_be_is_refused_and_nothing_is_placed(
    untouched: Place, arguments: list[str], words: list[str]
) -> None:
    before = untouched.everything()
    ran = untouched("hold", *arguments)
    assert ran.code == 2, ran
    for word in words:
        assert word in ran.err
    assert untouched.everything() == before


def test_a_name_stands_for_one_hold(place: Place) -> None:
    added(place, *SECOND_HOUR)
    ran = place("hold", "add", NAME, "-p", "ticks", *WHY)
    assert (ran.code, "another hold named case-17 stands since 2018-09-01" in ran.err) == (2, True)
    ran = place("hold", "release", "other")
    assert (ran.code, f"There are: {NAME}" in ran.err) == (2, True)


TEXTS = ('it\'s "quoted"', "a/b", "7", "ü" * 40, "a.b=c")


def of_any_text(place: Place) -> None:
    """A series for each text, of a reading each hour."""
    place.database.ticks.delete_many({})
    readings = [
        {"symbol": text, "d": START + timedelta(hours=hour), "p": {"0": 1.5}}
        for text in TEXTS
        for hour in range(3)
    ]
    place.database.ticks.insert_many(readings)


@pytest.mark.proof
@after(of_any_text, "run -p ticks")
def test_a_series_may_have_any_text(place: Place) -> None:
    place.write_config(AT_ONCE)
    for number, text in enumerate(TEXTS):
        added(place, "--series", f"symbol={text}", *SECOND_HOUR, name=f"h{number}")
    said = run(place, LONG_AFTER)
    assert said["expiry"]["held"] == {f"h{number}": 1 for number in range(len(TEXTS))}
    left = {(it["symbol"], it["start"].hour) for it in place.database.ticks_hourly.find()}
    assert left == {(text, 1) for text in TEXTS}


@after("run -p ticks")
def test_a_series_field_that_is_no_more_is_taken_for_any(place: Place) -> None:
    place.write_config(POLICIES.replace('["symbol"]', '["symbol", "venue"]'))
    added(place, "--series", "venue=X", *SECOND_HOUR, "--allow-empty")
    place.write_config(AT_ONCE)
    run(place, LONG_AFTER)
    assert hours(place) == [1]


@pytest.mark.proof
def test_a_whole_number_may_be_spelled_in_any_way(place: Place) -> None:
    """Each freezes an hour of its own, or the next one."""
    spellings = ("7", "7.0", "7e0", "07")
    for number, spelling in enumerate(spellings):
        since, until = (iso(START + timedelta(minutes=45 * it)) for it in (number, number + 1))
        within = ("--series", f"sensor={spelling}", "--since", since, "--until", until)
        added(place, *within, "--freeze", policy="iot", name=f"h{number}")
    assert run(place, policy="iot")["archive"]["deleted"] == 0
    hours = place("coverage", "-p", "iot", "--by", "hour", "--series", "sensor=7", "--json")
    assert [it["held"] for it in hours.policy("iot")["days"]] == [2, 2, 2]


@pytest.mark.proof
@after("rollup -p ticks")
def test_a_held_summary_stays_when_somebody_else_deletes_its_readings(place: Place) -> None:
    """A roll-up would take it out: it is the last trace of what is held."""
    added(place, *SECOND_HOUR)
    place.database.ticks.delete_many({"d": {"$gte": START + timedelta(hours=1)}})
    assert place("rollup", "-p", "ticks").code == 0  # the change stream tells of the deletes
    assert hours(place) == [0, 1]
    again = ("rollup", "-p", "ticks", "--since", "2018-06-30", "--until", "2018-07-01")
    assert place(*again, "--json").policy("ticks")["hourly"]["written"] == 0
    hold(place, "release", NAME)
    assert place("rollup", "-p", "ticks").code == 0  # it goes, as it would have without the hold
    assert hours(place) == [0]
    left = [[it["count"] for it in place.database[f"ticks_{level}"].find()] for level in ("hourly", "daily")]
    assert left[0] == left[1]


@after("rollup -p ticks")
def test_what_has_moved_counts_once_after_the_release(place: Place) -> None:
    """However it was rolled up meanwhile; and what is under another hold still stays."""
    added(place)
    moved = {"d": {"$gte": START + timedelta(hours=1)}}
    before = {it["_id"]["series"]["symbol"]: it["count"] for it in place.database.ticks_daily.find()}
    place.database.ticks.update_many(moved, [{"$set": {"d": {"$add": ["$d", 86_400_000]}}}])
    for arguments in ((), ("--since", "2018-06-30", "--until", "2018-07-01"), ()):
        assert place("rollup", "-p", "ticks", *arguments).code in (0, 3)
    assert sum(before.values()) < counted(place)
    added(place, "--until", "2018-06-30T01:00", name="other")  # of another hour
    hold(place, "release", NAME)
    assert place("rollup", "-p", "ticks").code == 0
    assert sum(before.values()) == counted(place)
    (held,) = place.database.bucketwise_progress.find({"_id": {"held": "ticks"}})
    assert held["windows"] == []


def counted(place: Place) -> int:
    hourly, daily = (
        sum(int(it["count"]) for it in place.database[f"ticks_{level}"].find())
        for level in ("hourly", "daily")
    )
    assert hourly == daily
    return hourly
