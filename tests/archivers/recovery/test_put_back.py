"""A database that is put back to an older state, beside a newer store: nothing is lost, and runs go on."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from pymongo.database import Database

from bucketwise.archivers.context import Connections
from bucketwise.archivers.format.keys import Keys
from bucketwise.archivers.moving.archive import check_archive
from bucketwise.config.errors import HaltedError
from bucketwise.config.tables import Store
from bucketwise.jobs.adopt import take_over
from bucketwise.jobs.audit.audit import audit_policy
from tests.archivers.builders import CODEC, Case, insert, slots
from tests.archivers.harness import Backup, Cycle, whole

Document = dict[str, Any]
RECEIPTS = "bucketwise_receipts"


pytestmark = pytest.mark.usefixtures("quick_disk")


@pytest.fixture
def cycle(database: Database[Document], file_store: Store) -> Cycle:
    """Nothing is there yet."""
    base = slots("minute")
    case = Case(base.name, base.policy, base.documents, [])
    return Cycle(database, case, file_store, keys=Keys("k" * 32))


def put(cycle: Cycle, first: int, last: int) -> None:
    insert(cycle.database, cycle.policy.collection, cycle.case.documents[first:last])


def change(cycle: Cycle, identity: int, note: str = "new") -> None:
    cycle.database[cycle.policy.collection].update_one({"_id": identity}, {"$set": {"note": note}})


def keep(cycle: Cycle, kept: bool) -> None:
    cycle.case = cycle.case.with_archive(delete=not kept)


def held(cycle: Cycle) -> list[tuple[int, str]]:
    """`_id` and note of each bucket that the archive holds, live ones included: each version counts."""
    archive = cycle.as_stored()
    found = []
    for manifest in archive.manifests(-(2**50), 2**50):
        batch = whole(archive, manifest)
        found += [bson.decode(document, CODEC) for document in batch.main]
    return sorted((it["_id"], it.get("note", "")) for it in found)


def everything(cycle: Cycle) -> dict[str, Any]:
    """All that the database and the store hold, whoever is the owner."""
    files = {it: it.read_bytes() for it in cycle.root.rglob("*") if it.is_file()}
    names = cycle.database.list_collection_names()
    return {str(it): data for it, data in files.items()} | {
        name: sorted(bson.encode(it, codec_options=CODEC) for it in cycle.database[name].find())
        for name in names
    }


def codes(cycle: Cycle) -> set[tuple[str, str]]:
    return {(it.code, it.severity) for it in audit_policy(cycle.context()).findings}


@pytest.mark.parametrize("failed", (0, 2))
def test_of_the_day_before(cycle: Cycle, failed: int) -> None:
    """The count of the lease is put back too, so that the next run has that of the one that is forgotten:
    what it archived stays, though an older version of a bucket is live again."""
    put(cycle, 4, 6)
    cycle.run()
    put(cycle, 0, 4)
    backup = Backup(cycle)
    change(cycle, 1)
    assert cycle.run().deleted == 4
    backup.put_back(cycle)
    cycle.fence += failed  # runs that came to nothing
    for _ in range(2):  # it changes nothing
        with pytest.raises(HaltedError, match="bucketwise adopt --reason"):
            cycle.run()
    assert len(cycle.adopt()) == 1
    cycle.run()
    assert (1, "new") in held(cycle)
    receipts = cycle.database[RECEIPTS].find({"kind": "offline"})
    assert {it["deleted"] for it in receipts} == {1, 2, 4}  # 1: the older version, which is kept besides
    assert cycle.live() == []
    assert cycle.verify().bad == []


def test_what_another_database_archived_under_an_earlier_lease_stays(cycle: Cycle) -> None:
    """An archive goes to another database and back: each has its own count of leases."""
    put(cycle, 4, 6)
    begins = Backup(cycle)
    put(cycle, 0, 1)
    cycle.run(fence=3)
    ours = Backup(cycle)
    begins.put_back(cycle)
    cycle.adopt()
    put(cycle, 0, 1)
    change(cycle, 0, "theirs")
    cycle.run(fence=2)
    ours.put_back(cycle)
    cycle.fence = 3
    cycle.adopt()
    cycle.run()
    assert held(cycle)[:2] == [(0, ""), (0, "theirs")]
    assert cycle.live() == []


@pytest.mark.proof
@pytest.mark.in_turn(1)
@pytest.mark.parametrize(("whole", "later"), [(False, True), (True, False)])
def test_a_commit_was_dropped_since(cycle: Cycle, whole: bool, later: bool) -> None:
    """… that the database takes for open: its buckets are live again, and nothing was deleted of them."""
    put(cycle, 4, 6)
    cycle.run()
    put(cycle, 0, 2)
    keep(cycle, True)
    cycle.run()
    backup = Backup(cycle)
    change(cycle, 0)
    if whole:
        change(cycle, 1)
    keep(cycle, False)
    assert cycle.run().deleted == 2
    if later:
        put(cycle, 2, 4)
        cycle.run()
    after = held(cycle)
    backup.put_back(cycle)
    check_archive(Connections(cycle.database, cycle.store), cycle.policy)  # readings can be asked for
    cycle.adopt()
    cycle.run()
    cycle.run()
    assert cycle.live() == []
    assert set(after) <= set(held(cycle))
    assert {(0, ""), (1, "")} <= set(held(cycle))
    assert len(held(cycle)) == len(set(held(cycle)))
    assert cycle.verify().bad == []
    assert codes(cycle) <= {("receipts-lost", "warning")}


def test_receipts_are_lost_and_an_id_comes_again(cycle: Cycle) -> None:
    """Nobody can tell any more that it is another bucket, and not a newer version. Both are kept."""
    for first in (0, 2, 4):
        put(cycle, first, first + 2)
        cycle.run()
    put(cycle, 0, 1)
    change(cycle, 0)
    cycle.database[RECEIPTS].drop()
    with pytest.raises(HaltedError, match="adopt"):
        cycle.run()
    cycle.adopt()
    assert cycle.run().deleted == 1
    assert {(0, ""), (0, "new")} <= set(held(cycle))
    assert codes(cycle) == {("receipts-lost", "warning")}


def test_an_audit_of_what_is_signed_and_late(cycle: Cycle) -> None:
    put(cycle, 0, 2)
    cycle.run()
    put(cycle, 2, 4)
    assert codes(cycle) == {("overdue", "error")}


def test_what_was_deleted_of_a_dropped_commit(cycle: Cycle) -> None:
    """Of it a copy may be nowhere else: a person has to look, and can go on."""
    put(cycle, 0, 4)
    cycle.run()
    paths = (cycle.root / cycle.policy.name / "meta/manifests").iterdir()
    (name,) = (it.stem.partition("_")[2] for it in paths)
    backup = Backup(cycle)
    cycle.restore(cycle.policy.collection)
    cycle.unpin()
    change(cycle, 1)
    assert cycle.run().deleted == 4
    backup.put_back(cycle)
    before = everything(cycle)
    cycle.fence += 1
    with pytest.raises(HaltedError, match=f"{name}.json: the manifest is missing"):
        take_over(cycle.context(fence=cycle.fence), "a backup was put back")
    assert everything(cycle) == before
    assert "part-missing" in {bad.code for bad in cycle.verify().bad}
    aside = (cycle.root / cycle.policy.name / "meta/superseded" / f"{name}.bson").read_bytes()
    assert aside == cycle.case.documents[1]
    cycle.database[RECEIPTS].delete_one({"_id.name": name})
    insert(cycle.database, cycle.policy.collection, [aside])
    cycle.adopt()
    cycle.run()
    assert cycle.live() == []
    assert {(0, ""), (1, ""), (1, "new"), (2, ""), (3, "")} == set(held(cycle))
    assert {bad.code for bad in cycle.verify().bad} == {"record-differs"}  # one was removed by hand
