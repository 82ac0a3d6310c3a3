"""A commit has lost its manifest, and is merged, erased or ended, or waits to be dropped. Either nothing of
it is left then, in the store and in its copy; or that halts, and has lost nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import bson
import pytest
from pymongo.database import Database

from bucketwise.archivers.context import ArchiveState
from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.kinds import archive_of
from bucketwise.archivers.preconditions import has_copies, require
from bucketwise.archivers.records.changes import StoreJournal
from bucketwise.archivers.records.receipts import COLLECTION
from bucketwise.archivers.stores.copied import CopiedStore, Copy
from bucketwise.archivers.stores.file import FileStore
from bucketwise.buckets.fields.times import EVER, TimeRange
from bucketwise.config.policies import Retain
from bucketwise.config.tables import Store
from bucketwise.rollups.holds import Hold
from tests.archivers.builders import CODEC, DAY0, LATER, slots
from tests.archivers.expiring.test_expiry import writer
from tests.archivers.harness import Cycle

pytestmark = pytest.mark.usefixtures("quick_disk")
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
ORCL = {"meta.symbol": "ORCL"}
#: Where the manifest is lost: in a store without a copy; in one whose copy has it; in both.
ALONE, FIRST, BOTH = "alone", "in the store", "everywhere"
WHERE = pytest.mark.parametrize("where", [ALONE, FIRST, BOTH])


class Losing:
    """Two commits of one day in a store, with a copy or without one."""

    def __init__(
        self, database: Database[dict[str, Any]], settings: Store, folder: Path, where: str, **archive: Any
    ) -> None:
        self.where, self.folders = where, [folder]
        self.cycle = Cycle(database, slots("minute").with_archive(**archive), settings).load()
        self.folders.append(self.cycle.root)
        folder.mkdir()
        if where != ALONE:
            copy = Copy("b", FileStore(folder), required=True)
            self.cycle.store = CopiedStore(self.cycle.store, [copy], StoreJournal(lambda: LATER, database))
            require(self.cycle.context(fence=1), [has_copies])
        self.documents = self.cycle.live()
        for until in (DAY0 + 10 * HOUR, None):
            self.cycle.run(until=until)
        self.first, self.second = (it.name for it in self.cycle.as_stored().commits())
        assert (self.cycle.live() == []) == (not archive)

    def lose(self, name: str) -> dict[Path, bytes]:
        """Loses the manifest of a commit, and where that is lost everywhere also files that the copy has.
        Returns what was lost."""
        places = self.folders if self.where == BOTH else self.folders[1:]
        found = [path for it in places for path in it.rglob(f"meta/manifests/*_{name}.json")]
        assert len(found) == len(places)
        found += self.cycle.root.rglob(f"{name}.parquet") if self.where == BOTH else []
        lost = {it: it.read_bytes() for it in found}
        for it in found:
            it.unlink()
        return lost

    def left(self, *names: str) -> list[Path]:
        """What lies anywhere under these names, but for the links of the chain."""
        found = (path for it in self.folders for name in names for path in it.rglob(f"*{name}*"))
        return [it for it in found if not (it.parent.name == "superseded" and it.suffix == ".json")]

    def files(self) -> dict[Path, bytes]:
        """All that holds buckets, or tells where they are."""
        found = (path for it in self.folders for path in it.rglob("*") if path.is_file())
        return {it: it.read_bytes() for it in found if "lineage" not in it.parts}

    def halts(self, act: Callable[[], object], lost: dict[Path, bytes]) -> None:
        """Whatever is tried says so, and changes nothing, until the manifest is there again."""
        before = self.files()
        for _ in range(2):
            with pytest.raises(DamagedError, match=next(iter(lost)).name) as told:
                act()
            assert told.value.exit_code == 5
        assert self.files() == before
        for path, data in lost.items():
            path.write_bytes(data)
        act()

    def check_whole(self, documents: list[bytes]) -> None:
        """Clean runs go on, and the archive holds these."""
        for hours in (2, 4):
            self.cycle.run(LATER + DAY + hours * HOUR)
        assert self.cycle.archived() == documents


def clean() -> ArchiveState:
    """Nothing is looked for that earlier runs may have left."""
    return ArchiveState(is_clean=True)


@pytest.fixture
def losing(database: Database[dict[str, Any]], file_store: Store, tmp_path: Path, where: str) -> Losing:
    return Losing(database, file_store, tmp_path / "b", where)


@WHERE
def test_what_was_merged_goes_whole(losing: Losing) -> None:
    cycle = losing.cycle
    assert cycle.compact().into == 1
    losing.lose(losing.first)
    cycle.run(LATER + DAY, state=clean())
    assert losing.left(losing.first, losing.second) == []
    losing.check_whole(losing.documents)


@WHERE
def test_what_was_merged_stays_under_a_hold(losing: Losing) -> None:
    """Where nothing tells which series it holds, it may be any."""
    cycle = losing.cycle
    assert cycle.compact().into == 1
    losing.lose(losing.first)
    before = losing.left(losing.first)
    hold = Hold("case-9", ORCL, EVER, "a court", LATER, "ann", freeze=False, salt=bytes(32))
    assert writer(cycle, LATER).place(hold)
    cycle.run(LATER + DAY, state=clean())
    assert losing.left(losing.first) == before
    assert writer(cycle, LATER).release("case-9", "ann")
    cycle.run(LATER + DAY, state=clean())
    assert losing.left(losing.first, losing.second) == []
    losing.check_whole(losing.documents)


@WHERE
def test_it_is_merged_by_the_manifest_of_the_copy(losing: Losing) -> None:
    cycle = losing.cycle
    lost = losing.lose(losing.first)
    if losing.where == FIRST:
        assert cycle.compact(state=clean()).into == 1
    else:
        losing.halts(lambda: cycle.compact(state=clean()), lost)
    cycle.run(LATER + DAY, state=clean())
    assert losing.left(losing.first, losing.second) == []
    losing.check_whole(losing.documents)


@WHERE
@pytest.mark.parametrize("is_merged", [False, True])
def test_nothing_is_left_of_what_was_erased(losing: Losing, is_merged: bool) -> None:
    cycle = losing.cycle
    if is_merged:
        assert cycle.compact().into == 1
    lost = losing.lose(losing.first)

    def erase() -> None:
        assert cycle.erase(ORCL, state=clean()).is_found is False

    if is_merged or losing.where == FIRST:
        erase()
    else:
        losing.halts(erase, lost)
    assert losing.left(losing.first, losing.second) == []
    others = [it for it in losing.documents if bson.decode(it, CODEC)["meta"]["symbol"] != "ORCL"]
    assert 0 < len(others) < len(losing.documents)
    losing.check_whole(others)


@WHERE
@pytest.mark.parametrize("is_merged", [False, True])
def test_nothing_is_left_of_what_has_ended(losing: Losing, is_merged: bool) -> None:
    """Also of those that were merged, though queries may still read these."""
    cycle = losing.cycle
    if is_merged:
        assert cycle.compact().into == 1
    past, names = ending(losing)
    lost = losing.lose(losing.first)
    if losing.where == FIRST:
        expire(cycle, past)
    else:
        losing.halts(lambda: expire(cycle, past), lost)
    assert losing.left(*names) == []
    losing.check_whole([])


@pytest.mark.parametrize("where", [ALONE, BOTH])
def test_what_was_given_up_does_not_keep_the_others_from_ending(losing: Losing) -> None:
    cycle = losing.cycle
    assert cycle.compact().into == 1
    past, names = ending(losing)
    losing.lose(losing.first)
    with pytest.raises(DamagedError) as told:
        expire(cycle, past)
    receipts = cycle.database[COLLECTION]
    seal = receipts.find_one({"_id.name": losing.first})["seal"]  # type: ignore[index]
    assert seal in str(told.value)
    receipts.update_one({"_id.name": "heads"}, {"$addToSet": {"lost": seal}})
    expire(cycle, past)
    cycle.run(past + 2000 * DAY, state=clean())
    assert losing.left(*names) == []
    losing.check_whole([])


def ending(losing: Losing) -> tuple[datetime, list[str]]:
    """Puts tombstones on all. Returns when these are due, and what there is then, with what was merged."""
    assert losing.cycle.policy.archive is not None
    compact = losing.cycle.policy.archive.compact.model_copy(update={"delay": 1000 * DAY})
    case = losing.cycle.case.with_archive(compact=compact)
    retain = Retain(archive=60 * DAY, archive_grace=DAY)
    losing.cycle.case = replace(case, policy=case.policy.model_copy(update={"retain": retain}))
    expire(losing.cycle, LATER + 100 * DAY)
    found = losing.cycle.database[COLLECTION].find({"kind": "offline"})
    return LATER + 102 * DAY, [it["_id"]["name"] for it in found]


def expire(cycle: Cycle, now: datetime) -> None:
    cycle.fence += 1
    cycle.runs.add((cycle.fence, now))
    archive_of(cycle.context(now, fence=cycle.fence, state=clean())).expire()


@pytest.fixture
def kept(database: Database[dict[str, Any]], file_store: Store, tmp_path: Path) -> Losing:
    """All buckets have left their commits, and what they were lies beside these, in the copy alone."""
    losing = Losing(database, file_store, tmp_path / "b", FIRST, grace=2 * DAY)
    database["slots"].update_many({}, {"$set": {"note": "new"}, "$unset": {"p.5": 1}})
    for days in (3, 6):
        losing.cycle.run(LATER + days * DAY)
    assert losing.cycle.live() == []
    copy, store = (set(it.rglob("*.bson")) for it in losing.folders)
    assert {it.parent.name for it in copy} == {"versions", "superseded"}
    for path in store:
        path.unlink()
    return losing


def test_nothing_is_left_of_kept_versions_that_were_erased(kept: Losing) -> None:
    assert kept.cycle.erase(ORCL, now=LATER + 7 * DAY).is_found is False
    assert not any(b"ORCL" in path.read_bytes() for it in kept.folders for path in it.rglob("*.bson"))
    assert any(b"MDB" in path.read_bytes() for it in kept.folders for path in it.rglob("*.bson"))


def test_nothing_is_left_of_kept_versions_that_have_ended(kept: Losing) -> None:
    past, names = ending(kept)
    expire(kept.cycle, past)
    assert kept.left(*names) == [path for it in kept.folders for path in it.rglob("*.bson")] == []


@pytest.mark.parametrize("where", [FIRST])
def test_an_erasure_does_not_tell_files_of_a_commit_whose_manifest_is_in_the_copy(losing: Losing) -> None:
    """It is of another series, or of another time: its files must not be removed."""
    losing.lose(losing.second)
    before = losing.left(losing.second)
    within = TimeRange(DAY0, DAY0 + 5 * HOUR)
    assert losing.cycle.erase(ORCL, within, state=clean()).is_found is False
    assert losing.left(losing.first) == []
    assert losing.left(losing.second) == before
