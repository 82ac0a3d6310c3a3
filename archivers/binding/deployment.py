"""The deployment that an archive belongs to: what tells a database from its clones.

A dump that is restored elsewhere has other UUIDs of the suite's own collections; a copy of the disk has other
hosts; another replica set has another id, where that may be read. What none of them tells apart, the lineage
does (`lineage.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from bson.errors import InvalidBSON
from pymongo.database import Database
from pymongo.errors import OperationFailure

from bucketwise.archivers.records.receipts import COLLECTION as RECEIPTS
from bucketwise.buckets.bson.cluster import uuid_of

Document = dict[str, Any]
PREFIX = "bucketwise_"  # of the suite's own collections


@dataclass(frozen=True)
class Deployment:
    """A database as it can be told from others. `collections`: the UUIDs of the suite's own collections.
    `id`: of the replica set; None where it may not be read."""

    database: str
    set: str | None = None
    hosts: tuple[str, ...] = ()
    id: str | None = None
    collections: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Deployment:
        """Returns the deployment that a record tells of. Raises TypeError or ValueError where it is none."""
        hosts = tuple(str(it) for it in told["hosts"])
        collections = {str(name): str(it) for name, it in dict(told["collections"]).items()}
        return cls(str(told["database"]), told["set"], hosts, told["id"], collections)

    @property
    def body(self) -> Document:
        """Returns the fields of a record."""
        return {**asdict(self), "hosts": list(self.hosts), "collections": dict(self.collections)}

    @property
    def telling(self) -> tuple[Any, ...]:
        """Returns what tells it from others. Its further collections come as they are needed."""
        return self.database, self.set, self.hosts, self.id, self.collections.get(RECEIPTS)

    @property
    def name(self) -> str:
        """Returns what people know it by: the database, the replica set and its hosts."""
        hosts = ", ".join(self.hosts) or "unknown hosts"
        return f"database {self.database} of {self.set or 'no replica set'} ({hosts})"

    def difference(self, present: Deployment) -> str | None:
        """Returns what shows that `present` is another deployment than this one; None where nothing does.
        Members may change as long as one host stays, and an id that could not be read says nothing."""
        if self.database != present.database:
            return f"the database is called {present.database}, and not {self.database}"
        if self.id and present.id and self.id != present.id:
            return f"the replica set has the id {present.id}, and not {self.id}"
        if not (self.id and present.id) and self.set and present.set and self.set != present.set:
            return f"the replica set is {present.set}, and not {self.set}"
        if self.hosts and present.hosts and not {*self.hosts} & {*present.hosts}:
            return f"it runs on {', '.join(present.hosts)}, and on none of {', '.join(self.hosts)}"
        mine, theirs = (it.collections.get(RECEIPTS) for it in (self, present))
        if mine and theirs and mine != theirs:
            return f"{RECEIPTS} has the UUID {theirs}, and not {mine}: it was restored from a dump"
        return None

    def renewed(self, present: Deployment) -> Deployment:
        """Returns what to record once `present` is known to be this deployment: what is known by now, and
        what can't be read any more as it was."""
        return Deployment(
            present.database,
            present.set or self.set,
            present.hosts or self.hosts,
            present.id or self.id,
            {**self.collections, **present.collections},
        )


@dataclass
class SetId:
    """The id of the replica set, asked once for all policies of a run, and anew where that decides what is
    written."""

    found: str | None = None
    is_asked: bool = False

    def of(self, database: Database[Document], *, anew: bool) -> str | None:
        """Returns the id; None where it may not be read: that takes replSetGetConfig."""
        if anew or not self.is_asked:
            self.found, self.is_asked = _set_id(database), True
        return self.found


def listed_collections(database: Database[Document], others: Iterable[str] = ()) -> list[Document]:
    """Returns the suite's own collections, and `others`, as MongoDB lists those that exist."""
    named = [{"name": {"$regex": f"^{PREFIX}"}}, {"name": {"$in": list(others)}}]
    return [dict(info) for info in database.list_collections(filter={"$or": named})]


def present_deployment(
    database: Database[Document], listed: Iterable[Document], set_id: SetId, *, anew: bool
) -> Deployment:
    """Returns the deployment that a database is. Hosts are those that its members name. `listed`: its
    collections."""
    own = (it for it in listed if it["name"].startswith(PREFIX))
    uuids = {str(it["name"]): uuid for it in own if (uuid := uuid_of(it)) is not None}
    # Since a command has just been answered, the driver knows the members.
    known = database.client.topology_description.server_descriptions().values()
    hosts = sorted({f"{host}:{port}" for it in known for host, port in it.all_hosts})
    names = [it.replica_set_name for it in known if it.replica_set_name]
    found = set_id.of(database, anew=anew) if names else None
    return Deployment(database.name, names[0] if names else None, tuple(hosts), found, uuids)


def _set_id(database: Database[Document]) -> str | None:
    try:
        config = database.client.admin.command("replSetGetConfig")["config"]
        return str(config["settings"]["replicaSetId"])
    except (OperationFailure, KeyError, InvalidBSON):
        return None
