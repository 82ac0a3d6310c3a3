"""What a run holds, and for how long."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
from pymongo.database import Database

from archivers import offline
from archivers.manifest import Manifest
from archivers.offline import OfflineArchive
from buckets.decode import Lot
from buckets.pack import Packed, pack
from buckets.raw import Batch
from config.policies import Store
from tests.archivers.builders import slots
from tests.archivers.harness import Cycle

Document = dict[str, Any]

_HEAPS = """
import ctypes, sys, threading
import archivers
barrier = threading.Barrier(5)
def work():
    held = [bytearray(5000) for _ in range(100)]
    barrier.wait()
    barrier.wait()
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
barrier.wait()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
barrier.wait()
"""


@pytest.mark.parametrize(("asked", "heaps"), [({}, 1), ({"MALLOC_ARENA_MAX": "3"}, 3)])
def test_threads_share_a_heap_unless_somebody_asked_for_more(
    tmp_path: Path, asked: dict[str, str], heaps: int
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    info = tmp_path / "info.xml"
    subprocess.run([sys.executable, "-c", _HEAPS, str(info)], env=environment | asked, check=True, timeout=60)
    assert info.read_text().count("<heap nr=") == heaps


def test_what_was_read_is_given_back_before_the_copy_is_read_again(
    database: Database[Document], file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the documents in the order of the archive stay: a copy that is read back takes as much again."""
    held: list[ref[Any]] = []
    checked: list[int] = []
    rebuilt = OfflineArchive._rebuilt

    def packing(lot: Lot) -> Packed:
        packed = pack(lot)
        held.extend(map(ref, (lot.batch, lot.decoded, packed.rows.time)))
        assert packed.order.tolist() != list(range(len(lot)))
        return packed

    def rebuilding(archive: OfflineArchive, manifest: Manifest) -> Batch:
        assert [it() for it in held] == [None] * 3
        checked.append(manifest.buckets)
        return rebuilt(archive, manifest)

    monkeypatch.setattr(offline, "pack", packing)
    monkeypatch.setattr(OfflineArchive, "_rebuilt", rebuilding)
    cycle = Cycle(database, slots(), file_store).load()
    assert cycle.run().deleted == sum(checked) == len(cycle.case.documents)
