"""A store with copies: in which order it writes, deletes and reads, and what a store that is down leaves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from bucketwise.archivers.records.changes import CopyRecords, StoreJournal, Waiting
from bucketwise.archivers.records.receipts import Receipts
from bucketwise.archivers.stores.base import AlreadyExists, Corrupt, NotFound, StoreError
from bucketwise.archivers.stores.copied import CopiedStore, Copy
from bucketwise.archivers.stores.file import FileStore

AT = datetime(2018, 7, 1, tzinfo=UTC)
KEY = "ticks/data/a"


class Failing(FileStore):
    """Can't be reached while it is `down`; returns other bytes than were put while it `lies`."""

    down = lies = False

    def put_bytes(self, key: str, data: bytes, **given: Any) -> None:
        self._reach(key)
        super().put_bytes(key, data[:-1] if self.lies else data, **given)

    def get_bytes(self, key: str, size: int | None = None) -> bytes:
        self._reach(key)
        return super().get_bytes(key, size)

    def delete(self, keys: Any) -> None:
        self._reach("")
        super().delete(keys)

    def _reach(self, key: str) -> None:
        if self.down:
            raise StoreError("reach", f"{self.url}/{key}", "it can't be reached")


class Stores:
    def __init__(self, folder: Path, database: Database[dict[str, Any]], required: Sequence[bool]) -> None:
        self.all = [Failing(folder / str(number)) for number in range(len(required) + 1)]
        for number in range(len(self.all)):
            (folder / str(number)).mkdir()
        named = enumerate(zip(self.all[1:], required, strict=True))
        copies = [Copy(f"c{number}", it, is_required) for number, (it, is_required) in named]
        self.journal = StoreJournal(lambda: AT, database)
        self.store = CopiedStore(self.all[0], copies, self.journal)
        self.records = CopyRecords(Receipts(database, "ticks"))

    def held(self, key: str) -> list[bytes | None]:
        found: list[bytes | None] = []
        for it in self.all:
            try:
                found.append(FileStore.get_bytes(it, key))
            except NotFound:
                found.append(None)
        return found


@pytest.fixture
def stores(tmp_path: Path, database: Database[dict[str, Any]]) -> Stores:
    return Stores(tmp_path, database, (True, False))


def test_what_is_required_is_written_and_the_rest_waits(stores: Stores) -> None:
    stores.store.put_bytes(KEY, b"one")
    assert stores.held(KEY) == [b"one", b"one", None]
    assert stores.records.waiting() == {"c1": Waiting(1, AT)}
    stores.store.delete([KEY])
    assert stores.held(KEY) == [None, None, None]
    assert [it.deleted for it in stores.records.changes("c1")] == [False, True]


def test_while_a_required_copy_is_down_a_write_fails_and_waits(stores: Stores) -> None:
    stores.all[1].down = True
    with pytest.raises(StoreError, match="copy c0: it can't be reached"):
        stores.store.put_bytes(KEY, b"one")
    assert stores.records.waiting()["c0"] == Waiting(1, AT)
    stores.all[1].down = False
    stores.store.put_bytes("ticks/data/b", b"two")
    assert stores.records.waiting_keys("c0") == {KEY}


def test_while_a_required_copy_is_down_nothing_is_deleted(stores: Stores) -> None:
    stores.store.put_bytes(KEY, b"one")
    stores.all[1].down = True
    with pytest.raises(StoreError, match="copy c0"):
        stores.store.delete([KEY])
    assert stores.held(KEY) == [b"one", b"one", None]


def test_a_copy_that_lies_is_found_out(stores: Stores) -> None:
    stores.all[1].lies = True
    with pytest.raises(Corrupt, match="copy c0: read back, it is not what was written"):
        stores.store.put_bytes(KEY, b"one")
    assert "c0" in stores.records.waiting()


def test_a_conditional_put_that_loses_writes_no_copy(stores: Stores) -> None:
    stores.store.put_bytes(KEY, b"one", if_absent=True)
    with pytest.raises(AlreadyExists):
        stores.store.put_bytes(KEY, b"two", if_absent=True)
    assert stores.held(KEY) == [b"one", b"one", None]
    assert stores.records.waiting() == {"c1": Waiting(1, AT)}


def test_only_what_must_be_there_is_read_from_a_copy_and_not_from_one_that_waits(stores: Stores) -> None:
    def is_sound(data: bytes) -> bool:
        return data == b"one"

    stores.store.put_bytes(KEY, b"one")
    FileStore.put_bytes(stores.all[2], KEY, b"one")  # while a change of it waits
    FileStore.delete(stores.all[0], [KEY])
    with pytest.raises(NotFound):
        stores.store.get_bytes(KEY)
    assert stores.store.get_sound(KEY, is_sound) == b"one"
    count, (read,) = stores.store.take_reads()
    assert (count, read.copy, read.reason) == (1, "c0", "no such file")
    FileStore.delete(stores.all[1], [KEY])
    with pytest.raises(NotFound):
        stores.store.get_sound(KEY, is_sound)
    FileStore.put_bytes(stores.all[0], KEY, b"damaged")
    assert stores.store.get_sound(KEY, is_sound) == b"damaged"  # the caller says what is wrong with it


def test_a_first_store_that_is_down_is_read_from_a_required_copy_and_not_written(stores: Stores) -> None:
    stores.store.put_bytes(KEY, b"one")
    stores.all[0].down = True
    assert stores.store.get_bytes(KEY) == b"one"
    assert stores.store.take_reads()[0] == 1
    with pytest.raises(StoreError, match="can't be reached"):
        stores.store.put_bytes(KEY, b"two")
    assert stores.held(KEY) == [b"one", b"one", None]
    stores.all[1].down = True
    with pytest.raises(StoreError, match="can't be reached"):
        stores.store.get_bytes(KEY)
