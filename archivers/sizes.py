"""Sizes of collections, as MongoDB keeps them: documents as BSON, and the files of their indexes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pymongo.database import Database
from pymongo.errors import OperationFailure

#: An index without entries has a file of so many bytes.
_EMPTY_INDEX = 20_480
_IS_A_VIEW = 166


class CollectionSize(NamedTuple):
    """Bytes of a collection: of its documents, of the files of its indexes, and how much of these is free to
    be used again. `index_count`: how many there are."""

    data: int
    indexes: int
    index_free: int
    index_count: int

    @property
    def index_used(self) -> int:
        """Returns the bytes of the indexes that are in use."""
        return max(0, self.indexes - self.index_free)

    @property
    def index_entries(self) -> int:
        """Returns how many of these bytes there are for entries."""
        return max(0, self.index_used - self.index_count * _EMPTY_INDEX)

    @classmethod
    def sum(cls, sizes: Iterable[CollectionSize]) -> CollectionSize:
        """Returns the size of several collections."""
        return cls(*map(sum, zip(cls(0, 0, 0, 0), *sizes, strict=True)))


def size_of(database: Database[Any], name: str) -> CollectionSize:
    """Returns the size of a collection; zeros where there is none, or a view."""
    try:
        found = database.command("collStats", name, indexDetails=True)
    except OperationFailure as error:
        if error.code == _IS_A_VIEW:
            return CollectionSize(0, 0, 0, 0)
        raise
    shards = found.get("shards")
    parts: Iterable[Mapping[str, Any]] = [found] if shards is None else shards.values()
    free = sum(_free(detail) for part in parts for detail in part.get("indexDetails", {}).values())
    return CollectionSize(int(found["size"]), int(found["totalIndexSize"]), free, int(found["nindexes"]))


def _free(detail: Mapping[str, Any]) -> int:
    return int(detail.get("block-manager", {}).get("file bytes available for reuse", 0))
