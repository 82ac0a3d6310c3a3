"""A day without a number, of a series that had some: its buckets stay, and are told with their reason."""

# mypy: disable-error-code="index"

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.command import CommandLine, Ran
from tests.jobs.place import START, Db, Place
from tests.tiers import tier

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
POLICY = """
[policies.it]
collection = "it"
model = "reading"
time_field = "d"
series_fields = ["m"]
value_fields = ["p", "q.x"]
{more}
[policies.it.rollup]
{rollup}
[policies.it.archive]
after = "30d"
{to}
"""
OFFLINE, ONLINE = 'to = "offline"', 'to = "online"\ncollection = "it_archive"'
HOURLY, BERLIN = 'hourly = "it_hourly"', 'daily = "it_daily"\ntimezone = "Europe/Berlin"'
VALUELESS = "no finite value in a value field for a whole day, of a series that had some"


@pytest.fixture
def place(tmp_path: Path, database: Db, mongodb_uri: str, bucketwise: CommandLine) -> Place:
    it = Place(tmp_path, database, mongodb_uri, bucketwise)
    write(it)
    database["it"].create_index("d")
    return it


def write(place: Place, more: str = "", rollup: str = HOURLY, to: str = OFFLINE) -> None:
    place.write_config(POLICY.format(more=more, rollup=rollup, to=to))


def insert(place: Place, series: str, day: int, **values: Any) -> None:
    """Every six hours."""
    times = [START + day * DAY + at * HOUR for at in range(0, 24, 6)]
    place.database["it"].insert_many({"m": series, "d": at, **values} for at in times)


def left(place: Place) -> list[tuple[str, int]]:
    """The series and days of which anything stays."""
    return sorted({(it["m"], (it["d"] - START).days) for it in place.database["it"].find()})


def told(ran: Ran) -> list[tuple[str, str, str]]:
    body = ran.policy("it")
    named = body.get("archive", body)["valueless"]
    return [(it["field"], it["series"]["m"], it["day"]) for it in named]


SOUND: dict[str, Any] = {"p": 1.5, "q": {"x": 2}}


ODD: dict[str, dict[str, Any]] = {"text": {"p": "1.5"}, "NaN": {"p": float("nan")}, "missing": {}}
#: Each of these in an archive, and each archive.
FIRST = {("text", OFFLINE), ("NaN", ONLINE), ("missing", OFFLINE)}


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize(
    ("to", "odd"),
    [
        pytest.param(
            to,
            odd,
            id=f"{name}-{kind}",
            marks=tier(is_first=(name, to) in FIRST, is_proof=True),
        )
        for name, odd in ODD.items()
        for kind, to in (("offline", OFFLINE), ("online", ONLINE))
    ],
)
def test_it_stays_until_it_is_mended(place: Place, to: str, odd: dict[str, Any]) -> None:
    write(place, to=to)
    for day in range(3):
        insert(place, "a", day, **SOUND)
        insert(place, "b", day, **(SOUND if day != 1 else {"q": {"x": 2}} | odd))
    plan = place("plan", "--json")
    for ran in (plan, place("run", "--json"), place("run", "--json")):
        assert ran.code == 3, ran
        assert told(ran) == [("p", "b", "2018-07-01")]
        archive = ran.policy("it")["archive"]
        assert archive["left"] == 4
        assert [it["reason"].startswith(VALUELESS) for it in archive["reasons"]] == [True]
    assert plan.policy("it")["archive"]["deleted"] == 20
    assert left(place) == [("b", 1)]
    assert "no finite value of `p` on 2018-07-01: m=b" in place("run").out
    (finding,) = place("audit", "--json").policy("it")["findings"]
    assert (finding["code"], finding["severity"]) == ("valueless", "error")

    place.database["it"].update_one({"m": "b"}, {"$set": {"p": 1}})  # not a whole day any more
    assert place("run").code == 0
    assert left(place) == []


@pytest.mark.proof
def test_it_goes_where_the_policy_says_so(place: Place) -> None:
    insert(place, "a", 0, **SOUND)
    insert(place, "a", 1, p="off", q={"x": 2})
    assert place("run").code == 3
    write(place, 'nonnumeric_ok = ["p"]')
    assert place("run").code == 0
    assert left(place) == []


@pytest.mark.proof
def test_what_a_series_had_is_told_by_its_summaries(place: Place) -> None:
    """Its earlier days have gone already."""
    insert(place, "a", 0, **SOUND)
    insert(place, "b", 0, p=1)
    insert(place, "c", 0, **SOUND)
    assert place("run", "-p", "it").code == 0
    insert(place, "a", 1, p=1)
    insert(place, "b", 1, p=1)  # never had the other
    insert(place, "c", 1, q={"x": 1}, p=1)
    assert told(place("run", "--json")) == [("q.x", "a", "2018-07-01")]
    assert left(place) == [("a", 1)]
    insert(place, "a", 2, p=1)
    assert told(place("run", "--json")) == [("q.x", "a", "2018-07-01"), ("q.x", "a", "2018-07-02")]


