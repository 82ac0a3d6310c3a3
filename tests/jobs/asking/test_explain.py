"""What `explain` says of a bucket is what runs then do to it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from bson import json_util
from bson.binary import Binary

from bucketwise.jobs.core.clock import iso
from tests.jobs.place import NOW, POLICIES, START, Place
from tests.jobs.states import after

Document = dict[str, Any]
OID = '{"$oid": "5b3717f0e1f2a3b4c5d6e7f8"}'
LONG_AGO = "2018-07-01T12:00:00Z"


def _said(place: Place, *arguments: str, policy: str = "ticks", now: str = NOW) -> Document:
    ran = place("explain", "--json", "-p", policy, *arguments, now=now)
    assert ran.code == 0, ran
    return ran.policy(policy)


def _first(place: Place, policy: str) -> str:
    field = {"ticks": "d", "iot": "at"}[policy]
    (found,) = place.database[policy].find({field: START})
    return json.dumps({"$oid": str(found["_id"])})


def _with(place: Place, text: str) -> None:
    place.write_config(POLICIES.replace('after = "30d"\n', f'after = "30d"\n{text}\n'))


def _state(place: Place, policy: str) -> tuple[bool, bool]:
    """Whether the first bucket is in the source, and how many copies there are."""
    field = {"ticks": "d", "iot": "at"}[policy]
    live = place.database[policy].count_documents({field: START}) > 0
    offline = bool(list(place.folder.rglob("data/*/*.parquet")))
    return live, offline if policy == "ticks" else place.database.iot_archive.count_documents({}) > 0


def _is_due(place: Place, policy: str, said: Document) -> str:
    """A run at that instant changes nothing of it; one a moment later does what was said. Returns when."""
    at = datetime.fromisoformat(said["next"]["at"])
    before = _state(place, policy)
    assert place("run", "-p", policy, now=iso(at)).code == 0
    assert _state(place, policy) == before
    later = iso(at + timedelta(seconds=1))
    assert place("run", "-p", policy, now=later).code == 0
    assert _state(place, policy) != before
    return later


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("policy", ["ticks", "iot"])
def test_what_comes_next_comes_then(place: Place, policy: str) -> None:
    _with(place, 'grace = "2d"')
    place("rollup", "-p", policy, now=LONG_AGO)
    bucket = ("--id", _first(place, policy))
    said = _said(place, *bucket, policy=policy, now=LONG_AGO)
    assert (said["state"], said["next"]["action"], said["history"]) == ("live", "archive", [])
    assert said["rule"] == 'archive.after = "30d"'
    last = START + timedelta(seconds=59 if policy == "ticks" else 0)
    assert said["next"]["at"] == iso(last + timedelta(days=30))
    copied = _is_due(place, policy, said)
    said = _said(place, *bucket, policy=policy, now=copied)
    assert (said["state"], said["next"]["action"]) == ("both", "delete")
    assert said["rule"] == 'archive.grace = "2d": it is copied, and waits'
    assert said["history"][0]["event"] == "copied"
    assert said["history"][0]["at"] == copied
    place("run", "-p", policy, now=iso(datetime.fromisoformat(said["next"]["at"]) - timedelta(seconds=1)))
    assert _state(place, policy) == (True, True)
    gone = said["next"]["at"]
    assert place("run", "-p", policy, now=gone).code == 0
    said = _said(place, *bucket, policy=policy, now=gone)
    assert said["state"] == ("archived" if policy == "ticks" else "online")
    assert said["next"] == {"action": None, "at": None}
    assert said["history"][-1]["event"] == "deleted"
    assert said["history"][-1]["at"] == gone


@pytest.mark.proof
def test_a_batch_is_waited_for(place: Place) -> None:
    _with(place, 'batch = "1d"')
    place("rollup", "-p", "ticks", now=LONG_AGO)
    said = _said(place, "--id", _first(place, "ticks"), now=LONG_AGO)
    assert said["rule"] == 'archive.after = "30d", archive.batch = "1d"'
    assert said["next"]["at"] == "2018-07-31T00:00:00Z"
    assert place("run", "-p", "ticks", now="2018-07-30T23:59:59Z").code == 0
    assert _state(place, "ticks") == (True, False)
    assert place("run", "-p", "ticks", now="2018-07-31T00:00:00Z").code == 0
    assert _state(place, "ticks") == (False, True)


@pytest.mark.proof
def test_a_day_and_its_settle_are_waited_for(place: Place) -> None:
    """The day of a bucket that has expired is not over yet."""
    text = POLICIES.replace('after = "30d"', 'after = "1h"', 1)
    place.write_config(text.replace('daily = "ticks_daily"', 'daily = "ticks_daily"\nsettle = "20m"', 1))
    early = "2018-06-30T12:00:00Z"
    place("run", "-p", "ticks", now=early)
    said = _said(place, "--id", _first(place, "ticks"), now=early)
    assert said["next"] == {"action": "archive", "at": "2018-07-01T00:20:00Z"}
    assert place("run", "-p", "ticks", now="2018-07-01T00:19:59Z").code == 0
    assert _state(place, "ticks") == (True, False)
    assert place("run", "-p", "ticks", now="2018-07-01T00:20:00Z").code == 0
    assert _state(place, "ticks") == (False, True)


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("policy", ["ticks", "iot"])
def test_a_restored_bucket_waits_for_its_pin(place: Place, policy: str) -> None:
    bucket = ("--id", _first(place, policy))
    place("run", "-p", policy)
    place("restore", "-p", policy, "--to", policy, "--yes")
    said = _said(place, *bucket, policy=policy)
    assert said["state"] == "both"
    assert said["rule"] == "restored, and pinned: `bucketwise unpin` releases them"
    assert said["next"] == {"action": None, "at": None}
    place("restore", "-p", policy, "--to", policy, "--yes", "--keep-for", "90d")
    said = _said(place, *bucket, policy=policy)
    assert said["rule"].startswith("restored, and pinned until 2018-11-30")
    assert said["next"] == {"action": "delete", "at": "2018-11-30T00:00:00Z"}
    assert said["history"][-1]["event"] == "pinned"
    place("run", "-p", policy, now="2018-11-29T23:59:59Z")
    assert _state(place, policy) == (True, True)
    place("run", "-p", policy, now="2018-11-30T00:00:00Z")
    assert _state(place, policy) == (False, True)
    place("restore", "-p", policy, "--to", policy, "--yes")
    place("unpin", "-p", policy)
    said = _said(place, *bucket, policy=policy)
    assert (said["state"], said["next"]["action"]) == ("both", "delete")


@pytest.mark.proof
def test_history_is_that_of_the_receipts_and_of_the_ledger(place: Place) -> None:
    bucket = ("--id", _first(place, "ticks"))
    place("run", "-p", "ticks")
    (receipt,) = place("receipts", "--json", "-p", "ticks").policy("ticks")["deletes"]
    (run,) = place("status", "--json", "-p", "ticks").policy("ticks")["last_runs"]
    copied, deleted = _said(place, *bucket)["history"]
    assert (copied["event"], deleted["event"]) == ("copied", "deleted")
    assert deleted["receipt"] == receipt["sequence"]
    assert copied["commit"] == deleted["commit"] == receipt["held_by"]["commit"]
    assert copied["run"] == deleted["run"] == run["run"]
    assert {copied["verb"], deleted["verb"]} == {"run"}
    place("restore", "-p", "ticks", "--to", "ticks", "--yes")
    place("unpin", "-p", "ticks")
    place("run", "-p", "ticks", now="2018-09-02T00:00:00Z")
    events = [it["event"] for it in _said(place, *bucket)["history"]]
    assert events == ["copied", "deleted", "deleted"], "it went twice"
    place.database.bucketwise_runs.delete_many({})
    assert {it["run"] for it in _said(place, *bucket)["history"]} == {None}, "the ledger forgets"


@pytest.mark.proof
def test_history_goes_back_through_merged_commits(place: Place) -> None:
    bucket = ("--id", _first(place, "ticks"))
    place("rollup", "-p", "ticks")
    for hour in (1, 2, 3):
        place("archive", "-p", "ticks", "--until", f"2018-06-30T0{hour}:00")
    before = _said(place, *bucket)["history"]
    place("compact", "-p", "ticks", now="2018-09-05T00:00:00Z")
    copied, deleted, merged = _said(place, *bucket)["history"]
    assert [copied, deleted] == before
    assert (merged["event"], merged["at"], merged["verb"]) == ("merged", "2018-09-05T00:00:00Z", "compact")
    assert merged["commit"] != copied["commit"]
    place("run", "-p", "ticks", now="2018-09-06T00:00:00Z")
    assert _said(place, *bucket)["history"] == [copied, deleted, merged], "what was replaced has gone"
    last = {"d": START + timedelta(minutes=179)}
    receipts = place("receipts", "--json", "-p", "ticks").policy("ticks")["deletes"]
    (other,) = _said(place, "--at", iso(last["d"]))["buckets"]
    assert other["history"][1]["receipt"] == receipts[-1]["sequence"] != deleted["receipt"]


@pytest.mark.proof
def test_a_broken_bucket(place: Place) -> None:
    place.database.ticks.insert_one({"_id": 7, "symbol": "MDB", "d": START, "p": {"60": 1.5}})
    place("run", "-p", "ticks", now="2018-09-01T00:00:00Z")
    said = _said(place, "--id", "7")
    assert said["state"] == "quarantined"
    assert said["rule"].startswith("it breaks its model, and stays: p.60: slot")
    assert said["next"] == {"action": None, "at": None}
    (event,) = said["history"]
    assert (event["event"], event["at"]) == ("quarantined", "2018-09-01T00:00:00Z")
    assert said["buckets"][0]["series"] is None
    shown = place("explain", "-p", "ticks", "--id", "7").out
    assert "in the source, quarantined" in shown
    at = _said(place, "--at", iso(START))
    assert (at["state"], len(at["buckets"])) == ("both", 2)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('after = "forever"', 'archive.after = "forever": it stays'),
        ('after = "30d"\ndelete = false', "archive.delete = false: it is copied, and stays"),
    ],
)
def test_what_stays_forever(place: Place, text: str, rule: str) -> None:
    place.write_config(
        POLICIES.replace('after = "30d"', text).replace('hourly = "365d"', 'hourly = "forever"')
    )
    place("run", "-p", "ticks")
    said = _said(place, "--id", _first(place, "ticks"))
    assert (said["rule"], said["next"]["action"]) == (rule, None)


def test_without_an_archive_it_stays(place: Place) -> None:
    offline = '[policies.ticks.archive]\nafter = "30d"\nto = "offline"\n'
    place.write_config(POLICIES.replace(offline, ""))
    said = _said(place, "--id", _first(place, "ticks"))
    assert (said["state"], said["rule"]) == ("live", "the policy archives nothing: it stays")


def test_what_is_not_rolled_up_says_so(untouched: Place) -> None:
    said = _said(untouched, "--id", _first(untouched, "ticks"))
    assert said["rule"] == 'archive.after = "30d", once its windows are rolled up'


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("to", ["offline", "online"])
def test_versions(place: Place, to: str) -> None:
    online = 'to = "online"\ncollection = "ticks_archive"'
    place.write_config(POLICIES if to == "offline" else POLICIES.replace('to = "offline"', online))
    for slots in ({"0": 1.0}, {"5": 2.0}):
        place.database.ticks.insert_one({"_id": "x", "symbol": "X", "d": START, "p": slots})
        assert place("run", "-p", "ticks").code == 0
    said = _said(place, "--id", '"x"')
    assert said["state"] == ("archived" if to == "offline" else "online")
    assert said["buckets"][0]["versions"] >= 2
    assert len([it for it in said["history"] if it["event"] == "deleted"]) == 2
    place.database.ticks.insert_one({"_id": "x", "symbol": "X", "d": START, "p": {"9": 3.0}})
    said = _said(place, "--id", '"x"')
    assert (said["state"], said["next"]["action"]) == ("both", "archive"), "another version"


@pytest.mark.proof
def test_an_instant_has_as_many_buckets_as_series(place: Place) -> None:
    place.database.ticks.insert_one({"_id": 1, "symbol": "ORCL", "d": START, "p": {"30": 1.5}})
    said = _said(place, "--at", "2018-06-30T00:00:10Z")
    assert (said["state"], len(said["buckets"]), said["rule"]) == ("live", 2, None)
    one = _said(place, "--at", "2018-06-30T00:00:10Z", "--series", "symbol=ORCL")
    assert [it["id"] for it in one["buckets"]] == [1]
    assert one["rule"] is not None
    place("run", "-p", "ticks")
    archived = _said(place, "--at", "2018-06-30T00:00:10Z", "--series", "symbol=ORCL")
    assert (archived["state"], [it["id"] for it in archived["buckets"]]) == ("archived", [1])
    assert archived["buckets"][0]["series"] == {"symbol": "ORCL"}


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("at", ["2018-07-01T00:00:10Z", "2018-07-01T00:00:50Z"])
def test_an_instant_beside_the_readings_of_its_bucket(place: Place, at: str) -> None:
    """Of slots, a bucket covers its minute, also where it is at the edge of its commit."""
    place.database.ticks.insert_one({"symbol": "X", "d": START + timedelta(days=1), "p": {"30": 1.5}})
    assert _said(place, "--at", at)["state"] == "live"
    assert place("rollup", "-p", "ticks").code == 0
    assert place("archive", "-p", "ticks", "--since", "2018-07-01", "--until", "2018-07-02").code == 0
    assert [it["state"] for it in _said(place, "--at", at)["buckets"]] == ["archived"]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("at", ["2018-06-30T12:00:00Z", "1970-01-01", "9999-12-31T23:59:59Z"])
def test_an_instant_without_any(untouched: Place, at: str) -> None:
    said = _said(untouched, "--at", at)
    assert (said["state"], said["buckets"], said["rule"]) == ("gap", [], None)


@pytest.mark.proof
def test_in_the_last_year_there_is_no_later_one(place: Place) -> None:
    last, kept = "9999-12-31T23:59:59Z", 'hourly = "365d"\narchive = "400d"\n'
    lines = 'sparse_ok = true\nlatest = "2d"'
    place.write_config(POLICIES.replace("sparse_ok = true", lines).replace('hourly = "365d"\n', kept))
    for verb in ("check", "plan", "run", "audit"):
        assert place(verb, "-p", "ticks", now=last).code == 0, verb
    said = _said(place, "--at", "2018-06-30T00:00:10Z", now=last)
    assert said["buckets"][0]["next"] == {"action": "expire", "at": last.replace("Z", ".999Z")}


@pytest.mark.proof
def test_any_id_can_be_written(place: Place) -> None:
    written = [
        "4711", "1.5", '"a text"', '{"$uuid": "00000000-0000-0000-0000-000000000004"}',
        '{"$date": "2018-06-30T00:00:00Z"}', '{"s": 1, "n": {"$numberLong": "2"}}',
        '{"$numberDecimal": "1.10"}', OID,
    ]  # fmt: skip
    for number, identity in enumerate(written):
        told = json_util.loads(identity, json_options=json_util.CANONICAL_JSON_OPTIONS)
        value = Binary.from_uuid(told) if isinstance(told, UUID) else told
        place.database.ticks.insert_one({"_id": value, "symbol": f"X{number}", "d": START, "p": {"0": 1.5}})
        assert _said(place, "--id", identity)["buckets"][0]["series"] == {"symbol": f"X{number}"}
    place("run", "-p", "ticks")
    for identity in written:
        said = _said(place, "--id", identity)
        assert said["state"] == "archived", identity
        told, written_back = (
            json_util.loads(it, json_options=json_util.CANONICAL_JSON_OPTIONS)
            for it in (identity, json.dumps(said["buckets"][0]["id"]))
        )
        assert (type(told), told) == (type(written_back), written_back), identity


@after("run")
def test_an_unknown_one(place: Place) -> None:
    said = _said(place, "--id", OID)
    assert (said["state"], said["rule"], said["history"]) == ("unknown", None, [])
    assert said["searched"] == {"read": 1, "commits": 1}
    assert "no bucket is known there: unknown" in place("explain", "-p", "ticks", "--id", OID).out
    assert _said(place, "--id", OID, policy="iot")["state"] == "unknown"


def test_what_people_see(place: Place) -> None:
    bucket = _first(place, "ticks")
    place("run", "-p", "ticks")
    lines = place("explain", "-p", "ticks", "--id", bucket).out.splitlines()
    assert lines[0] == f"ticks: _id {bucket}, symbol=MDB"
    assert lines[1] == "  holds  60 readings, 2018-06-30T00:00:00Z to 2018-06-30T00:00:59Z"
    assert lines[2:5] == [
        "  is     in the offline archive",
        '  rule   archive.to = "offline": it stays there',
        "  next   nothing",
    ]
    assert lines[5].startswith("  was    2018-09-01T00:00:00Z  copied, in commit 2018-06-30_2018-06-30_f0")


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        ([], ["--id JSON or --at INSTANT"]),
        (["--id", "abc"], ["--id abc", "not valid Extended JSON", "4711"]),
        (["--id", '{"$oid": "x"}'], ["--id", "not a valid ObjectId"]),
        (["--id", "[" * 5000], ["not valid Extended JSON"]),
        (["--id", "9" * 400], ["not valid Extended JSON"]),
        (["--id", "1", "--series", "symbol=MDB"], ["--id and --series"]),
        (["--at", "noon"], ["--at", "'noon'"]),
        (["--at", "2018-06-30", "--series", "symbol"], ["--series symbol", "FIELD=VALUE"]),
    ],
    ids=[
        "nothing",
        "not valid Extended JSON",
        "no ObjectId",
        "deep",
        "large",
        "both",
        "no instant",
        "no pair",
    ],
)
def test_bad_input_is_refused(untouched: Place, arguments: list[str], fragments: list[str]) -> None:
    ran = untouched("explain", "-p", "ticks", *arguments)
    assert (ran.code, ran.out) == (2, "")
    for fragment in fragments:
        assert fragment in ran.err
    assert "Traceback" not in ran.err


def test_an_unknown_series_field_is_refused(untouched: Place) -> None:
    ran = untouched("explain", "-p", "ticks", "--at", "2018-06-30", "--series", "sym=MDB")
    assert ran.code == 2
    assert "--series sym: policy ticks has no such series field; it has symbol" in ran.err


@after("run")
def test_it_changes_nothing(place: Place) -> None:
    before = place.everything()
    place("explain", "--at", iso(datetime(2018, 6, 30, tzinfo=UTC)))
    place("coverage")
    assert place.everything() == before
