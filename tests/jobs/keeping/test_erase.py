"""A series is erased from everything; the others stay as they were, bit for bit."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import timedelta
from typing import Any

import pytest
from bson import Decimal128, encode

from tests.jobs.place import POLICIES, START, Place
from tests.jobs.states import after
from tests.jobs.walker import in_database, in_files

SECRET = "Erika-Mustermann"
CASE = ("--reason", "case 17")
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def fill(place: Place, series: str = SECRET, minutes: int = 180, first: int = 0) -> None:
    """Ticks and temperatures of one more series, beside those that are there."""
    times = [START + MINUTE * count for count in range(first, first + minutes)]
    prices = {str(second): 90 + second / 8 for second in range(0, 60, 10)}
    place.database.ticks.insert_many({"symbol": series, "d": at, "p": prices} for at in times)
    place.database.iot.insert_many({"sensor": series, "at": at, "t": 1.5} for at in times[::10])


def erase(place: Place, *arguments: str, policy: str = "ticks", series: str = SECRET) -> Any:
    field = "symbol" if policy == "ticks" else "sensor"
    given = ("-p", policy, "--series", f"{field}={series}", *CASE, "--json")
    return place("erase", *given, *arguments)


def restored(place: Place, policy: str = "ticks") -> list[bytes]:
    """What the archive holds, by way of a restore."""
    place.database.drop_collection("back")
    ran = place("restore", "-p", policy, "--to", "back", "--json")
    assert ran.code == 0, ran
    found = sorted(encode(it) for it in place.database.back.find())
    place.database.drop_collection("back")
    return found


def summaries(place: Place, name: str) -> list[bytes]:
    return sorted(encode(it) for it in place.database[name].find() if SECRET not in str(it["_id"]))


def found(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [it for it in body["remaining"] if it["found"]]


@pytest.mark.proof
@after("run")
def test_a_series_goes_from_everywhere_and_nothing_else_does(place: Place) -> None:
    alone = restored(place), summaries(place, "ticks_hourly"), summaries(place, "ticks_daily")
    fill(place)
    assert place("run").code == 0
    assert in_files(place.folder / "store", SECRET)
    ran = erase(place, "--confirm", "ticks")
    assert ran.code == 0, ran
    body = ran.policy("ticks")
    assert (body["buckets"], body["live"], body["archived"]) == (180, 0, 180)
    assert (body["commits_rewritten"], body["summaries"]) == (1, 4)
    assert found(body) == []
    assert (restored(place), summaries(place, "ticks_hourly"), summaries(place, "ticks_daily")) == alone
    assert in_files(place.folder / "store", SECRET) == []
    assert in_database(place.database, SECRET) == ["iot_archive", "iot_hourly"]
    for verb in ("run", "verify", "audit"):
        assert place(verb, "-p", "ticks").code == 0, verb
    assert in_database(place.database, SECRET) == ["iot_archive", "iot_hourly"]


@pytest.mark.proof
@after("run")
def test_an_online_archive(place: Place) -> None:
    before = sorted(encode(it) for it in place.database.iot_archive.find())
    fill(place)
    assert place("run", "-p", "iot").code == 0
    fill(place, minutes=60, first=180)
    ran = erase(place, "--confirm", "iot", policy="iot")
    assert ran.code == 0, ran
    body = ran.policy("iot")
    assert (body["buckets"], body["live"], body["online"]) == (24, 6, 18)
    assert sorted(encode(it) for it in place.database.iot_archive.find()) == before
    assert not set(in_database(place.database, SECRET)) & {"iot", "iot_archive", "iot_hourly"}
    assert place("audit", "-p", "iot").code == 0


@pytest.mark.proof
@after(fill, "run")
def test_a_dry_run_counts_the_same_and_changes_nothing(place: Place) -> None:
    fill(place, minutes=5, first=180)
    assert place("restore", "-p", "ticks", "--series", f"symbol={SECRET}", "--to", "ticks").code == 0
    place.database.ticks.insert_one({"symbol": SECRET, "d": START, "p": {"60": 1.0}})
    assert place("rollup", "-p", "ticks").code == 3
    before = place.everything()
    for arguments in ((), ("--yes",)):
        planned = erase(place, *arguments)
        assert planned.code == 0
        assert place.everything() == before
    ran = erase(place, "--confirm", "ticks")
    counts = {key: value for key, value in ran.policy("ticks").items() if isinstance(value, int)}
    assert counts | {"dry_run": True} == {
        key: value for key, value in planned.policy("ticks").items() if isinstance(value, int)
    } | {"exit_code": counts["exit_code"]}
    assert (counts["buckets"], counts["pins"], counts["quarantine"]) == (186, 180, 1)


def test_a_commit_of_that_series_alone_is_dropped(place: Place) -> None:
    place.database.ticks.delete_many({})
    fill(place)
    assert place("run", "-p", "ticks").code == 0
    assert erase(place, "--confirm", "ticks").code == 0
    assert not list((place.folder / "store").rglob("*.parquet"))
    assert in_files(place.folder / "store", SECRET) == []
    for verb in ("verify", "run", "run", "audit"):
        assert place(verb, "-p", "ticks").code == 0, verb


@pytest.mark.proof
@after(fill, "run")
def test_a_range_leaves_what_lies_beyond_it(place: Place) -> None:
    """Its windows are made anew from what is left."""
    since, until = START + 30 * MINUTE, START + 120 * MINUTE
    given = ("--since", since.isoformat(), "--until", until.isoformat())
    ran = erase(place, *given, "--confirm", "ticks")
    assert ran.code == 0, ran
    assert ran.policy("ticks")["buckets"] == 90
    hours = list(place.database.ticks_hourly.find({"symbol": SECRET}, sort=[("start", 1)]))
    assert [(it["start"], it["count"]) for it in hours] == [(START, 180), (START + 120 * MINUTE, 360)]
    (day,) = place.database.ticks_daily.find({"symbol": SECRET})
    assert day["count"] == 540
    for verb in ("run", "verify", "audit"):
        assert place(verb, "-p", "ticks").code == 0, verb
    assert sum(SECRET.encode() in it for it in restored(place)) == 90


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize(
    "within", [{"--since": 1, "--until": 2}, {"--since": 1}, {"--until": 2}], ids=["between", "end", "start"]
)
def test_no_summary_beside_a_range_knows_its_readings(place: Place, within: dict[str, int]) -> None:
    """The steps to them and from them count in the hours beside them."""
    field = '[policies.iot.values.t]\nkind = "counter"\ntime_weighted = "linear"\nmax_gap = "2h"\n'
    place.write_config(POLICIES + field)
    place.database.iot.delete_many({})
    hours = [(0, 1.0), (1, 5.0), (2, 2.0)]
    place.database.iot.insert_many(
        {"sensor": SECRET, "at": START + hour * 60 * MINUTE + 5 * MINUTE, "t": t} for hour, t in hours
    )
    assert place("run", "-p", "iot").code == 0
    given = [text for name, it in within.items() for text in (name, (START + it * 60 * MINUTE).isoformat())]
    assert erase(place, *given, "--confirm", "iot", policy="iot").code == 0
    left = list(place.database.iot_hourly.find(sort=[("start", 1)]))
    place.database.iot_hourly.drop()
    day = ("--since", START.isoformat(), "--until", (START + DAY).isoformat())
    assert place("rollup", "-p", "iot", *day).code == 0
    assert left == list(place.database.iot_hourly.find(sort=[("start", 1)]))
    assert len(left) == 3 - (within.get("--until", 3) - within.get("--since", 0))


@pytest.mark.proof
@after(fill, "run")
def test_a_range_that_cuts_buckets_is_refused(place: Place) -> None:
    before = place.everything()
    for confirm in ((), ("--confirm", "ticks")):
        ran = erase(place, "--until", "2018-06-30T00:10:30Z", *confirm)
        assert ran.code == 2
        assert "1 buckets of the series hold readings inside the range and beyond it" in str(ran.json)
    after = place.everything()
    for own in ("bucketwise_runs", "bucketwise_lease"):
        del before[own], after[own]
    assert after == before


@pytest.mark.proof
def test_what_lies_beside_the_commits_goes_too(place: Place) -> None:
    """A copy of a bucket that changed lies under superseded/ and versions/; a restored one is pinned; broken
    ones are in quarantine."""
    place.write_config(
        POLICIES.replace('after = "30d"\nto = "offline"', 'after = "30d"\nto = "offline"\ngrace = "1d"')
    )
    fill(place)
    place.database.ticks.insert_one({"symbol": SECRET, "d": START + 200 * MINUTE, "p": "broken"})
    place.database.ticks.insert_one({"_id": f"{SECRET}/1", "symbol": SECRET, "d": "yesterday", "p": {}})
    place.database.ticks.insert_one({"symbol": SECRET})
    assert place("run", "-p", "ticks", now="2018-08-30T00:00:00Z").code == 3
    changing = {"symbol": SECRET, "d": START + 3 * MINUTE}
    place.database.ticks.update_one(changing, {"$unset": {"p.10": ""}})
    assert place("run", "-p", "ticks").code == 3
    store = place.folder / "store/ticks/meta"
    assert list((store / "superseded").glob("*.bson")) and list((store / "versions").glob("*.bson"))
    assert place("restore", "-p", "ticks", "--to", "ticks", "--series", f"symbol={SECRET}", "--yes").code == 0
    assert place.database.bucketwise_pins.count_documents({}) == 180
    assert place.database.bucketwise_quarantine.count_documents({}) == 3
    ran = erase(place, "--confirm", "ticks")
    assert ran.code == 0, ran
    body = ran.policy("ticks")
    assert (body["pins"], body["quarantine"], body["versions"], body["set_aside"]) == (180, 3, 1, 1)
    assert body["buckets"] == 183
    assert in_files(place.folder / "store", SECRET) == []
    assert in_database(place.database, SECRET) == ["iot"]
    for verb in ("run", "verify", "audit"):
        assert place(verb, "-p", "ticks").code == 0, verb


@pytest.mark.proof
@after(fill, "run")
def test_the_receipt_names_no_value(place: Place) -> None:
    assert erase(place, "--confirm", "ticks").code == 0
    receipts = place("receipts", "-p", "ticks", "--json").policy("ticks")["deletes"]
    last = receipts[-1]
    assert last["kind"] == "erase"
    assert last["reason"] == "case 17"
    assert last["erased"]["buckets"] == 180
    assert SECRET not in str(receipts)
    assert "erased" in place("receipts", "-p", "ticks").out
    assert place.database.bucketwise_receipts.find_one({"_id.name": "erasing"}) is None


@pytest.mark.proof
def test_with_a_signing_key_the_receipt_proves_which_series(place: Place) -> None:
    key = "k" * 40
    place.config.write_text(
        place.config.read_text().replace("[store]\n", f'[store]\nsigning_key = "{key}"\n')
    )
    fill(place)
    assert place("run", "-p", "ticks").code == 0
    assert erase(place, "--confirm", "ticks").code == 0
    last = place("receipts", "-p", "ticks", "--json").policy("ticks")["deletes"][-1]
    first, end = -62_135_596_800_000, 253_402_300_800_000
    text = json.dumps(["ticks", [["symbol", SECRET]], first, end], ensure_ascii=False)
    expected = hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()
    assert last["series"].partition(":")[2] == expected
    assert place("audit", "-p", "ticks").code == 0


REFUSED = {
    "no series": (("-p", "ticks", *CASE), "--series FIELD=VALUE"),
    "a field that is none": (("-p", "ticks", "--series", "sensor=7", *CASE), "no such series field"),
    "no policy named": (("--series", "symbol=MDB", *CASE), "works on one policy"),
    "an unknown policy": (("-p", "tiks", "--series", "symbol=MDB", *CASE), "Did you mean ticks"),
    "another name": (("-p", "ticks", "--series", "symbol=MDB", *CASE, "--confirm", "iot"), "--confirm iot"),
    "an empty reason": (("-p", "ticks", "--series", "symbol=MDB", "--reason", " "), "--reason: it is empty"),
    "a reason that tells": (
        ("-p", "ticks", "--series", "symbol=MDB", "--reason", "asked by mdb."),
        "contains a value of --series",
    ),
    "a reason of two lines": (("-p", "ticks", "--series", "symbol=MDB", "--reason", "a\nb"), "one line"),
    "no value": (("-p", "ticks", "--series", "symbol", *CASE), "write FIELD=VALUE"),
    "an empty range": (
        ("-p", "ticks", "--series", "symbol=MDB", *CASE, "--since", "2019-01-01", "--until", "2018-01-01"),
        "is not before",
    ),
}


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(untouched: Place, name: str) -> None:
    arguments, message = REFUSED[name]
    before = untouched.everything()
    ran = untouched("erase", *arguments, "--json")
    assert ran.code == 2
    assert message in ran.json["error"]
    assert untouched.everything() == before


def test_policies_whose_series_cannot_be_erased_are_refused(place: Place) -> None:
    place.write_config(
        """
        [policies.native]
        collection = "native"
        model = "timeseries"
        time_field = "at"
        series_fields = ["sensor"]
        value_fields = ["t"]
        [policies.plain]
        collection = "plain"
        model = "reading"
        time_field = "at"
        series_fields = []
        value_fields = ["t"]
        """
    )
    refused = place("erase", "-p", "plain", *CASE, "--json")
    assert (refused.code, "policy plain has no series fields" in refused.json["error"]) == (2, True)
    ran = place("erase", "-p", "native", "--series", "sensor=7", *CASE, "--json")
    assert (ran.code, "native time-series collection" in ran.json["error"]) == (2, True)


@after(fill, "run")
def test_another_erasure_waits_until_the_first_has_ended(place: Place) -> None:
    begun = {
        "_id": {"policy": "ticks", "name": "erasing"},
        "kind": "erasing", "key": "00" * 32, "series": "ff", "since": None, "until": None,
        "reason": "case 16", "at": START, "counts": {},
    }  # fmt: skip
    place.database.bucketwise_receipts.insert_one(begun)
    for arguments in ((), ("--confirm", "ticks")):
        ran = erase(place, *arguments)
        assert ran.code == 2
        assert "another erasure was begun at 2018-06-30T00:00:00Z ('case 16')" in str(ran.json)


VALUES: dict[str, Any] = {
    "quotes": 'O\'Hara "x"',
    "slash": "a/../b",
    "dollar": "$where",
    "umlaut": "Jörg Müller",
    "number": 1234567,
    "long": 2**40,
    "double": 2.5,
    "text of a number": "7654321",
    "bool": True,
}


def fill_each(place: Place) -> None:
    for value in VALUES.values():
        fill(place, value, minutes=20)


@pytest.mark.proof
@after(fill_each, "run -p iot")
def test_values_of_any_kind(place: Place) -> None:
    left = 18 + 2 * len(VALUES)
    for value in VALUES.values():
        told = "true" if value is True else str(value)
        assert place.database.iot_archive.count_documents({"sensor": value}) == 2
        ran = erase(place, "--confirm", "iot", policy="iot", series=told)
        assert ran.code == 0, ran
        assert ran.policy("iot")["buckets"] == 2
        assert place.database.iot_archive.count_documents({"sensor": value}) == 0
        assert place.database.iot_archive.count_documents({}) == (left := left - 2)
        assert place.database.iot_hourly.count_documents({"sensor": value}) == 0


@pytest.mark.proof
@after(fill, "run")
def test_what_is_held_is_not_erased(place: Place) -> None:
    """Not by part of it either; and once the hold is released, it is."""
    given = (
        "-p",
        "ticks",
        "--series",
        f"symbol={SECRET}",
        "--since",
        "2018-06-30",
        "--until",
        "2018-06-30T01:00",
    )
    assert place("hold", "add", "case-9", *given, "--reason", "a court asks for it").code == 0
    before = place.everything()
    for arguments in ((), ("--confirm", "ticks")):
        ran = erase(place, *arguments)
        assert ran.code == 2
        assert "what is to be erased is held (case-9)" in str(ran.json)
    after = place.everything()
    for own in ("bucketwise_runs", "bucketwise_lease"):
        before.pop(own), after.pop(own)
    assert after == before
    assert erase(place, "--confirm", "ticks", "--since", "2018-06-30T01:00").code == 0
    assert erase(place, "--confirm", "ticks", series="MDB").code == 0
    assert sum(SECRET.encode() in it for it in restored(place)) == 60
    assert place("hold", "release", "case-9", "-p", "ticks").code == 0
    assert erase(place, "--confirm", "ticks").code == 0
    assert in_files(place.folder / "store", SECRET) == []
    assert place("audit", "-p", "ticks").code == 0


def test_a_hold_of_another_policy_on_the_same_collection(place: Place) -> None:
    copy = POLICIES[POLICIES.index("[policies.ticks]") : POLICIES.index("[policies.ticks.rollup]")]
    place.write_config(POLICIES + copy.replace("policies.ticks", "policies.reader"))
    fill(place)
    assert (
        place("hold", "add", "h", "-p", "reader", "--series", f"symbol={SECRET}", "--reason", "x").code == 0
    )
    ran = erase(place, "--confirm", "ticks")
    assert ran.code == 2
    assert "is held (h)" in str(ran.json)


@pytest.mark.proof
def test_what_another_policy_keeps_of_the_collection_is_told(place: Place) -> None:
    copy = POLICIES[POLICIES.index("[policies.ticks]") : POLICIES.index("[policies.ticks.archive]")]
    place.write_config(
        POLICIES + copy.replace("policies.ticks", "policies.reader").replace("ticks_", "reader_")
    )
    fill(place)
    assert place("rollup", "-p", "reader").code == 0
    assert place("run", "-p", "ticks").code == 0
    ran = erase(place, "--confirm", "ticks")
    assert ran.code == 3
    assert {it["place"] for it in found(ran.policy("ticks"))} == {"reader_hourly", "reader_daily"}
    assert erase(place, "--confirm", "ticks").code == 3
    ran = place("erase", "-p", "reader", "--series", f"symbol={SECRET}", *CASE, "--confirm", "reader")
    assert ran.code == 0, ran
    assert erase(place, "--confirm", "ticks").code == 0


@pytest.mark.proof
def test_what_names_the_value_elsewhere_is_told(place: Place) -> None:
    """A reading of another series, whose document mentions it."""
    fill(place)
    other = {"symbol": "MDB", "d": START + DAY, "p": {"0": 1.5}, "note": f"see {SECRET}, please"}
    place.database.ticks.insert_one(other)
    live = {"symbol": "MDB", "d": START + 100 * DAY, "p": {"0": 1.5}, "note": SECRET}
    place.database.ticks.insert_one(live)
    assert place("run", "-p", "ticks").code == 0
    ran = erase(place, "--confirm", "ticks")
    assert ran.code == 3
    left = found(ran.policy("ticks"))
    assert [it["why"] for it in left] == ["1 documents contain a value of the series"] * 2
    assert left[0]["place"] == "ticks"
    assert "/ticks/meta/manifests/" in left[1]["place"]
    assert place.database.ticks.count_documents({}) == 1, "and stays"


@pytest.mark.parametrize(("value", "told"), [(Decimal128("7.10"), "7.10"), (None, "None")])
def test_values_that_are_no_series_are_erased_too(place: Place, value: object, told: str) -> None:
    place.database.ticks.insert_one({"symbol": value, "d": START, "p": {"0": 1.5}})
    ran = erase(place, "--confirm", "ticks", series=told)
    assert (ran.code, ran.policy("ticks")["buckets"]) == (0, 1), ran
    assert place.database.ticks.count_documents({"symbol": value}) == 0


SHARED = """
[policies.gateways]
collection = "gateways"
model = "samples"
samples_field = "held"
sample_time_field = "at"
start_field = "first"
end_field = "last"
count_field = "n"
sum_fields = {t = "total"}
series_fields = ["held.*.who"]
value_fields = ["t"]
[policies.gateways.rollup]
hourly = "gateways_hourly"
daily = "gateways_daily"
[policies.gateways.values.t]
kind = "counter"
[policies.gateways.archive]
after = "30d"
grace = "5d"
"""


def gateways(place: Place, first: int, last: int) -> None:
    """A bucket an hour with the samples of three, the secret one among them."""
    for hour in range(first, last):
        start = START + hour * 60 * MINUTE
        held: list[dict[str, Any]] = [
            {"at": start + at * MINUTE, "who": who, "t": hour * 3 + at / 8}
            for at, who in enumerate(("Anna", SECRET, "Bert", SECRET))
        ]
        body = {"first": start, "last": held[-1]["at"], "n": 4, "total": sum(it["t"] for it in held)}
        place.database.gateways.insert_one({"_id": hour, **body, "held": held})


@pytest.mark.proof
@pytest.mark.parametrize("to", ['to = "offline"', 'to = "online"\ncollection = "gateways_archive"'])
def test_buckets_of_several_series_stay_without_it(place: Place, to: str) -> None:
    """Live ones, copies that wait, archived ones, versions beside them, restored ones; a hold on another
    series doesn't matter."""
    place.write_config(POLICIES + SHARED + to)
    gateways(place, 0, 40)
    mine = ("-p", "gateways")
    assert place("run", *mine, now="2018-08-01T00:00:00Z").code == 0  # copies
    added = {"at": START + 10 * MINUTE, "who": "Anna", "t": 1.0}
    place.database.gateways.update_one({"_id": 1}, {"$pop": {"held": -1}, "$inc": {"n": -1, "total": -3.0}})
    assert place("run", *mine, now="2018-08-05T00:00:00Z").code in (0, 3)
    assert place("run", *mine, now="2018-08-12T00:00:00Z").code in (0, 3)
    given = ("--series", "who=Anna", "--until", "2018-06-30T04:00:00Z", "--to", "gateways", "--yes")
    assert place("restore", *mine, *given, now="2018-08-12T12:00:00Z").code == 0
    late = {"_id": 3, "first": START + 180 * MINUTE, "last": START + 190 * MINUTE, "n": 1, "total": 1.0}
    place.database.gateways.replace_one(
        {"_id": 3}, {**late, "held": [{**added, "at": late["last"]}]}, upsert=True
    )
    ran = place("run", *mine, now="2018-08-13T00:00:00Z")
    assert ran.code in (0, 3), ran.err
    gateways(place, 40, 44)
    assert place("run", *mine, now="2018-08-14T00:00:00Z").code in (0, 3)
    hold = ("hold", "add", "case-9", *mine, "--series", "who=Bert", "--reason", "a court")
    assert place(*hold).code == 0
    before = summaries(place, "gateways_hourly"), summaries(place, "gateways_daily")
    dry = place("erase", *mine, "--series", f"who={SECRET}", *CASE, "--json")
    assert dry.code == 0, dry
    ran = place("erase", *mine, "--series", f"who={SECRET}", *CASE, "--json", "--confirm", "gateways")
    assert ran.code == 0, ran
    planned, body = dry.policy("gateways"), ran.policy("gateways")
    numbers = {name: it for name, it in body.items() if isinstance(it, int) and name != "dry_run"}
    assert numbers == {name: planned[name] for name in numbers}
    assert body["rewritten"] == body["buckets"] >= 43
    assert (summaries(place, "gateways_hourly"), summaries(place, "gateways_daily")) == before
    assert in_files(place.folder / "store", SECRET) == []
    assert not [it for it in in_database(place.database, SECRET) if "gateways" in it or "bucketwise" in it]
    for verb in ("run", "verify", "audit", "run"):
        again = place(verb, *mine)
        assert again.code == 0, (verb, again.err)
    assert (summaries(place, "gateways_hourly"), summaries(place, "gateways_daily")) == before
    assert place("unpin", *mine).code == 0
    assert place("run", *mine, now="2018-09-20T00:00:00Z").code == 0
    assert place("audit", *mine, now="2018-09-20T00:00:00Z").code == 0
