"""What the user of the connection may do, compared with what a run needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pymongo.database import Database

from bucketwise.config.policies import Policy

Document = dict[str, Any]
_READ = ("find", "listIndexes")
_SUMMARIES = (*_READ, "insert", "update", "remove", "createIndex")
_COPIES = (*_READ, "insert", "remove", "createIndex")
_VERSIONS = ("find", "insert", "remove", "createIndex")


@dataclass(frozen=True)
class Needs:
    """The actions that a run takes in one collection; "" is the database as a whole."""

    collection: str
    actions: tuple[str, ...]


def needs_of(policy: Policy, own: Mapping[str, tuple[str, ...]], *, deletes: bool) -> Iterator[Needs]:
    """Yields all rights that a run of the policy needs, as docs/security.md grants them. `own`: what it does
    in its own collections."""
    yield Needs("", ("listCollections",))
    for source in policy.sources:
        yield Needs(source, (*_READ, "remove") if deletes else _READ)
    for summaries in policy.rollup.targets.values() if policy.rollup else ():
        yield Needs(summaries, _SUMMARIES)
    if (archived := policy.archive_collections) is not None:
        yield from (Needs(copies, _COPIES) for copies in archived.copies)
        yield Needs(archived.versions, _VERSIONS)
    for name, actions in own.items():
        yield Needs(name, actions)


@dataclass(frozen=True)
class Privileges:
    """What the user may do. `granted` is None where the server has no access control."""

    database: str
    granted: Sequence[Document] | None

    @classmethod
    def of(cls, database: Database[Document]) -> Privileges:
        """Returns the privileges of the connection's user."""
        status = database.client.admin.command("connectionStatus", showPrivileges=True)["authInfo"]
        is_asked = bool(status["authenticatedUsers"])
        return cls(database.name, status["authenticatedUserPrivileges"] if is_asked else None)

    def missing(self, needs: Iterable[Needs]) -> Iterator[Needs]:
        """Yields the needs that the privileges do not grant."""
        for need in needs if self.granted is not None else ():
            granted = granted_actions(self.granted or (), self.database, need.collection)
            lacking = tuple(action for action in need.actions if action not in granted)
            if lacking:
                yield Needs(need.collection, lacking)


def granted_actions(privileges: Iterable[Document], database: str, collection: str) -> set[str]:
    """Returns all actions that the privileges grant in that collection."""
    granted: set[str] = set()
    for privilege in privileges:
        resource = privilege["resource"]
        named = resource.get("db") in ("", database) and resource.get("collection") in ("", collection)
        if named or resource.get("anyResource"):
            granted.update(privilege["actions"])
    return granted
