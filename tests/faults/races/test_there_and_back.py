"""A bucket that changes and changes back while its copy is under way: summaries hold what is archived."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from bucketwise.archivers.moving import sweep
from bucketwise.archivers.moving.copies import Copies
from bucketwise.buckets.bson import cursor as raw_cursor
from bucketwise.config.tables import Store
from tests.faults.scene import OFFLINE, ROLLUP, SLOTS, START, Scene
from tests.jobs.command import CommandLine

Db = Database[dict[str, Any]]
IDENTITY = 1


def install(uri: str, database: str, readings: int) -> None:
    """It changes once its copy has begun, and back when the next one begins."""
    source = MongoClient[dict[str, Any]](uri)[database]["it"]
    sweep.MAX_READINGS = readings
    raw_cursor.MOST_DOCUMENTS = 4
    begin = Copies.begin
    begun: list[int] = []
    was: list[float] = []

    def change_back(self: Any, buckets: Any) -> None:
        begin(self, buckets)
        begun.append(len(buckets))
        if len(begun) == 1:
            found = source.find_one({"_id": IDENTITY})
            assert found is not None
            was.append(found["p"]["0"])
            source.update_one({"_id": IDENTITY}, {"$set": {"p.0": 1e6}})
        if len(begun) == 2:
            source.update_one({"_id": IDENTITY}, {"$set": {"p.0": was[0]}})

    Copies.begin = change_back  # type: ignore[method-assign]


@pytest.mark.proof
def test_there_and_back(
    tmp_path: Path, database: Db, mongodb_uri: str, file_store: Store, bucketwise: CommandLine
) -> None:
    text = f'{SLOTS}{ROLLUP}late_data = "stream"\n{OFFLINE}'
    it = Scene(tmp_path, database, mongodb_uri, file_store, bucketwise, text)
    for number in range(12):
        it.insert(number, START + number * timedelta(minutes=5), 4)
    it.well("rollup")
    given = {"uri": mongodb_uri, "database": database.name, "readings": 16}
    assert it.well("archive", meddle=(__name__, given))["parts"] > 1
    it.well()
    assert it.truth.live() == []
    it.truth.check_summaries()
