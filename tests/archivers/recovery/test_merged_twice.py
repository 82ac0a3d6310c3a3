"""What was merged twice, and what the first merge made has lost something before it was dropped. Only the
commit that stands in its place by now has to be sound."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.records.receipts import COLLECTION as RECEIPTS
from bucketwise.config.tables import Store
from tests.archivers.builders import DAY0, LATER, slots
from tests.archivers.harness import Cycle

pytestmark = pytest.mark.usefixtures("quick_disk")
Document = dict[str, Any]
HOUR, AFTER = timedelta(hours=1), timedelta(days=30)


class MergedTwice:
    """Two commits merged into `first`, and that with another one into `last`: all wait to be dropped."""

    def __init__(self, database: Database[Document], settings: Store) -> None:
        self.cycle = Cycle(database, slots("minute"), settings).load()
        self.live, self.database = self.cycle.live(), database
        self.first, self.last = self._merge(1, 5), self._merge(9)
        assert len(self.waiting()) == 4

    def _merge(self, *hours: int) -> str:
        for hour in hours:
            self.cycle.run(DAY0 + AFTER + hour * HOUR)
        assert self.cycle.compact(DAY0 + AFTER + 9 * HOUR).into == 1
        return max(self.cycle.as_stored().commits(), key=lambda it: it.sequence).name

    def waiting(self) -> list[str]:
        query = {"_id.policy": self.cycle.policy.name, "state": "replaced"}
        return [it["_id"]["name"] for it in self.database[RECEIPTS].find(query)]

    def files(self, *names: str) -> list[Path]:
        """What lies in the store under these names, but for the links of the chain."""
        found = (it for name in names for it in self.cycle.root.rglob(f"*{name}*"))
        return [it for it in found if "superseded" not in it.parts]


@pytest.mark.parametrize("kind", ["data/*/{}.parquet", "meta/buckets/{}.parquet"])
def test_what_the_first_merge_made_may_have_lost_a_file(
    database: Database[Document], file_store: Store, kind: str
) -> None:
    merged = MergedTwice(database, file_store)
    waiting = merged.waiting()
    (lost,) = merged.cycle.root.rglob(kind.format(merged.first))
    lost.unlink()
    merged.cycle.run(LATER)
    assert merged.waiting() == []
    assert merged.files(*waiting) == []
    assert merged.cycle.archived() == merged.live


@pytest.mark.parametrize("kind", ["data/*/{}.parquet", "meta/buckets/{}.parquet", "meta/manifests/*_{}.json"])
def test_nothing_goes_while_what_stands_in_its_place_is_damaged(
    database: Database[Document], file_store: Store, kind: str
) -> None:
    merged = MergedTwice(database, file_store)
    waiting = merged.waiting()
    before = merged.files(*waiting)
    (lost,) = merged.cycle.root.rglob(kind.format(merged.last))
    lost.unlink()
    for _ in range(2):
        with pytest.raises(DamagedError, match=lost.name):
            merged.cycle.run(LATER)
    assert (merged.waiting(), merged.files(*waiting)) == (waiting, before)


def test_nothing_goes_where_the_manifest_of_what_the_first_merge_made_is_lost(
    database: Database[Document], file_store: Store
) -> None:
    """Nothing tells which files it has, nor what it took over."""
    merged = MergedTwice(database, file_store)
    waiting = merged.waiting()
    (lost,) = merged.cycle.root.rglob(f"meta/manifests/*_{merged.first}.json")
    there = lost.read_bytes()
    lost.unlink()
    before = merged.files(*waiting)
    for _ in range(2):
        with pytest.raises(DamagedError, match=merged.first):
            merged.cycle.run(LATER)
    assert (merged.waiting(), merged.files(*waiting)) == (waiting, before)
    lost.write_bytes(there)
    merged.cycle.run(LATER)
    assert merged.files(*waiting) == []


@pytest.mark.parametrize("by", [None, "last"])
def test_nothing_goes_because_of_a_record_that_does_not_fit(
    database: Database[Document], file_store: Store, by: str | None
) -> None:
    """It says that the commit which stands was replaced, and that has lost a file."""
    merged = MergedTwice(database, file_store)
    waiting = merged.waiting()
    (lost,) = merged.cycle.root.rglob(f"data/*/{merged.last}.parquet")
    lost.unlink()
    says = {"state": "replaced", "replaced_by": by and waiting[0]}
    database[RECEIPTS].update_one({"_id.name": merged.last}, {"$set": says})
    before = merged.files(*waiting)
    with pytest.raises(DamagedError):
        merged.cycle.run(LATER)
    assert merged.files(*waiting) == before


def test_records_that_name_each_other_are_damage(database: Database[Document], file_store: Store) -> None:
    merged = MergedTwice(database, file_store)
    waiting = merged.waiting()
    before = merged.files(*waiting)
    other = min(waiting)
    database[RECEIPTS].update_one({"_id.name": merged.first}, {"$set": {"replaced_by": other}})
    with pytest.raises(DamagedError, match=other):
        merged.cycle.run(LATER)
    assert merged.files(*waiting) == before
