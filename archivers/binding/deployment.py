"""The deployment that an archive belongs to: what tells a database from its clones.

A dump that is restored elsewhere has other UUIDs of the suite's own collections; a copy of the disk has other
hosts; another replica set has another id, where that may be read. What none of them tells apart, the lineage
does (`lineage.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
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
        has_ids = self.id and present.id and bool(self.set) == bool(present.set)  # of sets, or of clusters
        if has_ids and self.id != present.id:
            kind = "replica set" if self.set else "sharded cluster"
            return f"the {kind} has the id {present.id}, and not {self.id}"
        if not has_ids and self.set and present.set and self.set != present.set:
            return f"the replica set is {present.set}, and not {self.set}"
        if self.hosts and present.hosts and not {*self.hosts} & {*present.hosts}:
            return (
                f"it runs on {', '.join(present.hosts)}, and on none of {', '.join(self.hosts)}. If these "
                "are other names of the same hosts, as some have outside of their network: run from one "
                "side, or grant replSetGetConfig"
            )
        mine, theirs = (it.collections.get(RECEIPTS) for it in (self, present))
        if mine and theirs and mine != theirs:
            return f"{RECEIPTS} has the UUID {theirs}, and not {mine}: it was restored from a dump"
        return None

    def renewed(self, present: Deployment) -> Deployment:
        """Returns what to record once `present` is known to be this deployment: what is known by now, and
        what can't be read any more as it was."""
        return Deployment(
            present.database,
            present.set if present.id else present.set or self.set,
            present.hosts or self.hosts,
            present.id or self.id,
            {**self.collections, **present.collections},
        )


@dataclass
class Topology:
    """What the configuration of a replica set, or of a sharded cluster, says of it. It is read once for all
    policies of a run, and anew where that decides what is written. `id`: None where it may not be read.
    `hosts`: by all their names; a member may have another one outside of its network."""

    id: str | None = None
    hosts: frozenset[str] = frozenset()
    is_read: bool = False

    def read(self, database: Database[Document], *, is_set: bool, anew: bool) -> None:
        """Reads it, where that was not done before or is to be done anew."""
        if anew or not self.is_read:
            self.id, self.hosts, self.is_read = None, frozenset(), True
            with suppress(OperationFailure, KeyError, InvalidBSON):
                self.id, self.hosts = _of_set(database) if is_set else _of_cluster(database)


def listed_collections(database: Database[Document], others: Iterable[str] = ()) -> list[Document]:
    """Returns the suite's own collections, and `others`, as MongoDB lists those that exist."""
    named = [{"name": {"$regex": f"^{PREFIX}"}}, {"name": {"$in": list(others)}}]
    return [dict(info) for info in database.list_collections(filter={"$or": named})]


def present_deployment(
    database: Database[Document], listed: Iterable[Document], topology: Topology, *, anew: bool
) -> Deployment:
    """Returns the deployment that a database is. Hosts are those that its members and its configuration
    name. `listed`: its collections."""
    own = (it for it in listed if it["name"].startswith(PREFIX))
    uuids = {str(it["name"]): uuid for it in own if (uuid := uuid_of(it)) is not None}
    # Since a command has just been answered, the driver knows the members.
    known = database.client.topology_description.server_descriptions().values()
    hosts = {f"{host}:{port}" for it in known for host, port in it.all_hosts}
    names = [it.replica_set_name for it in known if it.replica_set_name]
    topology.read(database, is_set=bool(names), anew=anew)
    hosts |= topology.hosts
    return Deployment(database.name, names[0] if names else None, tuple(sorted(hosts)), topology.id, uuids)


def _of_set(database: Database[Document]) -> tuple[str, frozenset[str]]:
    """Returns the id of the replica set, and the hosts in its configuration. It takes replSetGetConfig."""
    config = database.client.admin.command("replSetGetConfig")["config"]
    names = ((it["host"], *it.get("horizons", {}).values()) for it in config["members"])
    return str(config["settings"]["replicaSetId"]), frozenset(it for of_member in names for it in of_member)


def _of_cluster(database: Database[Document]) -> tuple[str, frozenset[str]]:
    """Returns the id of the sharded cluster, and the hosts of its shards. It takes `find` on both."""
    config = database.client["config"]
    version = config["version"].find_one({}, {"clusterId": 1}) or {}
    shards = (it["host"].rpartition("/")[2] for it in config["shards"].find({}, {"host": 1}))
    return str(version["clusterId"]), frozenset(host for it in shards for host in it.split(","))
