"""A commit that an earlier version had emptied, without a receipt, when its run died: it goes if nothing is
lost with it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.restoring.options import Mode, VersionHandling
from bucketwise.config.errors import HaltedError
from bucketwise.config.tables import Store
from tests.archivers.builders import LATER, Case, raw_documents, slots
from tests.archivers.faults import Crash
from tests.archivers.harness import Cycle

Document = dict[str, Any]
GRACE = timedelta(days=2)


def die_in_drop(act: Callable[[], object]) -> None:
    def die(*_args: object) -> None:
        raise Crash

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Crash):
        patch.setattr(OfflineArchive, "drop", die)
        act()


def as_an_earlier_version_left_it(cycle: Cycle) -> str:
    """Takes out the receipt of the emptied commit, and what receipts did not tell. Returns the commit."""
    records = cycle.database["bucketwise_receipts"]
    found = records.find_one_and_delete({"kind": "emptied"})
    assert found is not None
    (record,) = records.find({"state": "replaced"})
    assert (record["_id"]["name"], record["replaced_by"]) == (found["commit"], None)
    records.update_many({}, {"$unset": {"done_at": "", "latest": "", "lifted": ""}})
    if found["sequence"] == 1:
        records.delete_one({"_id.name": "last"})
    else:
        before = {"sequence": found["sequence"] - 1, "sha256": found["previous"]}
        records.update_one({"_id.name": "last"}, {"$set": before})
    return str(found["commit"])


@pytest.fixture
def changed(database: Database[Document], file_store: Store) -> Cycle:
    """All that was copied has changed in its grace."""
    cycle = Cycle(database, slots("minute").with_archive(grace=GRACE), file_store).load()
    cycle.run()
    database["slots"].update_many({}, {"$set": {"note": "new"}})
    database["slots"].update_one({}, {"$unset": {"p": ""}})
    die_in_drop(lambda: cycle.run(LATER + 2 * GRACE))
    return cycle


@pytest.mark.proof
def test_copies_of_what_has_changed_lie_beside_the_archive(changed: Cycle) -> None:
    before = sorted(changed.case.documents)
    commit = as_an_earlier_version_left_it(changed)
    assert changed.verify().bad == []
    changed.run(LATER + 2 * GRACE)
    changed.run(LATER + 4 * GRACE)
    assert changed.verify().bad == []
    assert commit not in {it.name for it in changed.as_stored().commits()}
    changed.restore("back", how=VersionHandling(Mode.all, "older"))
    assert len(raw_documents(changed.database, "back")) == len(before)


def test_it_stays_where_something_would_be_lost(changed: Cycle) -> None:
    commit = as_an_earlier_version_left_it(changed)
    for path in (changed.root / changed.policy.name / "meta/versions").iterdir():
        path.unlink()
    assert [it.code for it in changed.verify().bad] == ["record-differs"]
    with pytest.raises(HaltedError, match="the commit has ended, and no receipt does"):
        changed.run(LATER + 2 * GRACE)
    assert commit in {it.name for it in changed.as_stored().commits()}


@pytest.mark.parametrize("is_older", [True, False])
def test_what_an_erasure_has_emptied(database: Database[Document], file_store: Store, is_older: bool) -> None:
    """This version writes a receipt, so that none of an erasure explains another commit."""
    base = slots("minute")
    cycle = Cycle(database, Case(base.name, base.policy, base.documents[:1], []), file_store).load()
    cycle.run()
    series = dict(zip(cycle.policy.series_names, map(str, base.readings[0][0]), strict=True))
    die_in_drop(lambda: cycle.erase(series))
    commit = as_an_earlier_version_left_it(cycle)
    if is_older:
        cycle.erase(series)
        cycle.run()
    else:
        database["bucketwise_receipts"].update_one({"kind": "delete"}, {"$set": {"done_at": LATER}})
        with pytest.raises(HaltedError, match="the commit has ended, and no receipt does"):
            cycle.run()
    assert (commit in {it.name for it in cycle.as_stored().commits()}) == (not is_older)
