"""How far a collection is rewritten: one document a target in `bucketwise_remodel`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from pymongo.collection import Collection
from pymongo.database import Database

from config.errors import UsageError
from rollups.guarded import majority

COLLECTION = "bucketwise_remodel"
Document = dict[str, Any]


class Mark(NamedTuple):
    """How many documents are known to be written, and whether the target was found to equal its source."""

    documents: int
    done: bool


@dataclass(frozen=True)
class Bookmark:
    """What is written where."""

    database: Database[Document]
    into: str
    task: Document  # source, model, and what tells the policy that reads the source

    @property
    def _marks(self) -> Collection[Document]:
        return self.database.get_collection(COLLECTION, write_concern=majority(self.database))

    def check(self) -> Mark | None:
        """Returns where the task stands; None where there is no target yet. Raises UsageError where the
        target is not one that this very task has begun."""
        is_there = bool(self.database.list_collection_names(filter={"name": self.into}))
        found = self._marks.find_one({"_id": self.into})
        if not is_there:
            return None
        if found is None:
            raise UsageError(f"--into {self.into}: there is such a collection already. Name a new one")
        other = [key for key, it in self.task.items() if found["task"].get(key) != it]
        if other:
            raise UsageError(
                f"--into {self.into}: it was begun with another {' and '.join(other)}. Give the same, or "
                "drop it to begin anew"
            )
        return Mark(int(found["documents"]), bool(found["done"]))

    def set(self, documents: int, *, done: bool = False) -> None:
        """Writes down where the task stands; before the target is made: with none."""
        mark = {"$set": {"task": self.task, "documents": documents, "done": done}}
        self._marks.update_one({"_id": self.into}, mark, upsert=True)
