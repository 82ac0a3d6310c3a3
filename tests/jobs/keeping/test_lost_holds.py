"""Holds that the store tells of and the database lacks; and those that may not be placed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.jobs.keeping.test_authentic import signed
from tests.jobs.keeping.test_holds import LONG_AFTER, NAME, SECOND_HOUR, WHY, added, hold, hours, run
from tests.jobs.place import AT_ONCE, POLICIES, Place
from tests.jobs.states import States, after

Document = dict[str, Any]
RELEASE = ("release", NAME, "-p", "ticks")


def files(place: Place, policy: str = "ticks") -> list[Path]:
    return sorted((place.folder / "store" / policy / "meta" / "holds").glob("*"))


def left(file: Path, data: bytes) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(data)


def lose(place: Place, *arguments: str, policy: str = "ticks") -> None:
    """Places a hold, and puts the bookkeeping back to the state before it."""
    names = ("bucketwise_holds", "bucketwise_receipts")
    before = {name: list(place.database[name].find()) for name in names}
    added(place, *arguments, policy=policy)
    for name, documents in before.items():
        place.database[name].delete_many({})
        if documents:
            place.database[name].insert_many(documents)


def expiring_at_once(place: Place) -> None:
    place.write_config(AT_ONCE)


@pytest.mark.proof
@after(expiring_at_once, signed, "run -p ticks")
def test_a_hold_that_was_lost_halts_what_destroys_until_it_is_placed_again(place: Place) -> None:
    lose(place, "--series", "symbol=MDB", *SECOND_HOUR)
    (file,) = files(place)
    assert file.name.startswith(f"{NAME}.") and "MDB" not in file.read_text()
    assert hold(place, "list", "-p", "ticks")["policies"][0]["holds"] == []
    checked = place("check", "-p", "ticks", "--json")
    (found,) = [it for it in checked.policy("ticks")["findings"] if it["code"] == "hold-missing"]
    assert (checked.code, found["place"]) == (1, file.as_uri())
    assert place("verify", "-p", "ticks").code == 5
    erased = place("erase", "--series", "symbol=MDB", "-p", "ticks", "--reason", "x", "--confirm", "ticks")
    assert erased.code == 5
    for verb in ("plan", "run"):
        ran = place(verb, "-p", "ticks", "--json", now=LONG_AFTER)
        assert (ran.code, ran.policy("ticks")["error"]) == (5, found["message"]), verb
    assert hours(place) == [0, 1, 2]
    added(place, "--series", "symbol=MDB", *SECOND_HOUR)
    assert len(files(place)) == 1 and files(place) != [file]
    assert run(place, LONG_AFTER)["expiry"]["held"] == {NAME: 1}
    assert hours(place) == [1]
    assert place("audit", "-p", "ticks", now=LONG_AFTER).code == 0


def ending_soon(place: Place) -> None:
    ends = 'archive = "31d"\narchive_grace = "1d"\n'
    place.write_config(POLICIES.replace('hourly = "365d"\n', ends) + "[policies.iot.retain]\n" + ends)


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("policy", ["ticks", "iot"])
@after(ending_soon, "run")
def test_it_is_released_by_name_with_a_reason(place: Place, policy: str) -> None:
    """What it may cover stays in the archive until then, past `retain.archive`."""
    lose(place, policy=policy)
    ran = place("run", "-p", policy, "--json", now="2018-09-03")
    assert ran.code == 5, ran
    assert NAME in ran.policy(policy)["error"]
    hold(place, "release", NAME, code=2)
    refused = place("hold", "release", NAME, "-p", policy)
    assert (refused.code, "--reason TEXT" in refused.err) == (2, True)
    (told,) = hold(place, "release", NAME, "--reason", "The case is closed")["policies"]
    assert (told["policy"], told["released"], files(place, policy)) == (policy, True, [])
    *_, last = place("receipts", "--json", "-p", policy).policy(policy)["deletes"]
    assert (last["kind"], last["release_reason"]) == ("release", "The case is closed")
    assert place("run", "-p", policy, now="2018-09-03").code == 0
    assert place("verify", "-p", policy).code == 0


@pytest.mark.proof
@after(expiring_at_once, "run -p ticks")
def test_what_a_crash_leaves_in_the_store(place: Place) -> None:
    """A release that was cut off has its receipt: the file it left tells of no hold."""
    added(place)
    (file,) = files(place)
    data = file.read_bytes()
    file.unlink()  # as if an earlier version had placed it
    added(place, *SECOND_HOUR, name="second")
    assert files(place)[0].read_bytes() == data
    hold(place, *RELEASE)
    hold(place, "release", "second")
    left(file, data)
    assert place("verify", "-p", "ticks").code == 0
    hold(place, "release", NAME, code=2)
    assert run(place, LONG_AFTER)["expiry"]["hourly"] == 3
    assert files(place) == []
    left(file, data[:-3])
    found = place("verify", "-p", "ticks", "--json").policy("ticks")["damage"]
    assert [(it["code"], it["place"]) for it in found] == [("hold-differs", file.as_uri())]


def copying_alone(place: Place) -> None:
    place.write_config(POLICIES.replace('after = "30d"', 'after = "30d"\ngrace = "7d"', 1))


@pytest.mark.parametrize("what", ["receipts", "commits"])
def test_a_hold_is_signed_where_other_receipts_are(states: States, what: str) -> None:
    """The key is not in the file any more."""
    first = (copying_alone,) if what == "commits" else ()
    place = states.at(*first, signed, "run -p ticks")
    added(place, name="first")
    place.write_config(POLICIES)
    if what == "commits":
        place.database.bucketwise_receipts.delete_many({"_id.name": {"$regex": "^(delete-|last)"}})
    for arguments in (("add", NAME, *WHY), ("release", "first")):
        told = hold(place, *arguments, "-p", "ticks", code=5)
        assert "signed under the key" in told["policies"][0]["error"]
    assert place.database.bucketwise_holds.count_documents({}) == 1


@pytest.mark.in_turn(3)
@pytest.mark.parametrize(
    ("policy", "typo", "right"),
    [
        ("ticks", ("--series", "symbol=MBD"), ("--series", "symbol=MDB")),
        ("iot", ("--series", "sensor=8"), ("--series", "sensor=7")),
        ("ticks", ("--since", "2019-01-01"), ("--since", "2018-01-01")),
    ],
)
@pytest.mark.parametrize("steps", [(), ("run",)], ids=["live", "archived"])
def test_a_hold_that_covers_nothing_is_placed_by_request_alone(
    states: States, policy: str, typo: tuple[str, str], right: tuple[str, str], steps: tuple[str, ...]
) -> None:
    place = states.at(*steps)
    for level in ("hourly", "daily") if steps else ():
        place.database[f"{policy}_{level}"].drop()
    refused = hold(place, "add", NAME, "-p", policy, *WHY, *typo, code=2)
    assert "--allow-empty" in refused["error"]
    assert place.database.bucketwise_holds.find_one() is None
    assert added(place, *right, policy=policy)["placed"]
    assert added(place, *typo, "--allow-empty", policy=policy, name="typo")["placed"]
