"""Cold storage classes through the command line: parts move once their originals are gone, are thawed, and
are read again."""

from __future__ import annotations

import json
import signal
from datetime import timedelta

import pytest

from tests.jobs.cold.chilled import AFTER_180, CREDENTIALS, DAY_AFTER, GLACIER, Chilled, thaws_after
from tests.jobs.command import started
from tests.jobs.place import MINUTES, NOW, POLICIES, START

RANGE = ("-p", "ticks", "--since", "2018-06-30", "--until", "2018-07-01")


@pytest.mark.proof
def test_parts_move_once_originals_are_deleted_and_compaction_has_looked_at_them(chilled: Chilled) -> None:
    chilled.write_config(GLACIER)
    ran = chilled("run", "--json")
    assert ran.code == 0, ran
    assert chilled.place.database.ticks.count_documents({}) == 0
    assert "classes" not in ran.policy("ticks")
    assert chilled.classes() == {"data": {"STANDARD"}, "meta": {"STANDARD"}}
    would = chilled("plan", "--json", now=DAY_AFTER).policy("ticks")
    ran = chilled("run", "--json", now=DAY_AFTER)
    assert ran.code == 0, ran
    told = ran.policy("ticks")["classes"]
    assert (told["commits"], told["parts"], told["to"]) == (1, 1, {"GLACIER": 1})
    assert told["bytes"] > 0
    assert chilled.classes() == {"data": {"GLACIER"}, "meta": {"STANDARD"}}
    assert "classes" not in chilled("run", "--json", now=DAY_AFTER).policy("ticks")
    (commit,) = chilled("commits", "-p", "ticks", "--full", "--json").policy("ticks")["commits"]
    assert commit["storage_class"] == "GLACIER"
    assert would.get("classes") is None  # as before compaction has looked at them


def test_cold_parts_are_thawed_and_read(chilled: Chilled) -> None:
    chilled.write_config(AFTER_180)
    chilled("run")
    assert "classes" not in chilled("run", "--json", now=DAY_AFTER).policy("ticks")
    assert "classes" in chilled("run", "--json", now="2018-12-28T00:00:00Z").policy("ticks")
    assert chilled.classes()["data"] == {"DEEP_ARCHIVE"}
    back = ("restore", "-p", "ticks", "--to", "back")
    ran = chilled(*back, "--json")
    command = "bucketwise thaw -p ticks --since 2018-06-30 --until 2018-07-01"
    assert ran.code == 1, ran
    assert command in ran.json["policies"][0]["error"]
    assert chilled.place.database.back.count_documents({}) == 0
    for verb in (("readings", *RANGE), ("query", "SELECT count(*) FROM ticks", "--json")):
        ran = chilled(*verb)
        assert (ran.code, command in ran.err + ran.out) == (1, True), ran
        assert "Traceback" not in ran.err
    ran = chilled("verify", "--json")
    (cold,) = ran.policy("ticks")["cold"]
    assert (ran.code, cold["parts"], cold["proven_at"]) == (0, 1, "2018-09-01T00:00:00Z"), ran
    ran = chilled("drill", "-p", "ticks", "--json")
    assert (ran.code, ran.policy("ticks")["days"]) == (0, 0), ran
    ran = chilled("audit", "-p", "ticks", "--json", now="2018-12-28T00:00:00Z")
    assert ran.policy("ticks").get("error") is None
    assert [it for it in ran.policy("ticks")["findings"] if it["severity"] == "error"] == [], ran
    assert ran.code == 0
    ran = chilled("thaw", *RANGE, "--json")
    told = ran.policy("ticks")
    assert (ran.code, told["asked"], told["ready"]) == (3, 1, 0), ran
    assert told["ready_at"] == "2018-09-01T12:00:00Z"
    told = chilled("thaw", *RANGE, "--json").policy("ticks")
    assert (told["asked"], told["waiting"], told["ready"]) == (0, 1, 0)
    ran = chilled("thaw", *RANGE, "--json")
    told = ran.policy("ticks")
    assert (ran.code, told["asked"], told["ready"], told["ready_at"]) == (0, 0, 1, None), ran
    assert chilled(*back).code == 0
    assert chilled.place.database.back.count_documents({}) == MINUTES


