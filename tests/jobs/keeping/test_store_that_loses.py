"""A store that loses what was verified, from the outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.jobs.command import Ran
from tests.jobs.losing import damage
from tests.jobs.place import MINUTES, NOW, Place
from tests.jobs.states import after

Document = dict[str, Any]
DATA, BUCKETS = "ticks/data/*/*.parquet", "ticks/meta/buckets/*.parquet"


def losing(place: Place, kind: str, *, flips: bool) -> Ran:
    """A run whose store damages a file as soon as its commit is made."""
    meddle = "tests.jobs.losing", {"kind": kind, "flips": flips}
    command = "run", "--json", "--quiet", "-p", "ticks", "--now", NOW
    return place.command.meddled(meddle, *command, cwd=place.folder, MONGODB_URI=place.uri)


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize(("kind", "flips"), [(DATA, False), (BUCKETS, True)])
@after("rollup -p ticks")
def test_nothing_goes_whose_copy_went_before_it(place: Place, kind: str, flips: bool) -> None:
    ran = losing(place, kind, flips=flips)
    damaged = next(Path(place.folder, "store").glob("ticks/meta/manifests/*.json")).stem.partition("_")[2]
    assert ran.code == 5 and damaged in ran.policy("ticks")["error"]
    assert place.database.ticks.count_documents({}) == MINUTES
    for verb in ("run", "plan", "verify", "audit"):
        again = place(verb, "--json", "-p", "ticks")
        assert again.code == 5 and damaged in again.out, verb
    checked = place("check", "--json", "-p", "ticks")
    assert checked.code == 1 and damaged in str(checked.policy("ticks")["findings"])
    assert place.database.ticks.count_documents({}) == MINUTES


#: Half of the three hours, 30 days later; then the other half.
TWO_COMMITS = ("run -p ticks --now 2018-07-30T01:30:00Z", "run -p ticks")


@pytest.mark.proof
@after(*TWO_COMMITS)
def test_one_damaged_commit_does_not_keep_the_others_from_being_restored(place: Place) -> None:
    (_, last) = sorted(place.folder.glob("store/ticks/meta/manifests/*.json"))
    (_, receipt) = place("receipts", "-p", "ticks", "--json").policy("ticks")["deletes"]
    commit = last.stem.partition("_")[2]
    data, buckets = (
        next(place.folder.glob(f"store/{it.replace('*.', commit + '.')}")) for it in (DATA, BUCKETS)
    )
    for path, flips in ((data, True), (buckets, False), (last, True), (last, False)):
        check_damaged(place, path, receipt, flips=flips)
    assert place("restore", "-p", "ticks", "--to", "all", "--skip-damaged").code == 0
    assert place.database["all"].count_documents({}) == MINUTES


def check_damaged(place: Place, path: Path, receipt: Document, *, flips: bool) -> None:
    """Restores nothing, then what is left, while a file of the commit of this receipt is damaged."""
    data = path.read_bytes()
    damage(path, flips=flips)
    refused = place("restore", "-p", "ticks", "--to", "back", "--json")
    error = refused.policy("ticks")["error"]
    assert refused.code == 5 and path.name in error and "--skip-damaged" in error
    assert "back" not in place.database.list_collection_names()
    ran = place("restore", "-p", "ticks", "--to", "back", "--json", "--skip-damaged")
    found = ran.policy("ticks")
    (missing,) = found["missing"]
    gone = receipt["buckets"]
    assert (ran.code, found["buckets"]) == (3, MINUTES - gone)
    assert place.database.back.count_documents({}) == MINUTES - gone
    assert (missing["buckets"], missing["live"], missing["receipts"][0]["buckets"]) == (gone, 0, gone)
    assert path.name in missing["place"] and missing["commit"] in path.name
    assert [it["sequence"] for it in missing["receipts"]] == [receipt["sequence"]]
    shown = place("restore", "-p", "ticks", "--to", "back", "--skip-damaged")
    assert shown.code == 3 and f"missing: {gone}" in shown.out
    path.write_bytes(data)
    place.database.back.drop()


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize("files", [0, 1])
@after(*TWO_COMMITS)
def test_a_commit_that_is_gone_with_its_record_is_missed(place: Place, files: int) -> None:
    """Receipts of deletes still name it. With `files`, its manifest stays, and is not used."""
    receipts = place.database.bucketwise_receipts
    first, _ = receipts.find({"kind": "offline", "_id.policy": "ticks"}).sort("sequence")
    if not files:
        next(place.folder.glob(f"store/ticks/meta/manifests/*_{first['_id']['name']}.json")).unlink()
    receipts.delete_one({"_id": first["_id"]})
    for verb in (("verify",), ("audit",), ("restore", "--to", "back")):
        ran = place(*verb, "--json", "-p", "ticks")
        assert ran.code == (4 if verb == ("audit",) else 5) and first["_id"]["name"] in ran.out, verb
    assert "back" not in place.database.list_collection_names()
    ran = place("restore", "--to", "back", "--skip-damaged", "--json", "-p", "ticks")
    assert ran.code == 3
    assert place.database.back.count_documents({}) == MINUTES - first["buckets"]
    assert {it["commit"] for it in ran.policy("ticks")["missing"]} >= {first["_id"]["name"]}
    shown = place("restore", "--to", "back", "--skip-damaged", "-p", "ticks")
    assert shown.code == 3 and first["_id"]["name"] in shown.out