@pytest.mark.proof
def test_a_part_of_a_day_is_no_whole_day(place: Place) -> None:
    """The other part has gone already."""
    insert(place, "a", 0, **SOUND)
    assert place("run").code == 0
    place.database["it"].insert_one({"m": "a", "d": START + HOUR, "p": "off", "q": {"x": 1}})
    late = START + DAY + HOUR
    place.database["it"].insert_one({"m": "a", "d": late, **SOUND})
    ran = place("run", "--json")
    assert (ran.code, told(ran)) == (0, [])
    assert left(place) == []


def test_where_no_summary_tells_of_utc_days_what_lies_together_does(place: Place) -> None:
    write(place, rollup=BERLIN)
    insert(place, "a", 0, **SOUND)
    insert(place, "a", 1, p=1)
    assert told(place("run", "--json")) == [("q.x", "a", "2018-07-01")]
    insert(place, "a", 2, p=1)
    assert [it[2] for it in told(place("run", "--json"))] == ["2018-07-01", "2018-07-02"]


@pytest.mark.proof
def test_a_roll_up_without_a_number_is_not_done(place: Place) -> None:
    insert(place, "a", 0, **SOUND)
    assert place("rollup", "--json").policy("it")["empty_fields"] == []
    insert(place, "a", 1, p="off", q={"x": 1})
    ran = place("rollup", "--json")
    assert (ran.code, ran.policy("it")["empty_fields"]) == (3, ["p"])
    assert place("rollup", "--json").code == 0  # nothing is new
    since = ("--since", "2018-07-01", "--until", "2018-07-02")
    assert "no reading that was rolled up has a finite value of `p`" in place("rollup", *since).out
    write(place, 'nonnumeric_ok = ["p"]')
    assert place("rollup", *since).code == 0


@pytest.mark.proof
def test_the_sample_is_read_once_under_a_policy_text(place: Place) -> None:
    """As the server tells it: what reads buckets in the order of time, 250 at most. A first run asks it what
    times mean, and then whether the policy fits."""
    insert(place, "a", 0, **SOUND)

    def samples_of(verb: str) -> int:
        place.database.command("profile", 2)
        ran = place(verb)
        place.database.command("profile", 0)
        assert ran.code == 0, ran
        found = place.database["system.profile"].count_documents({"command.limit": 250})
        place.database["system.profile"].drop()
        return found

    assert samples_of("plan") == 4
    assert samples_of("run") == 8
    assert samples_of("run") == samples_of("archive") == 0
    write(place, 'schedule = "@daily"')  # nothing that documents are read by
    assert samples_of("run") == 0
    write(place, 'nonnumeric_ok = ["p"]')
    insert(place, "a", 1, **SOUND)
    assert samples_of("run") == 8
    assert samples_of("run") == 0


def test_an_empty_collection_proves_nothing(place: Place) -> None:
    assert place("run").code == 0
    insert(place, "a", 0, value=1)
    assert place("run").code == 1
    assert left(place) == [("a", 0)]


SLOTS = POLICY.replace('model = "reading"', 'model = "slots"\nslot = "minute"').replace(', "q.x"', "")


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("to", [OFFLINE, ONLINE], ids=["offline", "online"])
def test_buckets_whose_slots_have_another_name_stay(place: Place, to: str) -> None:
    """The policy was proven before the writer renamed the field: no reading of theirs is in a summary."""
    place.write_config(SLOTS.format(more="", rollup=HOURLY, to=to))
    source = place.database["it"]

    def insert_hours(first: int, name: str) -> None:
        starts = [START + at * HOUR for at in range(first, first + 24)]
        source.insert_many({"m": "a", "d": start, name: {"0": 1.5, "59": 2}} for start in starts)

    insert_hours(0, "p")
    now = (START + 40 * DAY).isoformat()
    assert place("run", "--now", now).code == 0
    insert_hours(24, "price")
    insert_hours(48, "p")
    ran = place("run", "--now", now, "--json")
    assert (ran.code, ran.policy("it")["archive"]["deleted"]) == (3, 24)
    assert [it["field"] for it in ran.policy("it")["archive"]["valueless"]] == ["p"]
    assert source.count_documents({"price": {"$exists": True}}) == source.count_documents({}) == 24
    both = SLOTS.replace('["p"]', '["p", "price"]')
    place.write_config(both.format(more='nonnumeric_ok = ["p"]', rollup=HOURLY, to=to))
    assert place("run", "--now", now).code == 0
    assert source.count_documents({}) == 0
