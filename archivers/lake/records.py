"""Records of a policy's Iceberg table in MongoDB: which commits are in it, and at which snapshot that was so.

A commit that is in the table has `lake` in its receipt, and keeps it when it is dropped. So an index finds
what has to be added or removed, however large the archive is. That holds as long as the table is at the
recorded snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pymongo import ASCENDING
from pymongo.client_session import ClientSession

from bucketwise.archivers.format.names import Commit
from bucketwise.archivers.records.receipts import HELD, REPLACED, Receipts, commit_of
from bucketwise.config.errors import BucketwiseError

Document = dict[str, Any]


class LakeError(BucketwiseError):
    """A table could not be read or written. The archive is as it was."""


class LakeReport(NamedTuple):
    """How many parts were added to a table, how many were removed, and its snapshot then. `metadata`: the URL
    of the metadata file. Both are None where there is no table."""

    added: int = 0
    removed: int = 0
    snapshot: int | None = None
    metadata: str | None = None


class LakeDifference(NamedTuple):
    """How a table differs from the archive. `is_behind`: the next sync is due, and nothing is wrong."""

    place: str
    message: str
    is_behind: bool


_NAME, _PAGE = "lake", 1000


class LakeState(NamedTuple):
    """A table, its snapshot, and the URL of its metadata, as of the last sync."""

    table: str
    snapshot: int | None
    metadata: str


class LakeRecords:
    """The records of one policy's table."""

    def __init__(self, receipts: Receipts) -> None:
        self._receipts = receipts

    def prepare(self) -> None:
        """Makes the index that finds what has changed."""
        keys = [(name, ASCENDING) for name in ("_id.policy", "kind", "lake")]
        self._receipts.collection.create_index(keys)

    def state(self) -> LakeState | None:
        """Returns the record of the last sync; None where there was none."""
        found = self._receipts.get(_NAME)
        return None if found is None else LakeState(found["table"], found["snapshot"], found["metadata"])

    def lacking(self) -> list[Commit]:
        """Returns the commits that stand and are not in the table, by their numbers."""
        return self._commits({**self._receipts.is_current, "lake": None})

    def leaving(self) -> list[Commit]:
        """Returns the commits in the table that do not stand any more."""
        mine = {"_id.policy": self._receipts.policy, "lake": True}
        replaced = {**mine, "kind": "offline", "state": {"$in": [REPLACED, HELD]}}
        return [*self._commits({**mine, "kind": "dropped"}), *self._commits(replaced)]

    def current(self) -> list[tuple[Commit, list[str]]]:
        """Returns all commits that stand, by their numbers, with the keys of their parts."""
        wanted = {"seal": 1, "sequence": 1, "parts": 1}
        found = self._receipts.collection.find(self._receipts.is_current, wanted)
        named = [(commit, it["parts"]) for it in found if (commit := commit_of(it)) is not None]
        return sorted(named, key=lambda it: it[0].sequence)

    def note(
        self, state: LakeState, added: Sequence[Commit], removed: Iterable[Commit], session: ClientSession
    ) -> None:
        """Notes where the table is, and which commits came into it or left it."""
        self._receipts.update(_NAME, {"$set": {"kind": "lake", **state._asdict()}}, session)
        self._mark(added, {"$set": {"lake": True}}, session)
        self._mark(list(removed), {"$unset": {"lake": ""}}, session)

    def _mark(self, commits: Sequence[Commit], update: Document, session: ClientSession) -> None:
        names = [self._receipts.identity(it.name) for it in commits]
        for at in range(0, len(names), _PAGE):
            query = {"_id": {"$in": names[at : at + _PAGE]}}
            self._receipts.collection.update_many(query, update, session=session)

    def _commits(self, query: Document) -> list[Commit]:
        wanted = {"seal": 1, "sequence": 1}
        found = self._receipts.collection.find({**query, "seal": {"$exists": True}}, wanted)
        return sorted(filter(None, map(commit_of, found)), key=lambda it: it.sequence)
