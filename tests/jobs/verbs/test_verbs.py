"""The verbs as a user meets them: exit codes, JSON and tables, on a real mongod and a real directory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bucketwise.jobs.core import lease, ledger
from bucketwise.jobs.core.lease import Lease
from bucketwise.rollups import progress
from tests.jobs.place import AT_ONCE, MINUTES, POLICIES, START, Place
from tests.jobs.states import after

ARCHIVE_KEYS = {"to", "buckets", "readings", "parts", "bytes", "deleted", "left", "quarantined"}
HOUR = timedelta(hours=1)


def break_one(place: Place) -> Any:
    """A bucket that breaks its model."""
    return place.database.ticks.insert_one({"symbol": "MDB", "d": START, "p": {"60": 1.5}}).inserted_id


OVERFLOW = """
[policies.ticks.overflow]
flag_field = "more"
collection = "ticks_more"
ref_field = "of"
samples_field = "p"

[policies.iot]"""


@pytest.mark.proof
def test_run_does_it_all_and_a_second_run_nothing(place: Place) -> None:
    before = [document["_id"] for document in place.database.ticks.find()]
    first = place("run", "--json")
    assert first.code == 0
    assert first.json["command"] == "run"
    assert first.json["now"] == "2018-09-01T00:00:00Z"
    ticks = first.policy("ticks")
    assert ticks["rollup"]["hourly"] == {"written": 3, "unchanged": 0}
    assert ticks["rollup"]["daily"] == {"written": 1, "unchanged": 0}
    assert ticks["rollup"]["readings"] == MINUTES * 60
    assert ticks["archive"]["to"] == "offline"
    assert set(ticks["archive"]) >= ARCHIVE_KEYS
    assert ticks["archive"]["buckets"] == ticks["archive"]["deleted"] == len(before)
    assert ticks["archive"]["readings"] == MINUTES * 60
    assert ticks["archive"]["parts"] == 1
    assert ticks["archive"]["bytes"] > 0
    assert (ticks["archive"]["left"], ticks["archive"]["quarantined"]) == (0, 0)
    none = {"hourly": 0, "daily": 0}
    assert ticks["expiry"] == {**none, "waiting": none}
    iot = first.policy("iot")
    assert iot["rollup"]["daily"] == {"written": 0, "unchanged": 0}
    assert (iot["archive"]["to"], iot["archive"]["deleted"]) == ("online", MINUTES // 10)
    assert place.database.ticks.count_documents({}) == place.database.iot.count_documents({}) == 0
    assert place.database.iot_archive.count_documents({}) == MINUTES // 10

    stood = place.everything()
    second = place("run", "--json")
    assert second.code == 0
    for name in ("ticks", "iot"):
        result = second.policy(name)
        assert result["rollup"]["hourly"]["written"] == result["rollup"]["daily"]["written"] == 0
        for key in ("buckets", "readings", "parts", "bytes", "deleted"):
            assert result["archive"][key] == 0
    now_there = place.everything()
    for name in (lease.COLLECTION, ledger.COLLECTION, progress.COLLECTION):
        assert stood.pop(name) != now_there.pop(name)
    assert now_there == stood


@pytest.mark.proof
def test_what_only_looks_changes_nothing(place: Place) -> None:
    break_one(place)
    for when in ("before", "after"):
        stood = place.everything()
        for verb in (["plan"], ["archive", "--dry-run"], ["check"], ["verify"], ["audit"], ["status"]):
            ran = place(*verb, "--json")
            assert ran.code in (0, 3, 4), (when, ran)
            now_there = place.everything()
            noted = [len(it.pop(ledger.COLLECTION, ())) for it in (stood, now_there)]
            assert noted[1] - noted[0] == (2 if verb[0] in ledger.LOOKS else 0)
            assert now_there == stood, (when, verb)
            stood = place.everything()
        if when == "before":
            assert place("run", "-p", "iot").code == 0


@pytest.mark.proof
def test_summaries_past_their_time_go_last(place: Place) -> None:
    place.write_config(AT_ONCE)
    place("run")
    assert place.database.ticks_hourly.count_documents({}) == 3
    ran = place("run", "--json", now="2019-07-02")
    assert ran.policy("ticks")["expiry"]["hourly"] == 3
    assert place.database.ticks_hourly.count_documents({}) == 0
    assert place.database.ticks_daily.count_documents({}) == 1
    again = place("run", "--json", now="2019-07-02").policy("ticks")
    assert again["rollup"]["hourly"]["written"] == again["expiry"]["hourly"] == 0


@pytest.mark.proof
def test_the_plan_is_what_run_then_does(place: Place) -> None:
    break_one(place)
    plan, run = place("plan", "--json"), place("run", "--json")
    assert (plan.code, run.code) == (3, 3)
    for name in ("ticks", "iot"):
        planned, done = plan.policy(name), run.policy(name)
        assert planned["rollup"] == done["rollup"]
        for key in ("to", "buckets", "readings", "quarantined", "quarantine"):
            assert planned["archive"][key] == done["archive"][key], key
        assert planned["archive"]["buckets"] > 0


@pytest.mark.proof
def test_rollup_alone_and_archive_alone(place: Place) -> None:
    refused = place("archive", "--json", "-p", "ticks").policy("ticks")
    assert refused["buckets"] == 0
    assert refused["left"] == MINUTES
    assert refused["reasons"] == [{"reason": "its windows are not rolled up yet", "count": MINUTES}]
    rolled = place("rollup", "--json", "-p", "ticks").policy("ticks")
    assert rolled["hourly"] == {"written": 3, "unchanged": 0}
    assert rolled["daily"] == {"written": 1, "unchanged": 0}
    assert rolled["readings"] == MINUTES * 60
    archived = place("archive", "--json", "-p", "ticks").policy("ticks")
    assert set(archived) >= ARCHIVE_KEYS
    assert archived["deleted"] == MINUTES


@after("rollup")
def test_a_range_is_recomputed_or_archived_alone(place: Place) -> None:
    first_hour = ("--since", "2018-06-30", "--until", "2018-06-30T01:00:00+00:00")
    again = place("rollup", "--json", "-p", "ticks", *first_hour).policy("ticks")
    assert again["hourly"] == {"written": 0, "unchanged": 1}
    archived = place("archive", "--json", "-p", "ticks", *first_hour).policy("ticks")
    assert archived["deleted"] == 60
    assert place.database.ticks.find_one(sort=[("d", 1)])["d"] == START + HOUR  # type: ignore[index]


@after("rollup")
def test_a_late_reading_is_in_the_summary_before_it_is_archived(place: Place) -> None:
    late = {"symbol": "MDB", "d": START + timedelta(minutes=5, days=-3), "p": {"0": 99.0}}
    place.database.ticks.insert_one(late)
    archived = place("archive", "--json", "-p", "ticks").policy("ticks")
    assert archived["deleted"] == MINUTES + 1
    (summary,) = place.database.ticks_daily.find({"start": START - timedelta(days=3)})
    assert (summary["count"], summary["p"]["sum"]) == (1, 99.0)


@pytest.mark.proof
def test_what_is_quarantined_is_told_and_ends_with_3(place: Place) -> None:
    broken = break_one(place)
    ran = place("run", "--json", "-p", "ticks")
    assert ran.code == 3
    archive = ran.policy("ticks")["archive"]
    assert archive["quarantined"] == 1
    (told,) = archive["quarantine"]
    assert told["id"] == {"$oid": str(broken)}
    assert told["field"] == "p.60"
    assert "60" in told["reason"]
    assert [document["_id"] for document in place.database.ticks.find()] == [broken]
    plain = place("run", "-p", "ticks")
    assert plain.code == 3
    assert str(broken) in plain.out
    assert "p.60" in plain.out
    assert place("status", "--json", "-p", "ticks").policy("ticks")["quarantined"] == 1


@pytest.mark.proof
def test_of_two_policies_one_may_fail(place: Place) -> None:
    place.database.command("create", "ticks_hourly", viewOn="iot", pipeline=[])
    ran = place("run", "--json")
    assert ran.code == 1
    ticks, iot = ran.policy("ticks"), ran.policy("iot")
    assert ticks["exit_code"] == 1
    assert "view" in ticks["error"]
    assert "Traceback" not in ran.err
    assert iot["exit_code"] == 0
    assert iot["archive"]["deleted"] == MINUTES // 10
    assert place.database.ticks.count_documents({}) == MINUTES
    (entry,) = place.database[ledger.COLLECTION].find({"policy": "ticks"})
    assert (entry["exit_code"], entry["outcome"], entry["error"]) == (1, "failed", ticks["error"])
    plain = place("run")
    assert f"bucketwise: policy ticks: {ticks['error']}" in plain.err


def test_a_held_lease_ends_with_11_and_keeps_no_other_policy(place: Place) -> None:
    with Lease(place.database, "ticks"):
        ran = place("run", "--json")
    assert ran.code == 11
    assert "another run holds the lease" in ran.policy("ticks")["error"]
    assert set(ran.policy("ticks")) == {"policy", "exit_code", "error"}
    assert ran.policy("iot")["exit_code"] == 0
    assert place.database.ticks.count_documents({}) == MINUTES
    assert place.database[ledger.COLLECTION].count_documents({"policy": "ticks"}) == 0


@after("run")
def test_the_ledger_says_what_happened(place: Place) -> None:
    (entry,) = place.database[ledger.COLLECTION].find({"policy": "ticks"})
    assert entry["verb"] == "run"
    assert (entry["exit_code"], entry["outcome"], entry["error"]) == (0, "done", None)
    assert entry["started"] <= entry["ended"]
    assert entry["now"] == datetime(2018, 9, 1, tzinfo=UTC)
    assert entry["counts"]["archive"]["deleted"] == MINUTES
    assert entry["fence"] == 1
    status = place("status", "--json").policy("ticks")
    (run,) = status["last_runs"]
    assert (run["verb"], run["outcome"], run["exit_code"]) == ("run", "done", 0)
    assert status["rolled_up_through"] == "2018-08-31T00:00:00Z"
    assert status["archived_through"] == "2018-07-01T00:00:00Z"
    assert status["waiting"] == 0
    table = place("status").out
    assert "2018-08-31T00:00:00Z" in table


def test_status_before_anything_ran(place: Place) -> None:
    status = place("status", "--json").policy("ticks")
    assert status["rolled_up_through"] is None
    assert status["archived_through"] is None
    assert status["waiting"] == MINUTES
    assert status["last_runs"] == []


@after("run")
def test_verify_ends_with_5_where_a_part_is_damaged(place: Place) -> None:
    sound = place("verify", "--json").policy("ticks")
    assert (sound["parts"], sound["readings"], sound["bad"]) == (1, MINUTES * 60, 0)
    (part,) = place.folder.rglob("data/*/*.parquet")
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.chmod(0o644)
    part.write_bytes(data)
    ran = place("verify", "--json")
    assert ran.code == 5
    assert ran.policy("ticks")["bad"] == 1
    assert part.name in ran.policy("ticks")["damage"][0]["place"]
    assert ran.policy("iot")["exit_code"] == 0
    assert part.name in place("verify").out


def test_audit_ends_with_4_until_the_policy_is_kept(place: Place) -> None:
    ran = place("audit", "--json", "--html", "audit.html")
    assert ran.code == 4
    findings = ran.policy("ticks")["findings"]
    assert all(set(it) == {"code", "policy", "place", "severity", "message", "remedy"} for it in findings)
    assert {"overdue", "not-rolled-up"} <= {it["code"] for it in findings}
    page = (place.folder / "audit.html").read_text()
    assert "2 of 2 policies not kept" in page
    assert "overdue" in page
    place("run")
    kept = place("audit", "--json")
    assert kept.code == 0
    assert kept.policy("ticks")["findings"] == []


@pytest.mark.proof
def test_restore_brings_back_what_was(place: Place) -> None:
    before = place.everything()["ticks"]
    place("run")
    ran = place("restore", "--json", "-p", "ticks", "--to", "back", "--series", "symbol=MDB", now=None)
    assert ran.code == 0
    assert {"buckets": MINUTES, "readings": MINUTES * 60}.items() <= ran.policy("ticks").items()
    assert place.everything()["back"] == before
    hour = ("--since", "2018-06-30T01:00Z", "--until", "2018-06-30T02:00Z")
    part = place("restore", "--json", "-p", "ticks", "--to", "hour", *hour, now=None).policy("ticks")
    assert (part["buckets"], part["readings"]) == (60, 3600)
    wrong = place("restore", "--json", "-p", "ticks", "--to", "x", "--series", "symbl=X", now=None)
    assert wrong.code == 2
    assert "symbl" in wrong.policy("ticks")["error"]


@pytest.mark.proof
def test_tables_are_for_people(place: Place) -> None:
    ran = place("run")
    assert ran.code == 0
    assert "Roll-up" in ran.out
    assert f"{MINUTES * 60:,}" in ran.out
    assert "done" in ran.out


@pytest.mark.proof
def test_where_all_is_well_quiet_prints_nothing(place: Place) -> None:
    def quietly(*arguments: str) -> tuple[int, str, str]:
        ran = place(*arguments, "-q")
        return ran.code, ran.out, ran.err

    place("pause", "-p", "iot", "--reason", "a move")
    code, out, err = quietly("run")
    assert (code, out.count("\n"), "iot: paused since" in out, err) == (0, 1, True, "")
    place("resume")
    for verb in ("check", "run", "rollup", "archive", "verify", "drill", "audit"):
        assert quietly(verb) == (0, "", ""), verb
    assert "a run would find nothing to do" in quietly("plan")[1]
    assert "a run would find nothing to do" in quietly("archive", "--dry-run")[1]
    assert "no hold stands" in quietly("hold", "list")[1]
    # A bucket that breaks its model is left: everything is told.
    place.database.iot.insert_one({"at": "never", "sensor": 7, "t": 1})
    place.database.iot.insert_one({"at": START + timedelta(hours=4), "t": 1})
    code, out, _ = quietly("run", "-p", "iot")
    assert code == 3
    assert "quarantined" in out
    assert "1 needs attention" in out


@pytest.mark.proof
def test_progress_is_told_unless_quiet(place: Place) -> None:
    ran = place.command("run", "--json", "--now", "2018-09-01", cwd=place.folder, MONGODB_URI=place.uri)
    assert ran.json["exit_code"] == 0
    assert f"ticks: archive: {MINUTES * 60:,} " in ran.err or f"{MINUTES * 60:,} archived readings" in ran.err
    assert ran.err.splitlines()[0] == "[1/2] ticks: rollup"


def test_the_store_s_failure_is_the_policy_s(place: Place) -> None:
    (place.folder / "store").rmdir()
    (place.folder / "store").write_text("no directory")
    ran = place("run", "--json")
    assert ran.code == 1
    assert "store" in ran.policy("ticks")["error"]
    assert ran.policy("iot")["exit_code"] == 0
    assert place.database.ticks.count_documents({}) == MINUTES
    checked = place("check", "--json")
    assert checked.code == 1
    (finding,) = [it for it in checked.json["findings"] if it["code"] == "store"]
    assert finding["severity"] == "error"


def test_no_secret_is_written_anywhere(place: Place, tmp_path: Path) -> None:
    """The URI names a user that the server does not know: the run fails at its first command."""
    host = place.uri.removeprefix("mongodb://")
    uri = f"mongodb://me:hunter2@{host}&authSource=admin"
    for verb in (["run"], ["check", "--json"], ["status"], ["restore", "--to", "x", "--json"]):
        ran = place.command(*verb, "-p", "ticks", cwd=tmp_path, MONGODB_URI=uri)
        assert ran.code == 1
        assert "hunter2" not in ran.out + ran.err
        assert "Authentication failed" in " ".join((ran.out + ran.err).split())
        assert "Traceback" not in ran.err


@pytest.mark.proof
@after("run")
def test_audit_computes_every_summary_anew_however_old(place: Place) -> None:
    for how in ("gone", "another"):
        assert place("audit").code == 0
        if how == "gone":
            place.database.ticks_daily.delete_one({})
        else:
            place.database.ticks_daily.update_one({}, {"$inc": {"p.sum": 1.0}})
        ran = place("audit", "--json")
        assert ran.code == 4
        found = [(it["code"], it["place"]) for it in ran.policy("ticks")["findings"]]
        missing = [("summaries-missing", "ticks_daily")] if how == "gone" else []
        assert found == [("not-rolled-up", "ticks_daily"), *missing]
        place("rollup", "--since", "2018-06-30", "--until", "2018-07-01")
    assert place("audit").code == 0
    assert place("run").code == 0
    assert place("audit").code == 0


@pytest.mark.proof
def test_audit_finds_no_fault_with_summaries_that_have_expired(place: Place) -> None:
    """Also where `retain` has become longer since, or what expired did so within the slack."""
    place.write_config(POLICIES.replace('"365d"', '"62d"'))
    now = (START + timedelta(days=62, hours=1, minutes=1)).isoformat()
    place("run", now=now)
    assert place.database.ticks_hourly.count_documents({}) == MINUTES // 60 - 1
    assert place("audit", now=now).code == 0
    place.write_config(POLICIES)
    assert place("audit", now=now).code == 0


@pytest.mark.proof
def test_audit_finds_overflow_of_no_live_bucket(place: Place) -> None:
    place.write_config(POLICIES.replace("\n[policies.iot]", OVERFLOW))
    bucket = place.database.ticks.find_one()
    assert bucket is not None
    place.database.ticks_more.create_index("of")
    place("run")
    assert place("audit").code == 0
    place.database.ticks_more.insert_one({"_id": "late", "of": bucket["_id"], "p": {"7": 1.5}})
    ran = place("audit", "--json")
    assert ran.code == 4
    (finding,) = ran.policy("ticks")["findings"]
    assert finding["code"] == "overflow-orphaned"
    assert finding["place"] == 'ticks_more, _id "late"'


@pytest.mark.proof
def test_audit_finds_no_fault_with_overflow_of_a_bucket_that_was_restored_elsewhere(place: Place) -> None:
    place.write_config(POLICIES.replace("\n[policies.iot]", OVERFLOW))
    bucket = place.database.ticks.find_one_and_update({"p.30": {"$exists": True}}, {"$set": {"more": True}})
    assert bucket is not None
    place.database.ticks.update_one({"_id": bucket["_id"]}, {"$unset": {"p.30": 1}})
    place.database.ticks_more.insert_one({"_id": 1, "of": bucket["_id"], "p": {"30": 1.5}})
    assert place("run").code == 0
    assert place.database.ticks_more.count_documents({}) == 0
    assert place("restore", "-p", "ticks", "--to", "elsewhere").code == 0
    assert place.database.ticks_more.count_documents({}) == 1
    assert place("audit").code == 0


@after("rollup")
def test_audit_finds_summaries_whose_readings_are_nowhere(place: Place) -> None:
    place.database.iot.delete_many({})
    ran = place("audit", "-p", "iot", "--json")
    assert ran.code == 4
    (finding,) = ran.policy("iot")["findings"]
    assert (finding["code"], finding["place"]) == ("readings-gone", "iot")


@pytest.mark.parametrize("words", ["advise t", "remodel t", "init {uri} t"])
def test_the_shell_completes_collections(untouched: Place, words: str) -> None:
    """Of the database of the policy file, or of the URI that is typed."""
    base, _, options = untouched.uri.partition("/?")
    typed = f"bucketwise {words.format(uri=f'{base}/{untouched.database.name}?{options}')}"
    asked = {
        "COMP_WORDS": typed,
        "COMP_CWORD": str(typed.count(" ")),
        "_BUCKETWISE_COMPLETE": "complete_bash",
    }
    told = untouched.command(cwd=untouched.folder, MONGODB_URI=untouched.uri, **asked)
    assert told.out.split() == ["ticks"]
    elsewhere = untouched.command(cwd=untouched.folder, MONGODB_URI="mongodb://127.0.0.1:1", **asked)
    assert elsewhere.err == ""