def test_a_late_reading_into_a_cold_window_is_counted_beside_its_states(chilled: Chilled) -> None:
    chilled.freeze()
    database = chilled.place.database
    late = [("MDB", START, {"5": 99.0}), ("MDB", START + timedelta(hours=5), {"0": 1.0})]
    for symbol, at, prices in (*late, ("LATE", START, {"0": 7.0})):
        database.ticks.insert_one({"symbol": symbol, "d": at, "p": prices})
        ran = chilled("run", "--json", now=DAY_AFTER)
        assert ran.code == 0, ran
        assert database.ticks.count_documents({}) == 0
    (first,) = database.ticks_hourly.find({"symbol": "MDB", "start": START})
    (day,) = database.ticks_daily.find({"symbol": "MDB"})
    assert (first["count"], first["p"]["max"], first["p"]["min"]) == (60 * 60 + 1, 99.0, 50.0)
    assert (day["count"], day["p"]["min"], day["p"]["max"]) == (60 * MINUTES + 2, 1.0, 99.0)
    assert database.ticks_daily.count_documents({"symbol": "LATE"}) == 1
    for _ in range(2):  # by the states, then by the readings
        ran = chilled("rollup", *RANGE, "--json", now=DAY_AFTER)
        told = ran.policy("ticks")
        assert (ran.code, told["hourly"]["written"], told["daily"]["written"]) == (0, 0, 0), ran
        while chilled("thaw", *RANGE).code:
            pass
    assert chilled("verify", "-p", "ticks").code == 0


@pytest.mark.proof
def test_states_lie_encrypted_in_each_copy_and_go_with_their_commit(chilled: Chilled) -> None:
    (chilled.place.folder / "b").mkdir()
    copy = f'[[store.copies]]\nname = "b"\nurl = "{(chilled.place.folder / "b").as_uri()}"\n'
    key = f'encryption_key = "{"k" * 32}"\n'
    chilled.freeze(more=key + copy, workers=2)
    (states,) = (chilled.place.folder / "b").rglob("*.states.parquet")
    assert states.read_bytes().startswith(b"PARE")
    chilled.delete_states()
    database = chilled.place.database
    for path in (chilled.place.folder / "b").rglob("data/**/*.parquet"):
        path.unlink()  # what is cold is read from a copy first
    database.ticks.insert_one({"symbol": "MDB", "d": START, "p": {"5": 99.0}})
    ran = chilled("run", "--json", "-p", "ticks", now=DAY_AFTER)
    assert database.ticks.count_documents({}) == 0, ran
    (first,) = database.ticks_hourly.find({"start": START})
    assert first["count"] == 60 * 60 + 1
    while chilled("thaw", *RANGE).code:
        pass
    assert chilled("repair", "--json").code == 0
    assert chilled("verify", "-p", "ticks").code == 0
    erase = ("erase", "-p", "ticks", "--series", "symbol=MDB", "--reason", "asked for", "--confirm", "ticks")
    assert chilled(*erase, now=DAY_AFTER).code == 0
    assert list((chilled.place.folder / "b").rglob("*.parquet")) == []


