"""The end of an archive: tombstones, what goes after them, and what stays."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from bucketwise.archivers.records.receipts import Receipts
from bucketwise.jobs.core.clock import iso
from tests.faults.meddling import hook
from tests.jobs.place import NOW, POLICIES, START, Place
from tests.jobs.states import States

Document = dict[str, Any]
#: Two years after the readings, and as long after they were archived as those would be that were archived in
#: time, 30 days after they were taken.
PAST = datetime.fromisoformat("2020-08-01T12:00:00Z")
DAY = timedelta(days=1)
STAY = timedelta(days=700)
ENDING = POLICIES.replace('[policies.ticks.retain]\nhourly = "365d"\n', "") + (
    '[policies.iot.retain]\narchive = "2y"\n[policies.ticks.retain]\narchive = "2y"\n'
)
NONE = {"days": 0, "buckets": 0, "bytes": 0}


def end(place: Place) -> None:
    place.write_config(ENDING)


@pytest.fixture
def ending(states: States) -> Place:
    """Three hours of a day of each policy are archived."""
    return states.at(end, "run")


def run(place: Place, now: datetime, policy: str = "ticks", verb: str = "run", code: int = 0) -> Document:
    ran = place(verb, "-p", policy, "--json", now=iso(now))
    assert ran.code == code, ran
    return dict(ran.policy(policy)["archive_expiry"])


def amounts(body: Document) -> dict[str, int]:
    return {name: it["buckets"] for name, it in body.items() if isinstance(it, dict) and it.get("buckets")}


def audited(place: Place, now: datetime, policy: str) -> None:
    """Nothing is wrong; an audit reads all that is archived."""
    ran = place("audit", "-p", policy, "--json", now=iso(now))
    assert ran.code == 0, ran


def files(place: Place) -> set[str]:
    """What the store holds of commits, without links."""
    root = place.folder / "store" / "ticks"
    found = (it for it in root.rglob("*") if it.is_file())
    names = {str(it.relative_to(root)) for it in found}
    return {it for it in names if it.startswith(("data/", "meta/buckets", "meta/manifests", "meta/versions"))}


@pytest.mark.proof
@pytest.mark.parametrize(("policy", "buckets"), [("ticks", 180), ("iot", 18)])
def test_what_is_past_gets_a_tombstone_and_goes_when_it_has_stood(
    ending: Place, policy: str, buckets: int
) -> None:
    summaries = {it["_id"]["start"]: it for it in ending.database[f"{policy}_hourly"].find()}
    assert amounts(run(ending, PAST - DAY, policy)) == {}
    assert amounts(run(ending, PAST + DAY, policy, "plan")) == {"tombstoned": buckets}
    assert amounts(run(ending, PAST + DAY, policy)) == {"tombstoned": buckets}
    assert amounts(run(ending, PAST + 7 * DAY, policy)) == {"standing": buckets}
    audited(ending, PAST + 7 * DAY, policy)
    assert ending("verify", "-p", policy, now=iso(PAST + 7 * DAY)).code == 0
    due = PAST + 8 * DAY
    assert amounts(run(ending, due, policy, "plan")) == {"expired": buckets}
    body = run(ending, due, policy)
    assert amounts(body) == {"expired": buckets}
    assert (body["expired"]["days"], body["expired"]["bytes"] > 0) == (1, True)
    assert amounts(run(ending, due, policy)) == {}
    audited(ending, due, policy)
    assert ending("verify", "-p", policy, now=iso(due)).code == 0
    assert {it["_id"]["start"]: it for it in ending.database[f"{policy}_hourly"].find()} == summaries
    assert len(ending("readings", "-p", policy, now=iso(due)).out.splitlines()) == 1
    (receipt,) = [it for it in receipts(ending, policy) if it["kind"] == "expire"]
    assert (receipt["buckets"], receipt["first"]) == (buckets, iso(START))
    rows = ending("coverage", "-p", policy, "--json", now=iso(due)).policy(policy)["days"]
    assert [it["state"] for it in rows] == ["summarised"]
    if policy == "ticks":
        assert files(ending) == set()
    else:
        assert ending.database["iot_archive"].count_documents({}) == 0
        assert ending.database["bucketwise_receipts"].count_documents({"kind": "tombstone"}) == 0


def receipts(place: Place, policy: str) -> list[Document]:
    return list(place("receipts", "--json", "-p", policy).policy(policy)["deletes"])


POLICY = pytest.mark.parametrize("policy", ["ticks", "iot"])
BUCKETS = {"ticks": 180, "iot": 18}
FIELD = {"ticks": "d", "iot": "at"}


def buried(place: Place, policy: str) -> datetime:
    """Puts tombstones on all. Returns when they are due."""
    assert amounts(run(place, PAST, policy)) == {"tombstoned": BUCKETS[policy]}
    return PAST + 7 * DAY


def undelete(place: Place, now: datetime, *arguments: str, policy: str = "ticks") -> Document:
    ran = place("undelete", "-p", policy, "--json", *arguments, now=iso(now))
    assert ran.code == 0, ran
    return {key: it for key, it in ran.policy(policy).items() if key in ("days", "until")}


@pytest.mark.proof
@pytest.mark.in_turn(1)
@POLICY
def test_a_tombstone_that_was_lifted_comes_back_thirty_days_later(ending: Place, policy: str) -> None:
    due = buried(ending, policy)
    beside = ("--since", "2018-07-01", "--until", "2018-08-01")
    assert undelete(ending, due, *beside, policy=policy) == {"days": 0, "until": None}
    until = due + 30 * DAY
    said = undelete(ending, due, "--since", "2018-06-30T12:00", "--until", "2018-07-01", policy=policy)
    assert said == {"days": 1, "until": iso(until)}
    assert undelete(ending, due, policy=policy)["days"] == 0
    assert amounts(run(ending, until - DAY, policy)) == {"lifted": BUCKETS[policy]}
    assert amounts(run(ending, until, policy)) == {"tombstoned": BUCKETS[policy]}
    assert amounts(run(ending, until + 6 * DAY, policy)) == {"standing": BUCKETS[policy]}
    assert amounts(run(ending, until + 7 * DAY, policy)) == {"expired": BUCKETS[policy]}
    audited(ending, until + 7 * DAY, policy)
    assert undelete(ending, until + 7 * DAY, policy=policy)["days"] == 0


@pytest.mark.proof
@pytest.mark.in_turn(1)
@POLICY
def test_a_tombstone_of_another_length_counts_no_more(ending: Place, policy: str) -> None:
    due = buried(ending, policy)
    ending.write_config(ENDING.replace('"2y"', '"3y"'))
    assert amounts(run(ending, due, policy)) == {}
    ending.write_config(ENDING.replace('"2y"', '"100w"'))
    assert amounts(run(ending, due, policy)) == {"tombstoned": BUCKETS[policy]}
    ending.write_config(
        ENDING.replace('[policies.iot.retain]\narchive = "2y"\n', "").replace('"2y"', '"forever"')
    )
    assert amounts(run(ending, due + 100 * DAY, policy)) == {}


@pytest.mark.proof
@pytest.mark.in_turn(1)
@POLICY
def test_a_hold_over_a_tombstone_keeps_what_it_covers(ending: Place, policy: str) -> None:
    due = buried(ending, policy)
    hour = ("--since", "2018-06-30T01:00", "--until", "2018-06-30T02:00", "--reason", "why")
    assert ending("hold", "add", "a.b", "-p", policy, *hour).code == 0
    other = {"ticks": "symbol=OTHER", "iot": "sensor=8"}[policy]
    empty = ("--series", other, "--reason", "why", "--allow-empty")
    assert ending("hold", "add", "other", "-p", policy, *empty).code == 0
    held = {"ticks": 180, "iot": 6}[policy]  # a commit goes as a whole
    gone = {"expired": BUCKETS[policy] - held} if policy == "iot" else {}
    for verb in ("plan", "run"):
        body = run(ending, due, policy, verb)
        assert (body["held"], amounts(body)) == ({"a.b": held}, gone)
    for verb in ("plan", "run"):
        body = run(ending, due + DAY, policy, verb)
        assert (body["held"], amounts(body)) == ({"a.b": held}, {})
    assert f"{policy}: {held} archived buckets stay: held by a.b" in ending("run", now=iso(due + DAY)).out
    audited(ending, due + DAY, policy)
    assert ending("hold", "release", "a.b").code == 0
    assert amounts(run(ending, due + DAY, policy)) == {"expired": held}
    audited(ending, due + DAY, policy)


@pytest.mark.proof
@pytest.mark.in_turn(1)
@POLICY
def test_what_is_live_as_well_stays_in_the_archive(ending: Place, policy: str) -> None:
    """A bucket was restored, and is pinned."""
    due = buried(ending, policy)
    end = {"ticks": "2018-06-30T00:01", "iot": "2018-06-30T00:10"}[policy]
    back = ("restore", "-p", policy, "--since", "2018-06-30", "--until", end, "--to", policy, "--yes")
    assert ending(*back, "--keep-for", "1000d", now=iso(due)).code == 0
    body = run(ending, due, policy)
    live = {"ticks": 180, "iot": 1}[policy]
    assert body["live"] == live
    assert amounts(body) == ({} if policy == "ticks" else {"expired": 17})
    audited(ending, due, policy)
    assert ending("unpin", "-p", policy).code == 0
    body = run(ending, due, policy)
    assert (body["live"], amounts(body)) == (0, {"expired": live})
    audited(ending, due, policy)
    assert ending.database[policy].count_documents({}) == 0


@pytest.mark.proof
@POLICY
def test_where_originals_stay_the_archive_ends_behind_them(ending: Place, policy: str) -> None:
    ending.write_config(ENDING.replace('after = "30d"\n', 'after = "30d"\ndelete = false\n'))
    again = [{"symbol": "MDB", "d": START + DAY, "p": {"0": 1.5}}]
    if policy == "iot":
        again = [{"sensor": 7, "at": START + DAY, "t": 1.5}]
    ending.database[policy].insert_many(again)
    assert amounts(run(ending, PAST + 2 * DAY, policy)) == {"tombstoned": BUCKETS[policy]}
    assert amounts(run(ending, PAST + 9 * DAY, policy)) == {"expired": BUCKETS[policy]}
    assert amounts(run(ending, PAST + 20 * DAY, policy)) == {}
    audited(ending, PAST + 20 * DAY, policy)
    ending.database[policy].delete_many({})
    later = PAST + 2 * DAY + STAY
    assert amounts(run(ending, later - DAY, policy)) == {}
    assert amounts(run(ending, later, policy)) == {"tombstoned": 1}
    assert amounts(run(ending, later + 7 * DAY, policy)) == {"expired": 1}
    audited(ending, later + 7 * DAY, policy)


@pytest.mark.proof
@pytest.mark.in_turn(1)
@POLICY
def test_what_a_wrong_clock_dates_far_back_stays_as_long_as_others(place: Place, policy: str) -> None:
    """Its times are past at once. Neither a compaction nor a restore makes it go earlier or later; what comes
    into its day or its commit later keeps it."""
    old = datetime.fromisoformat("1971-03-05T00:00:00Z")
    place.write_config(ENDING)
    documents = [
        {"symbol": "MDB", "sensor": 7, "d": old, "at": old, "p": {"0": 1.5}, "t": 1.5},
        {"symbol": "NEW", "sensor": 8, "d": old, "at": old, "p": {"0": 2.5}, "t": 2.5},
    ]
    place.database[policy].delete_many({})
    place.database[policy].insert_one(documents[0])
    archived = datetime.fromisoformat(NOW)
    assert amounts(run(place, archived, policy)) == {}
    place.database[policy].insert_one(documents[1])
    again = archived + 10 * DAY
    assert amounts(run(place, again, policy)) == {}
    until = again + STAY
    place("compact", "-p", policy, now=iso(again + 2 * DAY))
    assert amounts(run(place, archived + STAY, policy)) == {}
    asked = ("--at", iso(old), "--series", {"ticks": "symbol=MDB", "iot": "sensor=7"}[policy], "--json")
    shown = place("explain", "-p", policy, *asked, now=iso(archived + STAY))
    assert shown.policy(policy)["next"] == {"action": "expire", "at": iso(until + 7 * DAY)}
    back = (
        "restore",
        "-p",
        policy,
        "--to",
        policy,
        "--yes",
        "--since",
        "1971-03-05",
        "--until",
        "1971-03-06",
    )
    assert place(*back, now=iso(until - 5 * DAY)).code == 0
    assert place("unpin", "-p", policy, now=iso(until - 5 * DAY)).code == 0
    for verb in ("plan", "run"):
        assert amounts(run(place, until - DAY, policy, verb)) == {}
    audited(place, until - DAY, policy)
    assert amounts(run(place, until, policy)) == {"tombstoned": 2}
    assert amounts(run(place, until + 7 * DAY, policy)) == {"expired": 2}
    audited(place, until + 7 * DAY, policy)


@pytest.mark.proof
@pytest.mark.in_turn(1)
@POLICY
def test_a_late_reading_behind_the_end_leaves_the_summary_as_it_was(ending: Place, policy: str) -> None:
    due = buried(ending, policy)
    run(ending, due, policy)
    before = list(ending.database[f"{policy}_hourly"].find())
    assert len(before) == 3
    slots = {str(second): 1.0 for second in range(60)}
    late = [{"symbol": "MDB", "d": START + timedelta(minutes=it), "p": slots} for it in range(59)]
    if policy == "iot":
        late = [{"sensor": 7, "at": START + timedelta(minutes=it), "t": 1.5} for it in range(59)]
    ending.database[policy].insert_many(late)
    new = {"symbol": "NEW", "sensor": 9, "d": START, "at": START, "p": {"0": 2.0}, "t": 2.0}
    ending.database[policy].insert_one(new)
    count = len(late) + 1
    assert amounts(run(ending, due, policy, code=3)) == {}
    named = {"_id.series.symbol": "MDB"} if policy == "ticks" else {"_id.series.sensor": 7}
    assert list(ending.database[f"{policy}_hourly"].find(named)) == before
    assert ending.database[f"{policy}_hourly"].count_documents({}) == 4
    audited(ending, due, policy)
    within = ("--since", "2018-06-30", "--until", "2018-07-01")
    assert ending("rollup", "-p", policy, *within, now=iso(due)).code == 3
    assert list(ending.database[f"{policy}_hourly"].find(named)) == before
    assert amounts(run(ending, due + STAY, policy)) == {"tombstoned": count}
    gone = due + STAY + 7 * DAY
    assert amounts(run(ending, gone, policy)) == {"expired": count}
    assert ending("rollup", "-p", policy, *within, now=iso(gone)).code == 0
    assert ending.database[f"{policy}_hourly"].count_documents({}) == 4
    audited(ending, gone, policy)


@pytest.mark.proof
@pytest.mark.in_turn(1)
@POLICY
def test_coverage_and_explain_tell_of_a_tombstone(ending: Place, policy: str) -> None:
    asked = ("explain", "-p", policy, "--at", "2018-06-30T01:00", "--json")

    def told(now: datetime) -> tuple[Any, ...]:
        (row,) = ending("coverage", "-p", policy, "--json", now=iso(now)).policy(policy)["days"]
        commits = {it["expires_at"] for it in row["commits"]}
        assert commits <= {row["expires_at"]}
        said = ending(*asked, now=iso(now)).policy(policy)
        return row["expires_at"], said["next"], said["rule"]

    rule, lifts = 'retain.archive = "2y"', ", under a tombstone: `bucketwise undelete` lifts it"
    expected = datetime.fromisoformat(NOW) + STAY + 7 * DAY
    assert told(PAST - 90 * DAY) == (None, {"action": "expire", "at": iso(expected)}, rule)
    due = buried(ending, policy)
    assert told(PAST) == (iso(due), {"action": "expire", "at": iso(due)}, rule + lifts)
    shown = ending("explain", "-p", policy, "--at", "2018-06-30T01:00", now=iso(PAST)).out
    assert f"next   removed from the archive for good by a run after {iso(due)}" in shown
    assert f"{due:%Y-%m-%d}" in ending("coverage", "-p", policy, now=iso(PAST)).out
    assert iso(due) in ending("coverage", "-p", policy, "--format", "csv", now=iso(PAST)).out
    undelete(ending, PAST, policy=policy)
    again = {"action": "expire", "at": iso(PAST + 37 * DAY)}
    assert told(PAST) == (None, again, rule)
    assert ending("hold", "add", "case", "-p", policy, "--reason", "why").code == 0
    held = f"{rule}; held by case: it stays until that is released"
    assert told(PAST) == (None, {"action": None, "at": None}, held)


@pytest.mark.proof
@pytest.mark.in_turn(1)
@POLICY
def test_without_summaries_the_days_behind_the_end_have_expired(place: Place, policy: str) -> None:
    text = ENDING.replace('[policies.ticks.rollup]\nhourly = "ticks_hourly"\ndaily = "ticks_daily"\n', "")
    place.write_config(text.replace('[policies.iot.rollup]\nhourly = "iot_hourly"\n', ""))
    run(place, datetime.fromisoformat(NOW), policy)
    due = buried(place, policy)
    run(place, due, policy)
    within = ("--since", "2018-06-29", "--until", "2018-07-02", "--json")
    rows = place("coverage", "-p", policy, *within, now=iso(due)).policy(policy)["days"]
    assert [it["state"] for it in rows] == ["expired", "expired", "gap"]
    audited(place, due, policy)


@pytest.mark.proof
@POLICY
def test_an_audit_finds_what_no_run_has_seen_to(ending: Place, policy: str) -> None:
    def codes(now: datetime) -> list[str]:
        found = ending("audit", "-p", policy, "--json", now=iso(now)).policy(policy)["findings"]
        return [it["code"] for it in found]

    assert codes(PAST) == []
    assert codes(PAST + DAY) == ["archive-past-retention"]
    due = buried(ending, policy)
    assert codes(due) == []
    assert codes(due + DAY) == ["archive-past-retention"]
    assert ending("hold", "add", "case", "-p", policy, "--reason", "why").code == 0
    assert codes(due + DAY) == []
    assert ending("hold", "release", "case").code == 0
    run(ending, due + DAY, policy)
    assert codes(due + 2 * DAY) == []


@pytest.mark.proof
def test_what_was_lifted_stays_so_when_its_commit_is_rewritten(ending: Place) -> None:
    """An erasure of another series must not bring its tombstone back."""
    prices = {str(second): 1.5 for second in range(60)}
    ending.database.ticks.insert_one({"symbol": "OTHER", "d": START, "p": prices})
    assert ending("run", "-p", "ticks").code == 0
    run(ending, PAST)
    assert undelete(ending, PAST + DAY)["days"] == 1
    series = ("-p", "ticks", "--series", "symbol=MDB", "--reason", "case 17", "--confirm", "ticks")
    assert ending("erase", *series, now=iso(PAST + DAY)).code == 0
    assert amounts(run(ending, PAST + 2 * DAY)) == {"lifted": 1}
    assert amounts(run(ending, PAST + 30 * DAY)) == {"lifted": 1}
    assert amounts(run(ending, PAST + 31 * DAY)) == {"tombstoned": 1}


def test_what_merged_commits_had_taken_over_ends_with_them(ending: Place) -> None:
    """A commit was merged, and the merged one again, before the first had to go."""
    ending.write_config(ENDING + '[policies.ticks.archive.compact]\ndelay = "9999d"\n')
    now = datetime.fromisoformat(NOW)
    for series in ("ONE", "TWO"):
        ending.database.ticks.insert_one({"symbol": series, "d": START, "p": {"0": 1.5}})
        assert ending("run", "-p", "ticks", now=iso(now)).code == 0
        now += 2 * DAY
        assert ending("compact", "-p", "ticks", "--json", now=iso(now)).policy("ticks")["commits"] == 2
    assert amounts(run(ending, PAST + 7 * DAY)) == {"tombstoned": 182}
    assert amounts(run(ending, PAST + 14 * DAY)) == {"expired": 182}
    assert files(ending) == set()


def in_grace(place: Place) -> None:
    place.write_config(ENDING.replace('to = "offline"', 'to = "offline"\ngrace = "2d"'))


#: The rule of another series: what is of this one alone goes nevertheless.
FOREVER = """
[[policies.ticks.rules]]
match = {symbol = "OTHER"}
retain = {archive = "forever"}
"""


def beside(place: Place) -> set[str]:
    """What the store keeps beside the archive, without links."""
    kept = (place.folder / "store" / "ticks" / "meta").glob("*/*.bson")
    return {str(it.relative_to(place.folder)) for it in kept}


@pytest.fixture
def emptied(states: States) -> Place:
    """All that was copied has changed in its grace, so that nothing was left in the first commit."""
    place, now = states.at(in_grace, "run"), datetime.fromisoformat(NOW)
    place.database.ticks.update_many({}, {"$set": {"note": "new"}, "$unset": {"p.0": ""}})
    for at in (now + 2 * DAY, now + 4 * DAY):
        assert place("run", "-p", "ticks", now=iso(at)).code == 0
    assert place.database.ticks.count_documents({}) == 0
    assert {it.split("/")[3] for it in beside(place)} == {"superseded", "versions"}
    return place


def test_what_is_left_of_an_emptied_commit_ends_as_well(emptied: Place) -> None:
    later = PAST + 4 * DAY
    assert amounts(run(emptied, later, verb="plan")) == {"tombstoned": 360}
    assert amounts(run(emptied, later)) == {"tombstoned": 360}
    undelete(emptied, later + DAY)
    assert amounts(run(emptied, later + 8 * DAY)) == {"lifted": 360}
    assert amounts(run(emptied, later + 31 * DAY)) == {"tombstoned": 360}
    within = ("--since", "2018-06-30T00:05", "--until", "2018-06-30T00:15")
    assert emptied("hold", "add", "case", "-p", "ticks", "--reason", "why", *within).code == 0
    due = later + 38 * DAY
    assert run(emptied, due)["held"] == {"case": 360}
    assert beside(emptied)
    assert emptied("hold", "release", "case", "-p", "ticks", "--reason", "why").code == 0
    assert amounts(run(emptied, due, verb="plan")) == {"expired": 360}
    assert amounts(run(emptied, due)) == {"expired": 360}
    assert (beside(emptied), files(emptied)) == (set(), set())
    assert amounts(run(emptied, due)) == {}
    audited(emptied, due, "ticks")
    assert emptied("verify", "-p", "ticks", now=iso(due)).code == 0
    ended = [it.get("buckets") for it in receipts(emptied, "ticks") if it["kind"] == "expire"]
    assert sorted(ended, key=str) == [180, None]


@pytest.mark.proof
def test_a_run_that_died_with_it_is_finished_by_the_next(emptied: Place) -> None:
    emptied.config.write_text(emptied.config.read_text() + FOREVER)
    later = PAST + 4 * DAY
    assert amounts(run(emptied, later)) == {"tombstoned": 360}
    due, at = iso(later + 7 * DAY), "bucketwise.archivers.format.names.commit_of_superseded"
    given, killed = ("run", "-p", "ticks", "--now", due), hook(signalling={"number": 9, "function": at})
    assert emptied.command.meddled(killed, *given, cwd=emptied.folder, MONGODB_URI=emptied.uri).code == -9
    emptied.database.bucketwise_lease.update_many({}, {"$set": {"expires_at": START}})
    assert beside(emptied)
    ran = emptied("verify", "-p", "ticks", "--json", now=due)
    assert ran.code == 0, ran.policy("ticks")
    assert amounts(run(emptied, later + 7 * DAY)) in ({"expired": 180}, {})
    assert (beside(emptied), files(emptied)) == (set(), set())


@pytest.mark.proof
def test_one_that_two_runs_have_dropped_ends_as_well(emptied: Place) -> None:
    """The first one had lost its lease."""
    found = emptied.database.bucketwise_receipts.find_one({"state": "emptied"}) or {}
    Receipts(emptied.database, "ticks").mark_dropped(found["_id"]["name"])
    assert emptied.database.bucketwise_receipts.find_one({"_id": found["_id"]}) == found
    assert amounts(run(emptied, PAST + 4 * DAY)) == {"tombstoned": 360}


@pytest.mark.proof
def test_of_an_erased_commit_nothing_is_left_that_could_end(ending: Place) -> None:
    series = ("-p", "ticks", "--series", "symbol=MDB", "--reason", "case 17", "--confirm", "ticks")
    assert ending("erase", *series).code == 0
    assert amounts(run(ending, PAST, verb="plan")) == {}
    assert amounts(run(ending, PAST)) == {}
    record = {"_id.policy": "ticks", "kind": "dropped"}
    (found,) = ending.database["bucketwise_receipts"].find(record)
    assert "state" not in found


@pytest.mark.proof
def test_a_version_under_a_hold_keeps_its_bucket(ending: Place) -> None:
    """Somebody moved a reading out of the range that is held."""
    (old,) = ending.database.iot_archive.find({"at": START + timedelta(minutes=10)})
    later = START + timedelta(minutes=95)
    ending.database.iot.insert_one({"_id": old["_id"], "sensor": 7, "at": later, "t": 99.5})
    assert ending("run", "-p", "iot").code == 0
    versions = list(ending.database.iot_archive_versions.find())
    assert versions
    within = ("--since", "2018-06-30T00:05", "--until", "2018-06-30T00:15")
    assert ending("hold", "add", "case", "-p", "iot", "--reason", "why", *within).code == 0
    run(ending, PAST, "iot")
    body = run(ending, PAST + 7 * DAY, "iot")
    assert (body["expired"]["buckets"], body["held"]) == (17, {"case": 1})
    assert list(ending.database.iot_archive_versions.find()) == versions


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize(
    ("policy", "record"), [("ticks", {"kind": "offline"}), ("iot", {"kind": "tombstone"})]
)
def test_a_tombstone_counts_as_far_as_its_receipt_says_so(
    ending: Place, policy: str, record: Document
) -> None:
    """One that was made due at once, and one that had been lifted and was put back: nothing goes."""
    record = record | {"_id.policy": policy}
    run(ending, PAST + DAY, policy)
    records = ending.database["bucketwise_receipts"]
    placed = records.find_one(record, {"tombstone": 1})
    assert placed is not None
    before, archived = files(ending), ending.database["iot_archive"].count_documents({})
    records.update_one(record, {"$set": {"tombstone.due": START}})
    for change in ({}, {"$set": {"tombstone": placed["tombstone"]}}):
        if change:
            records.update_one(record, change)
            assert ending("undelete", "-p", policy, now=iso(PAST + 2 * DAY)).code == 0
            records.update_one(record, change)
        assert ending("run", "-p", policy, now=iso(PAST + 20 * DAY)).code == 5
        found = ending("audit", "-p", policy, "--json", now=iso(PAST + 20 * DAY)).policy(policy)["findings"]
        assert "record-differs" in {it["code"] for it in found}
    assert (files(ending), ending.database["iot_archive"].count_documents({})) == (before, archived)
