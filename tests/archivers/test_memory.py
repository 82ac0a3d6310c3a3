"""What a run holds, and for how long."""

from __future__ import annotations

from typing import Any
from weakref import ref

import pytest
from pymongo.database import Database

from archivers.format import archive as offline
from archivers.format.archive import OfflineArchive
from archivers.format.manifest import Manifest
from buckets.bson.raw import Batch
from buckets.decoding.decode import Lot
from buckets.packing.pack import Packed, pack
from config.policies import Store
from tests.archivers.builders import slots
from tests.archivers.harness import Cycle

Document = dict[str, Any]


def test_what_was_read_is_given_back_before_the_copy_is_read_again(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the documents stay, to be compared."""
    held: list[ref[Any]] = []
    checked: list[int] = []
    holds = OfflineArchive.holds

    def packing(lot: Lot) -> Packed:
        packed = pack(lot)
        held.extend(map(ref, (lot.decoded, packed.rows.time)))
        return packed

    def comparing(archive: OfflineArchive, manifest: Manifest, batch: Batch) -> bool:
        assert [it() for it in held] == [None] * 2
        checked.append(manifest.buckets)
        return holds(archive, manifest, batch)

    monkeypatch.setattr(offline, "pack", packing)
    monkeypatch.setattr(OfflineArchive, "holds", comparing)
    cycle = Cycle(database, slots(), file_store).load()
    assert cycle.run().deleted == sum(checked) == len(cycle.case.documents)