@pytest.mark.proof
@pytest.mark.parametrize(
    "what",
    ["a bucket that came back", "other percentiles", "one of a time counts", "lost states", "cold states"],
)
def test_a_late_reading_waits_for_a_thaw_where_states_do_not_tell(chilled: Chilled, what: str) -> None:
    database = chilled.place.database
    came_back = database.ticks.find_one({"d": START + timedelta(minutes=1)})
    assert came_back is not None
    policies = POLICIES.replace('slot = "second"', 'slot = "second"\nduplicates = "last"')
    chilled.freeze(policies if what == "one of a time counts" else POLICIES)
    before = list(database.ticks_hourly.find())
    if what == "a bucket that came back":
        database.ticks.insert_one(came_back)
    elif what == "other percentiles":
        policies = POLICIES.replace('daily = "ticks_daily"', 'daily = "ticks_daily"\npercentiles = [50]')
        chilled.write_config(GLACIER, policies)
    elif what == "lost states":
        chilled.delete_states()
    elif what == "cold states":
        chilled.freeze_states()
    database.ticks.insert_one({"symbol": "MDB", "d": START, "p": {"5": 99.0}})
    ran = chilled("run", "--json", now=DAY_AFTER)
    assert ran.code == 3, ran
    (left,) = ran.policy("ticks")["rollup"]["unreadable"]
    assert "bucketwise thaw -p ticks --since 2018-06-30 --until 2018-07-01" in left["reason"]
    assert database.ticks.count_documents({}) == 1 + (what == "a bucket that came back")
    assert list(database.ticks_hourly.find()) == before
    while chilled("thaw", *RANGE).code:
        pass
    ran = chilled("run", "--json", now=DAY_AFTER)
    assert ran.code == 0, ran
    assert database.ticks.count_documents({}) == 0
    (first,) = database.ticks_hourly.find({"start": START})
    assert first["count"] == 60 * 60 + (what != "one of a time counts")


@pytest.mark.proof
def test_a_cold_part_that_is_put_back_moves_again(chilled: Chilled) -> None:
    (chilled.place.folder / "b").mkdir()
    copy = f'[[store.copies]]\nname = "b"\nurl = "{(chilled.place.folder / "b").as_uri()}"\n'
    chilled.write_config(GLACIER, more=copy)
    chilled("run")
    assert "classes" in chilled("run", "--json", now=DAY_AFTER).policy("ticks")
    chilled.delete_parts()
    assert chilled("repair", "--json").policy("ticks")["repaired"] == 1
    assert chilled.classes()["data"] == {"STANDARD"}
    ran = chilled("drill", "-p", "ticks", "--json", now=DAY_AFTER)
    assert (ran.code, ran.policy("ticks")["days"]) == (0, 1), ran
    ran = chilled("run", "--json", now=DAY_AFTER)
    assert (ran.code, ran.policy("ticks")["classes"]["parts"]) == (0, 1), ran
    assert chilled.classes()["data"] == {"GLACIER"}
    assert "classes" not in chilled("run", "--json", now=DAY_AFTER).policy("ticks")


@pytest.mark.proof
def test_a_cold_copy_is_thawed_where_the_store_has_lost_its_parts(chilled: Chilled) -> None:
    place, cold = chilled.place, f'endpoint_url = "{chilled.store.endpoint_url}"\nregion = "us-east-1"\n'
    copy = f'[[store.copies]]\nname = "b"\nurl = "{chilled.store.url}"\n{cold}storage_class = "GLACIER"\n'
    place.write_config(copy + POLICIES)
    chilled("run")
    assert "classes" in chilled("run", "--json", now=DAY_AFTER).policy("ticks")
    assert chilled.classes()["data"] == {"GLACIER"}
    next((place.folder / "store").rglob("data/**/*.parquet")).unlink()
    ran = chilled("repair", "--json")
    assert ran.code == 1 and "bucketwise thaw" in ran.json["policies"][0]["error"], ran
    told = chilled("thaw", *RANGE, "--json").policy("ticks")
    assert (told["asked"], told["ready"], told["classes"]) == (1, 0, {"GLACIER": 1})
    while chilled("thaw", *RANGE).code:
        pass
    assert chilled("repair", "--json").policy("ticks")["repaired"] == 1
    assert chilled("verify", "-p", "ticks").code == 0


