"""How much room the receipts of many deletes take, before and after they move to the store."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.client_session import ClientSession
from pymongo.database import Database

from bench.age.history import HOUR, START, policy_of
from bucketwise.archivers.format.keys import UNSIGNED
from bucketwise.archivers.records.deletions import Deletions
from bucketwise.archivers.records.receipt_files import ReceiptFiles, move_old
from bucketwise.archivers.records.receipts import COLLECTION, NO_RUN, Receipts
from bucketwise.archivers.stores import open_store
from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.config.tables import Store
from bucketwise.rollups.context import transaction

Document = dict[str, Any]
#: Receipts that one transaction writes here.
_BATCH_SIZE = 500
_COMMIT = "2018-06-30_2018-06-30_f000001_b69a81a9edc2f0d8"
_DELETED = Batch.of(Docs.of([b""] * 1000))


@dataclass(frozen=True)
class ReceiptBytes:
    """How many bytes the receipts of so many deletes take: as BSON in MongoDB, then in files."""

    deletes: int
    in_mongodb: int
    files: int
    in_files: int
    left: int  # in MongoDB, once they have moved


def of_receipts(uri: str, counts: Sequence[int]) -> Iterator[ReceiptBytes]:
    """Yields a database with one delete of a thousand buckets an hour."""
    for count in counts:
        with MongoClient[Document](uri, tz_aware=True) as client, tempfile.TemporaryDirectory() as folder:
            client.drop_database("age")
            try:
                yield _measured(client["age"], count, Path(folder))
            finally:
                client.drop_database("age")
        sys.stderr.write(f"receipts of {count:,} deletes: measured\n")


def _measured(database: Database[Document], count: int, folder: Path) -> ReceiptBytes:
    policy = policy_of(0)
    receipts = Receipts(database, policy.name)
    receipts.prepare()
    for at in range(0, count, _BATCH_SIZE):
        numbers = range(at, min(at + _BATCH_SIZE, count))

        def write(session: ClientSession, numbers: range = numbers) -> None:
            for number in numbers:
                deletions = Deletions(receipts, policy, number, START + number * HOUR, UNSIGNED, NO_RUN)
                held_by = {"commit": _COMMIT, "manifest_sha256": "0" * 64}
                deletions.record(session, _DELETED, {"positions": [[0, 999]]}, held_by)

        transaction(database, lambda _session: None, write)
    before = _bytes(database)
    store = open_store(Store(url=folder.as_uri()))
    end = START + count * HOUR + timedelta(days=1)
    move_old(receipts, ReceiptFiles(receipts, store), end, lambda step: _in_transaction(database, step))
    files = list(store.list())
    return ReceiptBytes(count, before, len(files), sum(it.size for it in files), _bytes(database))


def _in_transaction(database: Database[Document], step: Any) -> None:
    transaction(database, lambda _session: None, step)


def _bytes(database: Database[Document]) -> int:
    return int(database.command("collStats", COLLECTION)["size"])
