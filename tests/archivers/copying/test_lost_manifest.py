"""The store has lost the manifest of a commit that waits to be dropped, since it was merged. It goes by that
of the copy; if there is none, runs halt, and nothing goes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.context import ArchiveState
from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.preconditions import has_copies, require
from bucketwise.archivers.records.changes import StoreJournal
from bucketwise.archivers.records.receipts import COLLECTION as RECEIPTS
from bucketwise.archivers.stores.copied import CopiedStore, Copy
from bucketwise.archivers.stores.file import FileStore
from bucketwise.config.tables import Store
from tests.archivers.builders import DAY0, LATER, slots
from tests.archivers.harness import Cycle

pytestmark = pytest.mark.usefixtures("quick_disk")
HOUR, AFTER = timedelta(hours=1), timedelta(days=30)


class Merged:
    """Two commits that were merged into one, in a store and a copy of it."""

    def __init__(self, database: Database[dict[str, Any]], settings: Store, folder: Path) -> None:
        folder.mkdir()
        self.cycle, self.folder = Cycle(database, slots("minute"), settings).load(), folder
        journal = StoreJournal(lambda: LATER, database)
        self.cycle.store = CopiedStore(
            self.cycle.store, [Copy("b", FileStore(folder), required=True)], journal
        )
        require(self.cycle.context(fence=1), [has_copies])
        self.documents = self.cycle.live()
        for hour in (1, 5):
            self.cycle.run(DAY0 + AFTER + hour * HOUR)
        assert self.cycle.compact(DAY0 + AFTER + 9 * HOUR).into == 1
        query = {"_id.policy": self.cycle.policy.name, "state": "replaced"}
        self.replaced = [it["_id"]["name"] for it in database[RECEIPTS].find(query)]
        assert len(self.replaced) == 2

    def left(self) -> list[Path]:
        """What lies in the store and in the copy of these, but for the links of the chain."""
        places = self.cycle.root, self.folder
        found = (path for it in places for name in self.replaced for path in it.rglob(f"*{name}*"))
        return [it for it in found if it.parent.name != "superseded"]

    def lose(self, *places: Path) -> dict[Path, bytes]:
        """Loses the manifest of one. Returns what was lost."""
        found = [path for it in places for path in it.rglob(f"meta/manifests/*_{self.replaced[0]}.json")]
        lost = {it: it.read_bytes() for it in found}
        assert len(lost) == len(places)
        for it in lost:
            it.unlink()
        return lost


@pytest.mark.parametrize("is_clean", [True, False])
def test_it_goes_by_the_manifest_of_the_copy(
    database: Database[dict[str, Any]], file_store: Store, tmp_path: Path, is_clean: bool
) -> None:
    merged = Merged(database, file_store, tmp_path / "b")
    merged.lose(merged.cycle.root)
    merged.cycle.run(LATER, state=ArchiveState(is_clean=is_clean))
    assert merged.left() == []
    merged.cycle.run(LATER + HOUR)
    assert merged.cycle.archived() == merged.documents
    assert merged.cycle.verify().bad == []


@pytest.mark.parametrize("is_clean", [True, False])
def test_where_the_copy_has_lost_it_as_well_nothing_goes(
    database: Database[dict[str, Any]], file_store: Store, tmp_path: Path, is_clean: bool
) -> None:
    merged = Merged(database, file_store, tmp_path / "b")
    lost = merged.lose(merged.cycle.root, merged.folder)
    before = merged.left()
    for _ in range(2):
        with pytest.raises(DamagedError, match=merged.replaced[0]) as told:
            merged.cycle.run(LATER, state=ArchiveState(is_clean=is_clean))
        assert told.value.exit_code == 5
    assert merged.left() == before
    for path, data in lost.items():
        path.write_bytes(data)
    merged.cycle.run(LATER)
    assert merged.left() == []
    assert merged.cycle.archived() == merged.documents


def test_one_that_was_given_up_is_waited_for_no_more(
    database: Database[dict[str, Any]], file_store: Store, tmp_path: Path
) -> None:
    merged = Merged(database, file_store, tmp_path / "b")
    merged.lose(merged.cycle.root, merged.folder)
    mine = {"_id.policy": merged.cycle.policy.name}
    seal = (database[RECEIPTS].find_one({**mine, "_id.name": merged.replaced[0]}) or {})["seal"]
    database[RECEIPTS].update_one({**mine, "_id.name": "heads"}, {"$addToSet": {"lost": seal}})
    for hours in (0, 1):
        merged.cycle.run(LATER + hours * HOUR)
    assert merged.left() == []  # its files are of no commit by now
    assert merged.cycle.archived() == merged.documents