@pytest.mark.proof
def test_a_part_that_is_missing_can_not_be_thawed(chilled: Chilled) -> None:
    chilled.freeze()
    chilled.delete_parts()
    ran = chilled("thaw", *RANGE, "--json")
    assert ran.code == 5, ran
    assert "missing" in ran.json["policies"][0]["error"]


@pytest.mark.proof
def test_an_erasure_names_what_has_to_be_thawed_and_ends_once_it_is(chilled: Chilled) -> None:
    chilled.write_config(GLACIER)
    chilled("run")
    chilled("run", now=DAY_AFTER)
    assert chilled.classes()["data"] == {"GLACIER"}
    database = chilled.place.database
    database.ticks.insert_one({"symbol": "MDB", "d": START, "p": {"5": 99.0}})
    erase = ("erase", "-p", "ticks", "--series", "symbol=MDB", "--reason", "asked for", "--json")
    ran = chilled(*erase, now=DAY_AFTER)
    assert ran.code == 0, ran
    assert [it["found"] for it in ran.policy("ticks")["remaining"] if "thawed" in it["why"]] == [True]
    ran = chilled(*erase, "--confirm", "ticks", now=DAY_AFTER)
    assert ran.code == 3, ran
    assert database.ticks.count_documents({}) == database.ticks_hourly.count_documents({}) == 0
    (left, text) = (it for it in ran.policy("ticks")["remaining"] if "thawed" in it["why"])
    assert left["found"] and "bucketwise thaw -p ticks --since 2018-06-30 --until 2018-07-01" in left["why"]
    assert (text["place"], text["found"]) == (left["place"], False)
    database.ticks.insert_one({"symbol": "OTHER", "d": START, "p": {"5": 99.0}})
    ran = chilled("run", "--json", "-p", "ticks", now=DAY_AFTER)
    assert (ran.code, database.ticks_hourly.count_documents({})) == (3, 0), ran  # nothing of it comes back
    while chilled("thaw", *RANGE).code:
        pass
    ran = chilled("run", "--json", "-p", "ticks", now=DAY_AFTER)
    assert (ran.code, database.ticks_hourly.count_documents({})) == (3, 0), ran  # nor once it can be read
    (waits,) = ran.policy("ticks")["rollup"]["unreadable"]
    assert "('asked for' of 2018-09-03T00:00:00Z). Thaw it, erase again with the same" in waits["reason"]
    assert "MDB" not in json.dumps(list(database.bucketwise_receipts.find()), default=str)
    ran = chilled(*erase, "--confirm", "ticks", now=DAY_AFTER)
    assert ran.code == 0, ran
    assert ran.policy("ticks")["archived"] == MINUTES
    assert "data" not in chilled.classes()
    assert chilled("run", "-p", "ticks", now=DAY_AFTER).code == 0
    assert [it["symbol"] for it in database.ticks_hourly.find()] == ["OTHER"]


@pytest.mark.proof
def test_an_erasure_whose_range_cuts_windows_of_a_cold_commit_ends_and_these_wait(chilled: Chilled) -> None:
    database = chilled.place.database
    database.ticks.insert_one({"symbol": "KEPT", "d": START, "p": {"5": 99.0}})
    chilled.freeze()
    within = ("--since", "2018-06-30T00:10:00Z", "--until", "2018-06-30T01:10:00Z")
    erase = ("erase", "-p", "ticks", "--series", "symbol=MDB", "--reason", "asked for", *within, "--json")
    ran = chilled(*erase, "--confirm", "ticks", now=DAY_AFTER)
    assert ran.code == 3, ran
    why = [it["why"] for it in ran.policy("ticks")["remaining"] if it["place"].startswith("summaries")]
    assert len(why) == 1 and why[0].startswith("they wait: ") and "erase again with the same" in why[0]
    other = ("erase", "-p", "ticks", "--series", "symbol=NONE", "--reason", "another", "--confirm", "ticks")
    assert chilled(*other, now=DAY_AFTER).code == 0  # the first one has ended
    ran = chilled("run", "--json", "-p", "ticks", now=DAY_AFTER)
    assert (ran.code, len(ran.policy("ticks")["rollup"]["unreadable"])) == (3, 1), ran
    assert [it["symbol"] for it in database.ticks_daily.find()] == ["KEPT"]
    while chilled("thaw", *RANGE).code:
        pass
    assert chilled(*erase, "--confirm", "ticks", now=DAY_AFTER).code == 0
    assert chilled("run", "-p", "ticks", now=DAY_AFTER).code == 0
    counts = {it["symbol"]: it["count"] for it in database.ticks_daily.find()}
    assert counts == {"KEPT": 1, "MDB": 60 * (MINUTES - 60)}
    assert chilled("audit", "-p", "ticks", now=DAY_AFTER).code == 0


