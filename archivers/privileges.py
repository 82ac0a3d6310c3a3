"""What the user of the connection may do, held against what a run needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pymongo.database import Database

Document = dict[str, Any]
_BOOKS = ("find", "insert", "update", "remove", "createIndex", "createCollection", "listIndexes")


@dataclass(frozen=True)
class Needs:
    """The actions that a run takes in one collection."""

    collection: str
    actions: tuple[str, ...]

    @classmethod
    def of_source(cls, collection: str, *, deletes: bool) -> Needs:
        return cls(collection, ("find", "listIndexes", *(("remove",) if deletes else ())))

    @classmethod
    def of_target(cls, collection: str) -> Needs:
        return cls(collection, _BOOKS)


def missing_rights(database: Database[Document], needs: Iterable[Needs]) -> Iterator[Needs]:
    """Of what is needed, what is not granted. Nothing where the server asks nobody who they are."""
    status = database.client.admin.command("connectionStatus", showPrivileges=True)["authInfo"]
    if not status["authenticatedUsers"]:
        return
    privileges = status["authenticatedUserPrivileges"]
    for need in needs:
        granted = granted_actions(privileges, database.name, need.collection)
        lacking = tuple(action for action in need.actions if action not in granted)
        if lacking:
            yield Needs(need.collection, lacking)


def granted_actions(privileges: Iterable[Document], database: str, collection: str) -> set[str]:
    """All actions that the privileges grant in that collection."""
    granted: set[str] = set()
    for privilege in privileges:
        resource = privilege["resource"]
        named = resource.get("db") in ("", database) and resource.get("collection") in ("", collection)
        if named or resource.get("anyResource"):
            granted.update(privilege["actions"])
    return granted
