"""How far a collection is rewritten: one document a target in `bucketwise_remodel`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pymongo.collection import Collection
from pymongo.database import Database

from config.errors import UsageError
from rollups.guarded import majority

COLLECTION = "bucketwise_remodel"
Document = dict[str, Any]


@dataclass(frozen=True)
class Bookmark:
    """What is written where. It is there until the target was held against its source, and equals it."""

    database: Database[Document]
    into: str
    task: Document  # source, model, and the keys of the policy that reads the source

    @property
    def _marks(self) -> Collection[Document]:
        return self.database.get_collection(COLLECTION, write_concern=majority(self.database))

    def check(self) -> int | None:
        """Returns how many documents are known to be written; None where there is no target yet. Raises
        UsageError where the target is not one that this very task has begun."""
        listed = set(self.database.list_collection_names())
        found = self._marks.find_one({"_id": self.into})
        if found is None and self.into in listed:
            raise UsageError(f"--into {self.into}: there is such a collection already. Name a new one")
        if found is None or (self.into not in listed and not found["documents"]):
            return None
        other = [key for key, it in self.task.items() if found["task"].get(key) != it]
        if other:
            raise UsageError(
                f"--into {self.into}: it was begun with another {' and '.join(other)}. Give the same, or "
                f"drop it to begin anew, with the document of {COLLECTION} that has its name as _id"
            )
        if self.into not in listed:
            raise UsageError(
                f"--into {self.into}: it was begun, and is gone by now. Remove the document of {COLLECTION} "
                "that has its name as _id to begin anew"
            )
        return int(found["documents"])

    def set(self, documents: int) -> None:
        """Writes down how many documents are there; before the target is made: none."""
        mark = {"$set": {"task": self.task, "documents": documents}}
        self._marks.update_one({"_id": self.into}, mark, upsert=True)

    def remove(self) -> None:
        """Forgets the task: from now on the target is a collection as any other."""
        self._marks.delete_one({"_id": self.into})