@pytest.mark.proof
def test_two_erasures_that_could_not_read_a_commit_are_each_waited_for(chilled: Chilled) -> None:
    """Also by what takes the place of the commit, and moves to the cold class."""
    database = chilled.place.database
    for symbol in ("KEPT", "OTHERS"):
        database.ticks.insert_one({"symbol": symbol, "d": START, "p": {"5": 99.0}})
    chilled.freeze()
    summary = list(database.ticks_hourly.find({"symbol": "KEPT"}))

    def erase(symbol: str) -> int:
        asked = ("--series", f"symbol={symbol}", "--reason", f"case {len(symbol)}", "--confirm", "ticks")
        return chilled("erase", "-p", "ticks", *asked, now=DAY_AFTER).code

    assert (erase("MDB"), erase("OTHERS")) == (3, 3)
    late = {"symbol": "KEPT", "d": START + timedelta(seconds=60), "p": {"7": 98.0}}
    database.ticks.insert_one(late)
    for symbol, waits in (("MDB", ["case 6"]), ("OTHERS", [])):
        while chilled("thaw", *RANGE).code:
            pass
        assert erase(symbol) == 0
        ran = chilled("run", "--json", "-p", "ticks", now=DAY_AFTER)
        unreadable = ran.policy("ticks")["rollup"].get("unreadable", [])
        assert (ran.code, len(unreadable)) == (3 if waits else 0, len(waits)), ran
        assert all(it in unreadable[0]["reason"] and "case 3" not in unreadable[0]["reason"] for it in waits)
        assert (list(database.ticks_hourly.find({})) == summary) == bool(waits)
        for verb in ("drill", "audit"):  # these take the summaries as they stand
            ran = chilled(verb, "--json", "-p", "ticks", now=DAY_AFTER)
            found = [it["code"] for it in ran.policy("ticks").get("findings", ())]
            assert (ran.code, "overdue" in found) in ((0, False), (4, True)), ran
    (kept,) = database.ticks_hourly.find()
    assert (kept["symbol"], kept["count"]) == ("KEPT", 2)


@pytest.mark.proof
def test_with_rules_of_several_lengths_a_cold_commit_stays_for_the_longest(chilled: Chilled) -> None:
    rule = '[[policies.ticks.rules]]\nmatch = {symbol = "OTHER*"}\nretain.archive = "120d"\n[policies.iot]'
    policies = POLICIES.replace("[policies.iot]", rule, 1)
    policies = policies.replace("[policies.ticks.retain]", '[policies.ticks.retain]\narchive = "90d"')
    chilled.write_config(GLACIER, policies)
    chilled("run")
    chilled("run", now=DAY_AFTER)
    assert chilled.classes()["data"] == {"GLACIER"}
    for now, commits in (("2018-12-10T00:00:00Z", 1), ("2019-02-01T00:00:00Z", 0)):
        for _ in range(2):
            ran = chilled("run", "--json", now=now)
            assert ran.code == 0, ran
        told = chilled("commits", "-p", "ticks", "--json", now=now).policy("ticks")["commits"]
        assert len(told) == commits, (now, told)


