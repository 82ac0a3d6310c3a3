"""What keeps a run from going on: `check` names it, and `run` and `plan` stop at it with the same words."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

import pytest

from bucketwise.archivers import preconditions
from bucketwise.archivers.preconditions import OF_WRITERS
from tests.jobs.place import POLICIES, START, Place
from tests.jobs.states import after


class Case(NamedTuple):
    """How a precondition of `ticks` is broken where everything is archived, and what is then said."""

    spoil: Callable[[Place], object]
    code: str
    exit_code: int
    remedy: str
    name: str = "ticks"


def _other_kind(place: Place) -> None:
    place.write_config(POLICIES.replace('to = "offline"', 'to = "online"\ncollection = "ticks_archive"'))


def _summary_without_readings(place: Place) -> None:
    """Of a day before all others, as where its readings have gone. The policy then has other series."""
    summary = place.database.ticks_hourly.find_one()
    assert summary is not None
    summary["_id"]["start"] = summary["start"] = START - timedelta(days=1)
    summary["end"] = summary["start"] + timedelta(hours=1)
    place.database.ticks_hourly.insert_one(summary)
    place.write_config(POLICIES.replace('["symbol"]', "[]"))


def _replace(place: Place, name: str, old: bytes, new: bytes) -> None:
    path = place.folder / "store" / "ticks" / name
    path.write_bytes(path.read_bytes().replace(old, new))


def _add_copy(place: Place) -> None:
    (place.folder / "b").mkdir()
    place.write_config(f'[[store.copies]]\nname = "b"\nurl = "{(place.folder / "b").as_uri()}"\n' + POLICIES)


CASES: dict[preconditions.Precondition, Case] = {
    preconditions.has_source: Case(
        lambda it: it.database.ticks.drop(), "source-missing", 1, "write may_be_missing = true"
    ),
    preconditions.is_known: Case(
        lambda it: it.write_config(POLICIES.replace("policies.ticks", "policies.prices")),
        "policy-renamed",
        5,
        'write id = "ticks"',
        "prices",
    ),
    preconditions.has_one_kind: Case(_other_kind, "archive-kind", 1, "Set archive.to back"),
    preconditions.has_store: Case(
        lambda it: (it.folder / "store").rename(it.folder / "unmounted"),
        "store-absent",
        5,
        "Mount it, put it back",
    ),
    preconditions.has_copies: Case(_add_copy, "copy-unfilled", 5, "`bucketwise copy`"),
    preconditions.is_ours: Case(
        lambda it: _replace(it, "meta/owner.json", b'"owner": "', b'"owner": "0'),
        "archive-not-ours",
        5,
        "bucketwise adopt --reason TEXT",
    ),
    preconditions.has_heads: Case(
        lambda it: shutil.rmtree(it.folder / "store" / "ticks" / "meta"),
        "archive-incomplete",
        5,
        "Restore the store from its versions or a backup",
    ),
    preconditions.reads_archive: Case(
        lambda it: it.write_config(
            POLICIES.replace('model = "slots"', 'model = "reading"').replace('slot = "second"\n', "")
        ),
        "archive-unreadable",
        5,
        "give documents of another design a policy and a collection of their own",
    ),
    preconditions.can_be_made_anew: Case(
        _summary_without_readings, "summaries-lost", 5, "Put series_fields back; or name new collections"
    ),
    preconditions.goes_forward: Case(
        lambda it: it("hold", "add", "case-17", "-p", "ticks", "--reason", "x", now="2018-09-02"),
        "time-recorded",
        1,
        "bucketwise resume --time",
    ),
}


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("precondition", OF_WRITERS, ids=lambda it: it.__name__)
@after("run -p ticks")
def test_check_names_it_and_a_run_stops_at_it(place: Place, precondition: preconditions.Precondition) -> None:
    case = CASES[precondition]
    case.spoil(place)
    checked = place("check", "-p", case.name, "--json")
    (found,) = [it for it in checked.policy(case.name)["findings"] if it["code"] == case.code]
    assert (found["severity"], checked.code) == ("error", 1)
    assert case.remedy in found["message"]
    before = place.database.ticks_hourly.estimated_document_count()
    for verb in ("plan", "run"):
        ran = place(verb, "-p", case.name, "--json")
        assert (ran.code, ran.policy(case.name)["error"]) == (case.exit_code, found["message"])
    assert place.database.ticks_hourly.estimated_document_count() == before


@pytest.mark.in_turn(1)
@pytest.mark.parametrize("what", ["commits", "files"])
def test_check_finds_what_another_database_has_put_there(place: Place, what: str) -> None:
    """A run looks through all only after one that was cut off."""
    other = replace(
        place, folder=place.folder / "other", database=place.database.client[f"{place.database.name}_other"]
    )
    other.folder.mkdir()
    other.write_config()
    other.load()
    assert other("run", "-p", "ticks").code == 0
    place.database.bucketwise_lease.insert_one({"_id": "ticks", "fence": 7, "expires_at": START})
    assert place("run", "-p", "ticks").code == 0
    theirs, ours = (it.folder / "store" / "ticks" for it in (other, place))
    for name in ("data", "meta/buckets", *(["meta/manifests"] if what == "commits" else [])):
        shutil.copytree(theirs / name, ours / name, dirs_exist_ok=True)
    place.database.bucketwise_lease.update_one({"_id": "ticks"}, {"$set": {"clean": False}})
    (found,) = place("check", "-p", "ticks", "--json").policy("ticks")["findings"]
    ran = place("run", "-p", "ticks", "--json")
    assert (found["code"], ran.code, ran.policy("ticks")["error"]) == ("archive-foreign", 5, found["message"])
    other.database.client.drop_database(other.database.name)


@after("run -p ticks")
def test_check_finds_that_an_older_commit_is_missing(place: Place) -> None:
    """A run lists all commits only after one that was cut off."""
    late = {"symbol": "MDB", "d": START + timedelta(days=1), "p": {"0": 1.5}}
    place.database.ticks.insert_one(late)
    assert place("run", "-p", "ticks").code == 0
    first, _ = sorted((place.folder / "store" / "ticks" / "meta" / "manifests").iterdir())
    first.unlink()
    place.database.bucketwise_lease.update_one({"_id": "ticks"}, {"$set": {"clean": False}})
    (found,) = place("check", "-p", "ticks", "--json").policy("ticks")["findings"]
    ran = place("run", "-p", "ticks", "--json")
    assert (found["code"], ran.code, ran.policy("ticks")["error"]) == (
        "archive-incomplete",
        5,
        found["message"],
    )
