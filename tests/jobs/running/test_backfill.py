"""A roll-up in slices: cut off, it goes on where it stopped, and comes to the same summaries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.jobs.command import Ran
from tests.jobs.place import NOW, Place
from tests.jobs.states import after

Document = dict[str, Any]
FIRST, DAYS = datetime(2018, 3, 10, tzinfo=UTC), 60
RANGE = ("--since", "2018-03-10T00:00Z", "--until", "2018-05-09T00:00Z")
SLICES = (*RANGE, "--slices", "10d")
POLICY = """
[policies.it]
collection = "it"
model = "reading"
time_field = "d"
series_fields = ["dev"]
value_fields = ["p"]
[policies.it.rollup]
hourly = "it_hourly"
daily = "it_daily"
timezone = "Europe/Berlin"
[[policies.it.rollup.levels]]
name = "monthly"
collection = "it_monthly"
"""
LEVELS = ("it_hourly", "it_daily", "it_monthly")


def two_months(place: Place) -> None:
    """Two readings a day, of which a third is empty, and no other policy."""
    place.write_config(POLICY)
    days = [n for n in range(DAYS) if not 20 <= n < 40]
    times = [FIRST + timedelta(days=n, hours=hour) for n in days for hour in (3, 22)]
    place.database.it.insert_many([{"dev": n % 3, "d": at, "p": n / 7} for n, at in enumerate(times)])
    place.database.it.create_index("d")


def killed_once(place: Place) -> None:
    killed(place, 1, *SLICES)


def killed_twice(place: Place) -> None:
    killed(place, 2, *SLICES)


pytestmark = after(two_months)
ROLLED_UP = " ".join(("rollup", *RANGE))


def summaries(place: Place) -> dict[str, list[Document]]:
    return {name: list(place.database[name].find(sort=[("_id", 1)])) for name in LEVELS}


def killed(place: Place, nth: int, *arguments: str) -> None:
    """Once it has stored its progress for the `nth` time."""
    given = {"log": str(place.folder / "log"), "folder": str(place.folder), "moment": "after"}
    given |= {"at": "mongo update bucketwise_progress backfill", "nth": nth}  # type: ignore[dict-item]
    command = ("rollup", *arguments, "--now", NOW)
    hooks = ("tests.faults.crashes.points", given)
    assert place.command.meddled(hooks, *command, cwd=place.folder, MONGODB_URI=place.uri).code == -9
    place.database.bucketwise_lease.update_many({}, {"$set": {"expires_at": FIRST}})


def rolled_up(place: Place, *arguments: str) -> Document:
    ran = place("rollup", "--json", *arguments)
    assert ran.code == 0, ran
    return ran.policy("it")


@pytest.mark.proof
@after(two_months, ROLLED_UP)
def test_it_comes_to_what_one_go_comes_to(place: Place) -> None:
    expected = summaries(place)
    assert [len(expected[name]) for name in LEVELS] == [80, 80, 9]
    for name in LEVELS:
        place.database.drop_collection(name)
    told = rolled_up(place, *SLICES)
    assert (told["slices"], told["readings"]) == ({"total": 6, "before": 0}, 80)
    assert summaries(place) == expected


@pytest.mark.proof
@after(two_months, killed_twice)
def test_it_begins_anew_if_asked_to(place: Place) -> None:
    """And where that is cut off, the next one goes on with it."""
    changed = place.database.it_daily.update_many({}, {"$set": {"p.sum": -1.0}}).modified_count
    killed(place, 2, *SLICES, "--restart")
    assert 0 < place.database.it_daily.count_documents({"p.sum": -1.0}) < changed
    (failed, _) = place("status", "--failed", "--json").policy("it")["failed"]
    assert failed["command"].endswith("--slices 10d")
    assert rolled_up(place, *SLICES)["slices"] == {"total": 6, "before": 1}
    assert rolled_up(place, *SLICES, "--restart")["slices"]["before"] == 0
    ran = place("rollup", "--restart")
    assert (ran.code, "--restart: give --slices as well" in ran.err) == (2, True)


@pytest.mark.proof
@after(two_months, ROLLED_UP)
@pytest.mark.parametrize("through", [False, True], ids=["never rolled up", "rolled up before"])
def test_a_killed_one_goes_on_where_it_stopped(place: Place, through: bool) -> None:
    expected = summaries(place)
    if through:
        rolled_up(place)
    for name in LEVELS:
        place.database[name].update_many({}, {"$set": {"p.sum": -1.0}})
    killed(place, 2, *SLICES)
    daily = place.database.it_daily
    assert 0 < daily.count_documents({"p.sum": -1.0}) < 80
    again = rolled_up(place, *SLICES)
    assert (again["slices"]["before"], again["daily"]["written"]) == (2, 40)
    assert summaries(place) == expected
    anew = rolled_up(place, *SLICES)
    assert (anew["slices"]["before"], anew["daily"]["written"], anew["readings"]) == (0, 0, 80)


@pytest.mark.proof
@pytest.mark.parametrize(
    ("then", "before"),
    [
        (("--since", "2018-03-10T00:00Z", "--until", "2018-05-09T00:00Z", "--slices", "5d"), 2),
        (("--since", "2018-03-10T00:00Z", "--until", "2018-05-08T00:00Z", "--slices", "10d"), 0),
        (("--since", "2018-03-11T00:00Z", "--until", "2018-05-09T00:00Z", "--slices", "10d"), 0),
    ],
    ids=["other slices", "another end", "another beginning"],
)
@after(two_months, killed_once)
def test_the_range_is_what_is_resumed(place: Place, then: tuple[str, ...], before: int) -> None:
    assert rolled_up(place, *then)["slices"]["before"] == before


@pytest.mark.proof
@after(two_months, killed_twice)
def test_a_policy_that_makes_other_summaries_begins_anew(place: Place) -> None:
    place.write_config(POLICY.replace("Europe/Berlin", "UTC"))
    assert rolled_up(place, *SLICES)["slices"]["before"] == 0


@pytest.mark.proof
@after(two_months, killed_once)
def test_an_earlier_call_is_told_of(place: Place) -> None:
    assert "resumed; an earlier call had done" in place("rollup", *SLICES).out
    assert "resumed" not in place("rollup", *SLICES).out
    # It moves no watermark: else an archive run could take what lies outside the range.
    assert place("status", "--json").policy("it")["rolled_up_through"] is None


def refused(ran: Ran) -> str:
    assert (ran.code, ran.out) == (2, "")
    return ran.err


def test_what_is_no_length_is_refused(place: Place) -> None:
    before = place.everything()
    for length in ("", "x", "30", "-1d", "0d", "forever", "200y"):
        assert f"--slices {length}: " in refused(place("rollup", *RANGE, "--slices", length))
    for given in ((), RANGE[:2], RANGE[2:]):
        assert "give --since and --until" in refused(place("rollup", *given, "--slices", "1d"))
    assert place.everything() == before