@pytest.mark.proof
def test_a_restore_thaws_what_it_reads_and_waits_for_it(chilled: Chilled) -> None:
    chilled.write_config(GLACIER)
    chilled("run")
    other = {"symbol": "OTHER", "d": START + timedelta(days=2), "p": {"5": 99.0}}
    chilled.place.database.ticks.insert_one(other)
    chilled("run")
    assert chilled("run", "--json", now=DAY_AFTER).policy("ticks")["classes"]["commits"] == 2
    thawing = ("restore", "-p", "ticks", "--since", "2018-06-30", "--until", "2018-07-04", "--thaw")
    ran = chilled(*thawing, "--series", "symbol=OTHER", "--to", "back", "--json")
    assert ran.code == 0, ran
    told = ran.policy("ticks")
    assert [told["thaw"][key] for key in ("asked", "ready", "parts", "waiting")] == [1, 1, 1, 0]
    assert told["buckets"] == 1
    assert chilled.place.database.back.find_one() == other
    ran = chilled(*thawing, "--to", "all", "--json")
    assert (ran.code, ran.policy("ticks")["thaw"]["asked"]) == (0, 1), ran
    assert chilled.place.database["all"].count_documents({}) == MINUTES + 1


@pytest.mark.proof
def test_a_restore_that_waits_no_longer_has_done_nothing(chilled: Chilled) -> None:
    chilled.write_config(GLACIER)
    chilled("run")
    chilled("run", now=DAY_AFTER)
    thawing = ("restore", *RANGE, "--to", "back", "--thaw")
    endless = ("restore", "-p", "ticks", "--to", "back", "--thaw")
    for wrong in (
        endless,
        (*thawing[:-1], "--days", "2"),
        (*thawing, "--dry-run"),
        (*thawing, "--wait", "x"),
    ):
        assert chilled(*wrong).code == 2, wrong
    ran = chilled("restore", *RANGE, "--to", "system.x", "--thaw", "--wait", "0s")
    assert (ran.code, "can't be restored there" in ran.err) == (2, True), ran
    ran = chilled(*thawing, "--wait", "0s", "--json")
    assert ran.code == 1, ran
    assert "0 of 1 parts can be read" in ran.json["policies"][0]["error"]
    assert chilled("thaw", *RANGE, "--json").policy("ticks")["waiting"] == 1  # it was asked for, once
    thaws_after(chilled.store, 1000)
    place = chilled.place
    with started(*thawing, "--now", NOW, cwd=place.folder, MONGODB_URI=place.uri, **CREDENTIALS) as process:
        assert process.stderr is not None
        assert any("ticks: thaw" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
    assert place.database.list_collection_names(filter={"name": "back"}) == []
    assert chilled("run", "-p", "ticks", now=DAY_AFTER).code == 0


@pytest.mark.proof
def test_a_daily_look_puts_back_what_s3_has_lost(chilled: Chilled) -> None:
    (chilled.place.folder / "b").mkdir()
    copy = f'[[store.copies]]\nname = "b"\nurl = "{(chilled.place.folder / "b").as_uri()}"\n'
    chilled.write_config("", more=copy)
    chilled("run")
    ran = chilled("run", "--json", "-p", "ticks", now=DAY_AFTER)
    assert (ran.code, ran.policy("ticks")["scrub"]["parts"]) == (0, 2), ran
    chilled.delete_parts()
    ran = chilled("run", "--json", "-p", "ticks", now="2018-09-04T00:00:00Z")
    told = ran.policy("ticks")["scrub"]
    assert (ran.code, told["repaired"], told["lost"], told["objects"][0]["source"]) == (3, 1, 0, "b"), ran
    assert chilled("verify", "-p", "ticks").code == 0
