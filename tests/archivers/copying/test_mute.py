"""A manifest that the first store can not give counts for nothing, though a copy has it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.stores.base import StoreError
from bucketwise.archivers.stores.copied import CopiedStore
from bucketwise.config.errors import BucketwiseError
from bucketwise.config.tables import Store
from tests.archivers.builders import LATER
from tests.archivers.copying.test_crash import NEVER, Lying, World, files


class Mute(Lying):
    """Besides, refuses to give these objects."""

    def get_bytes(self, key: str, size: int | None = None) -> bytes:
        if self._of in key:
            raise StoreError("get", key, "503 Slow Down")
        return super().get_bytes(key, size)


def test_no_manifest_counts_that_only_a_copy_has(
    database: Database[dict[str, Any]], file_store: Store, tmp_path: Path
) -> None:
    world = World(database, file_store, tmp_path / "b")
    live, store = world.cycle.live(), world.store(NEVER)
    mute = CopiedStore(Mute(world.cycle.root, "/meta/manifests/"), store.copies, store.journal)
    with pytest.raises(BucketwiseError):
        world.cycle.run(LATER + timedelta(days=3), store=mute)
    assert files(world.cycle.root) != files(world.folder)
    assert world.cycle.live() == live
