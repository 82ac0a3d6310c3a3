"""Records how far a collection is rewritten: one document for each target in `bucketwise_remodel`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from pymongo.collection import Collection
from pymongo.database import Database

from bucketwise.config.errors import UsageError
from bucketwise.rollups.guarded import majority

COLLECTION = "bucketwise_remodel"
Document = dict[str, Any]


class RemodelState(NamedTuple):
    """How many documents are known to be written, and whether the target was found equal to its source."""

    documents: int
    done: bool


@dataclass(frozen=True)
class RemodelRecord:
    """The record of one rewrite: which collection is written from which."""

    database: Database[Document]
    into: str
    task: Document  # source, model, and what tells the policy that reads the source

    @property
    def _marks(self) -> Collection[Document]:
        return self.database.get_collection(COLLECTION, write_concern=majority(self.database))

    def check(self) -> RemodelState | None:
        """Returns the state of the rewrite; None if there is no target yet. Raises UsageError if the
        target was not begun by this same rewrite."""
        known = self._target()
        if known is None:
            return None
        found = self._marks.find_one({"_id": self.into})
        if found is None:
            raise self._not_own()
        other = [key for key, it in self.task.items() if found["task"].get(key) != it]
        if other:
            raise UsageError(
                f"--into {self.into}: it was started with another {' and '.join(other)}. Give the same, or "
                "drop it to start again"
            )
        # A run that was cut off right after it had created the target left it empty.
        if found.get("target") != known and (found.get("target") or self.database[self.into].find_one()):
            raise self._not_own()
        return RemodelState(int(found["documents"]), bool(found["done"]))

    def _not_own(self) -> UsageError:
        return UsageError(f"--into {self.into}: this collection already exists. Name a new one")

    def _target(self) -> str | None:
        """Returns what tells the target from another collection of its name; None where there is none. The
        UUID of a native time-series collection is that of its buckets; a view has none."""
        named = {"name": {"$in": [self.into, f"system.buckets.{self.into}"]}}
        found = list(self.database.list_collections(filter=named))
        return next((str(it["info"]["uuid"]) for it in found if "uuid" in it["info"]), "" if found else None)

    def begin(self) -> None:
        """Records the rewrite before the target is created."""
        mark = {"task": self.task, "documents": 0, "done": False}
        self._marks.replace_one({"_id": self.into}, mark, upsert=True)

    def made(self) -> None:
        """Records the identity of the target."""
        self._marks.update_one({"_id": self.into}, {"$set": {"target": self._target()}})

    def set(self, documents: int, *, done: bool = False) -> None:
        """Records the state of the rewrite, unless another run has taken the lease and come further."""
        behind = {"_id": self.into, "documents": {"$lte": documents}}
        self._marks.update_one(behind, {"$set": {"documents": documents, "done": done}})
