"""What collections and archives take up."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from pymongo.database import Database

Document = dict[str, Any]


class Size(NamedTuple):
    """Documents, and bytes. `disk` and `indexes` are of blocks in use: what a delete frees stays with the
    file, for MongoDB to fill again."""

    documents: int
    data: int
    disk: int
    indexes: int

    def plus(self, other: Size) -> Size:
        return Size(*(one + two for one, two in zip(self, other, strict=True)))


def forget_history(database: Database[Document]) -> None:
    """By default mongod keeps what was deleted for five minutes more, for readers of the past."""
    database.client.admin.command({"setParameter": 1, "minSnapshotHistoryWindowInSeconds": 0})


def size_of(database: Database[Document], collections: Iterable[str]) -> Size:
    """Of all of them together; a collection that isn't there counts nothing."""
    database.client.admin.command("fsync")  # sizes on disk are those of the last checkpoint
    found = {it["name"]: it["type"] for it in database.list_collections()}
    total = Size(0, 0, 0, 0)
    for name in collections:
        if name in found:
            total = total.plus(_size(database, name, found[name] == "timeseries"))
    return total


def _size(database: Database[Document], name: str, is_timeseries: bool) -> Size:
    stats = database.command(
        "collStats", f"system.buckets.{name}" if is_timeseries else name, indexDetails=True
    )
    reusable = sum(
        index["block-manager"]["file bytes available for reuse"] for index in stats["indexDetails"].values()
    )
    return Size(
        database[name].count_documents({}),
        stats["size"],
        stats["storageSize"] - stats["freeStorageSize"],
        stats["totalIndexSize"] - reusable,
    )


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below: its size, and when it was written last, in nanoseconds."""
    stats = {path: path.stat() for path in sorted(folder.rglob("*")) if path.is_file()}
    return {str(path.relative_to(folder)): (it.st_size, it.st_mtime_ns) for path, it in stats.items()}
