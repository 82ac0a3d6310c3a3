"""All of a database as it stands, to be put back for one test after another.

An archive knows collections by their UUIDs, so they stay the same: those that are still there are emptied and
filled again, and those that are gone or were made anew are created with the UUIDs that they had.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database

Document = dict[str, Any]
_RAW: CodecOptions[Any] = CodecOptions(document_class=RawBSONDocument)


@dataclass(frozen=True)
class _Collection:
    listed: Document  # as MongoDB lists it: its options and its UUID
    indexes: list[Document]

    @property
    def name(self) -> str:
        name: str = self.listed["name"]
        return name

    def create(self, database: Database[Document]) -> None:
        assert self.listed["type"] == "collection", self.listed
        operation = {"op": "c", "ns": f"{database.name}.$cmd", "ui": self.listed["info"]["uuid"]}
        operation["o"] = {"create": self.name, **self.listed["options"], "idIndex": self.listed["idIndex"]}
        database.client.admin.command("applyOps", [operation])
        if more := [it for it in self.indexes if it["name"] != "_id_"]:
            database.command("createIndexes", self.name, indexes=more)


def _collections(database: Database[Document]) -> Iterator[_Collection]:
    """Without what lies below native time-series."""
    for listed in database.list_collections():
        if not (name := listed["name"]).startswith("system."):
            is_view = listed["type"] == "view"  # which has no indexes
            indexes = [] if is_view else [dict(it) for it in database[name].list_indexes()]
            yield _Collection(dict(listed), indexes)


class StandingDatabase:
    """Holds what was in a database when it was made."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database
        self._held = [(it, list(self._raw(it.name).find())) for it in _collections(database)]

    def _raw(self, name: str) -> Any:
        return self._database.get_collection(name, codec_options=_RAW)

    def put_back(self) -> None:
        there = {it.name: it for it in _collections(self._database)}
        staying = {it.name for it, _ in self._held if there.get(it.name) == it}
        for name in there.keys() - staying:
            self._database.drop_collection(name)
        for it, documents in self._held:
            if it.name in staying:
                self._raw(it.name).delete_many({})
            else:
                it.create(self._database)
            if documents:
                self._raw(it.name).insert_many(documents)
