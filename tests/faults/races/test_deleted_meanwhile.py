"""Buckets that somebody deletes in the middle of a run: summaries hold what is live or archived."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database

from tests.archivers.harness import in_turn
from tests.faults.meddling import hook
from tests.faults.scene import NOW, OFFLINE, ONLINE, RAW, ROLLUP, SLOTS, MakeScene, Scene
from tests.jobs.command import Meddle

Db = Database[dict[str, Any]]
ARCHIVES = {"offline": OFFLINE, "online": ONLINE}
GRACE = 'grace = "1d"\n'
#: How late data is met, and what else the archive says.
WAYS = {
    "told": ("stream", ""),
    "told in a grace": ("stream", GRACE),
    "looked for among what is kept": ("scan", "delete = false\n"),
}
BUCKETS, GONE = 12, 7  # of the buckets of a scene


def deleted_before(it: Scene, function: str) -> Meddle:
    given = {"function": function, "uri": it.uri, "database": it.database.name, "identity": GONE}
    return hook(deleting=given)


def check_archive_and_summaries(it: Scene) -> None:
    assert it.truth.archived() == Counter(it.truth.rows_of(it.truth.units.values()))
    it.truth.check_summaries()


@pytest.mark.proof
@pytest.mark.parametrize(("way", "to"), in_turn(list(WAYS), list(ARCHIVES)))
def test_once_it_is_read_and_before_its_windows_are_brought_up_to_date(
    scene: MakeScene,
    to: str,
    way: str,
) -> None:
    """What tells of the delete is read before there are copies: no later run would look there again."""
    late, rest = WAYS[way]
    text = f'{SLOTS}{ROLLUP}late_data = "{late}"\n{ARCHIVES[to]}{rest}'
    it = scene(text)
    is_told = late == "stream"  # else the summary is the only witness of what was there
    meddle = deleted_before(it, "bucketwise.archivers.moving.sweep.Sweep.flush")
    body = it.well(meddle=meddle, code=0 if is_told else 3)
    it.truth.removed(GONE)
    assert body["archive"]["buckets"] == BUCKETS - 1
    assert body["archive"]["gone"] == (0 if is_told else 1)
    for _ in range(2):
        if is_told:
            check_archive_and_summaries(it)
        else:
            assert it.truth.archived() == Counter(it.truth.rows_of(it.truth.units.values()))
            assert it.truth.database["it_hourly"].find_one({"count": 8}) is not None
            found = it.well("audit", code=4)["findings"]
            assert [it["code"] for it in found] == ["readings-gone"]
        it.well()


@pytest.mark.proof
@pytest.mark.parametrize("to", ARCHIVES)
def test_one_that_moved_after_it_was_copied_and_before_its_original_goes(
    scene: MakeScene,
    database: Db,
    to: str,
) -> None:
    """The delete tells where the bucket was, with a pre-image; its copy counts again, and lies elsewhere."""
    text = SLOTS + ROLLUP + 'late_data = "stream"\n' + ARCHIVES[to] + GRACE
    it = scene(text)
    database.command({"collMod": "it", "changeStreamPreAndPostImages": {"enabled": True}})
    it.well()
    away = it.when(GONE, BUCKETS) + timedelta(days=20)
    database["it"].update_one({"_id": GONE}, {"$set": {"d": away}})
    it.well("rollup")
    later = NOW + timedelta(days=2)
    run = {
        "offline": "bucketwise.archivers.moving.offline.OfflineRun._delete",
        "online": "bucketwise.archivers.moving.online.OnlineRun._delete",
    }
    it.well(now=later, meddle=deleted_before(it, run[to]))
    assert it.truth.live() == []
    it.well(now=later)
    check_archive_and_summaries(it)


@pytest.mark.proof
@pytest.mark.parametrize("to", ARCHIVES)
def test_one_that_moved_while_the_windows_of_its_copy_are_rolled_up(
    scene: MakeScene, database: Db, to: str
) -> None:
    """Its copy counts in them for that moment, so that it can't make way for what was there before."""
    it = scene(SLOTS + ROLLUP + 'late_data = "stream"\n' + ARCHIVES[to] + GRACE)
    it.well()
    away = it.when(GONE, BUCKETS) - timedelta(days=20)
    database["it"].update_one({"_id": GONE}, {"$set": {"d": away}})
    it.well("rollup")
    meddle = deleted_before(it, "bucketwise.archivers.run.ArchiveRun.roll_up_left")
    it.well(meddle=meddle, code=3)
    for days in (2, 4):
        it.well(now=NOW + timedelta(days=days))
    assert it.truth.live() == []
    check_archive_and_summaries(it)


@pytest.mark.proof
@pytest.mark.parametrize("to", ARCHIVES)
def test_one_that_is_written_anew_on_another_day_once_its_copy_counts(
    scene: MakeScene, database: Db, to: str
) -> None:
    """What tells of the new one names its own day alone, and the copy counts no more on the day of before."""
    it = scene(SLOTS + ROLLUP + 'late_data = "stream"\n' + ARCHIVES[to] + GRACE)
    it.well()
    database["it"].delete_one({"_id": GONE})
    it.well("rollup")
    it.truth.removed(GONE)
    it.insert(GONE, it.when(GONE, BUCKETS) + timedelta(days=5), 3, 7.0)
    for days in (2, 4, 6):
        it.well(now=NOW + timedelta(days=days))
    assert it.truth.live() == []
    check_archive_and_summaries(it)


@pytest.mark.proof
@pytest.mark.parametrize("to", ARCHIVES)
def test_one_that_was_copied_moved_and_copied_again(scene: MakeScene, database: Db, to: str) -> None:
    """Two commits have a copy of it, and only the newer one counts once it is gone."""
    it = scene(SLOTS + ROLLUP + 'late_data = "stream"\n' + ARCHIVES[to] + GRACE)
    it.well()
    away = it.when(GONE, BUCKETS) + timedelta(days=20)
    it.truth.removed(GONE)
    database["it"].update_one({"_id": GONE}, {"$set": {"d": away}})
    it.truth.wrote(*(bytes(moved.raw) for moved in database["it"].with_options(RAW).find({"_id": GONE})))
    it.well(now=NOW + timedelta(hours=1))
    database["it"].delete_one({"_id": GONE})
    for days in (2, 4, 6):
        it.well(now=NOW + timedelta(days=days))
    assert it.truth.live() == []
    check_archive_and_summaries(it)
