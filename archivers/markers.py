"""Marks that tell an archive's deployment and its store from others: UUIDs and markers.

A dump that is restored elsewhere has other UUIDs of the suite's own collections; a copy of the disk has other
hosts; another replica set has another id, where that may be read. What none of them tells apart, the lineage
does. A store's marker is one object at its root, which each database that uses the store remembers. A mount
that is absent, or a store that was moved away, has none, or another one. Then no policy writes there, however
new it is.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from bson.errors import InvalidBSON
from pymongo import ReturnDocument
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import OperationFailure

from bucketwise.archivers.format.names import DIGITS
from bucketwise.archivers.records.receipts import CODEC, Receipts, reading
from bucketwise.archivers.records.receipts import COLLECTION as RECEIPTS
from bucketwise.archivers.stores.base import AlreadyExists, Corrupt, NotFound, ObjectStore, StoreError
from bucketwise.archivers.stores.copied import copies_of, naming
from bucketwise.buckets.bson.cursor import uuid_of
from bucketwise.config.errors import HaltedError

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
    """The identity of a replica set, or of a sharded cluster, by its configuration. It is read once for all
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


def encoded(told: dict[str, Any]) -> bytes:
    """Returns the bytes of an object. Its times are in UTC, and say so."""
    return json.dumps(told, default=_in_utc).encode()


def _in_utc(at: datetime) -> str:
    return at.replace(tzinfo=UTC).isoformat(timespec="milliseconds")


def put_checked(
    store: ObjectStore,
    key: str,
    data: bytes,
    *,
    if_absent: bool,
    is_others: Callable[[bytes], bool] = lambda _data: False,
) -> bytes:
    """Puts an object, unless one is there and `if_absent`. Returns what lies there now: it may be another
    writer's, where the store can't refuse to replace one. `is_others`: whether it is, at a key that others
    put as well; it raises HaltedError where it can't be read. Raises HaltedError where it is neither, and
    removes it."""
    try:
        store.put_bytes(key, data, if_absent=if_absent)
    except AlreadyExists:
        return store.get_bytes(key)
    with suppress(Corrupt, HaltedError):
        found = store.get_bytes(key)
        if found == data or is_others(found):
            return found
    store.delete([key])  # written here, and damaged: every later run would halt at it
    raise HaltedError(
        f"{store.url}/{key}: read back, it is not what was written. Nothing was changed. Look at the "
        "store, then run again"
    )


KEY = "bucketwise.json"
_VERSION = 1


def record_name(url: str) -> str:
    """Returns the name of the database's record of the store at a URL."""
    return f"store-{hashlib.sha256(url.encode()).hexdigest()[:16]}"


def read_marker(store: ObjectStore) -> str | None:
    """Returns the id of the store's marker; None where there is none. Raises HaltedError where the object is
    no marker."""
    try:
        return marker_of(store.get_bytes(KEY), f"{store.url}/{KEY}")
    except NotFound:
        return None


def marker_of(data: bytes, place: str) -> str:
    """Returns the id that the bytes of a marker have. Raises HaltedError where they are no marker's."""
    try:
        return str(json.loads(data)["id"])
    except (ValueError, RecursionError, TypeError, KeyError):
        raise HaltedError(
            f"{place} is not the marker of a store of bucketwise: {data[:80]!r}. Nothing was "
            "changed. Find out who wrote it; restore it from a backup or give the archive another place"
        ) from None


def _is_marker(data: bytes) -> bool:
    return bool(marker_of(data, KEY))


def marker_difference(found: str | None, remembered: str | None) -> str | None:
    """Returns what shows that a store is not the one that is remembered; None where nothing does."""
    if remembered is None or found == remembered:
        return None
    if found is None:
        return f"its marker {KEY} is gone, which had the id {remembered}"
    return f"its marker {KEY} has the id {found}, and not {remembered}"


def refill_of(store: ObjectStore) -> str:
    """Returns a sentence, to follow another, on how a store is filled that was lost; nothing where it has no
    copies."""
    return ". If it was lost: `bucketwise repair` fills it from a copy" if copies_of(store) else ""


@dataclass(frozen=True)
class Markers:
    """The marker of a store, and what the database has recorded of it. `records`: those of no policy."""

    store: ObjectStore
    records: Receipts
    policy: str

    def claimed(self, mine: str | None, known: str | None) -> str:
        """Returns the marker of the store, which is made where the store is new to the database. Raises
        HaltedError as `check` does."""
        found = self.check(mine, known)
        self._check_copies(found)
        return found if found is not None and found == known else self.taken(known)

    def check(self, mine: str | None, known: str | None) -> str | None:
        """Returns the marker that the store has. `mine`: the one that the policy has used; `known`: the one
        of this URL. Raises HaltedError where the store is not the one that was used."""
        found = read_marker(self.store)
        if reason := marker_difference(found, mine or known):
            raise HaltedError(
                f"policy {self.policy}: {self.store.url} is not the store that was used before: {reason}. "
                "Nothing was archived or deleted. A disk may not be mounted, or the store was moved: mount "
                f"it, or correct store.url{refill_of(self.store)}. If it is right as it is, take it "
                "over: bucketwise adopt --reason TEXT"
            )
        return found

    def check_filled(self) -> None:
        """Raises HaltedError where the store has no marker, and a copy of it has: it was emptied."""
        store = copies_of(self.store)
        if store is None or read_marker(self.store) is not None:
            return
        for copy in store.copies:
            with suppress(StoreError):
                if read_marker(copy.store) is not None:
                    raise HaltedError(
                        f"policy {self.policy}: {self.store.url} has no marker {KEY}, and its copy "
                        f"{copy.name} at {copy.store.url} has one. Nothing was changed. Mount the store, "
                        "or fill it from the copy with `bucketwise repair`, then run this again"
                    )

    def _check_copies(self, found: str | None) -> None:
        """Raises HaltedError where a copy without which nothing counts is another store."""
        store = copies_of(self.store)
        for copy in store.required if store else ():
            with naming(copy):
                copy.store.check_there()
                other = read_marker(copy.store)
            if other != found:
                raise HaltedError(
                    f"policy {self.policy}: copy {copy.name} at {copy.store.url} is not a copy of this "
                    f"store: its marker {KEY} has the id {other}, and the store's has {found}. Nothing was "
                    "archived or deleted. A disk may not be mounted: mount it, or correct its url"
                )

    def taken(self, known: str | None) -> str:
        """Returns the marker of the store as it is, remembered from now on. Two runs that make one agree on
        it in the database first, so that both put the same object. Two databases that make one at once may
        replace it, where the store can't refuse that: so it is asked for again when a claim ends."""
        name, found = record_name(self.store.url), read_marker(self.store)
        if found is None:
            agreed = self.records.collection.find_one_and_update(
                {"_id": self.records.identity(name)},
                {"$setOnInsert": {"kind": "store", "intended": uuid.uuid4().hex}},
                upsert=True,
                return_document=ReturnDocument.AFTER,
            )
            assert agreed is not None
            data = json.dumps({"bucketwise": "store", "version": _VERSION, "id": agreed["intended"]})
            put = put_checked(self.store, KEY, data.encode(), if_absent=True, is_others=_is_marker)
            found = marker_of(put, f"{self.store.url}/{KEY}")
        if found != known:
            facts = {"kind": "store", "url": self.store.url, "marker": found, "intended": found}
            self.records.update(name, {"$set": facts})
        return found


#: Steps that are remembered though their objects are not in the store: those of so many runs that crashed.
MOST_BEGUN = 16
_KEY = re.compile(rf"([0-9]{{{DIGITS}}})-([0-9a-z]+)\.json")


class Step(NamedTuple):
    """One step: its number, and the run that made it."""

    number: int
    run: str


@dataclass(frozen=True)
class Lineage:
    """The steps that a database has recorded. `begun`: its last steps, and the one that the store had when
    the last of them began. `done`: the number of the last one that was in the store; 0 before the first."""

    begun: tuple[Step, ...] = ()
    done: int = 0

    @classmethod
    def of(cls, told: Document | None) -> Lineage:
        """Returns the lineage that a record tells of; an empty one without a record."""
        if told is None:
            return cls()
        return cls(tuple(Step(it["number"], it["run"]) for it in told["begun"]), told["done"])

    @property
    def body(self) -> Document:
        """Returns the fields of a record."""
        return {"begun": [it._asdict() for it in self.begun], "done": self.done}

    def is_behind(self, listed: Iterable[Step]) -> bool:
        """Returns whether the store lacks the last step that was in it."""
        return self.done > max((it.number for it in listed), default=0)

    def foreign(self, listed: Iterable[Step]) -> list[Step]:
        """Returns the steps in the store that this database has not begun. Of those before the oldest that it
        remembers, nothing is known: they were its own when it went on from them."""
        oldest = min((it.number for it in self.begun), default=0) if self.done else 0
        return sorted(it for it in listed if it not in self.begun and it.number >= oldest)

    def went_on(self, listed: Iterable[Step], *, has_owner: bool) -> bool:
        """Returns whether somebody went on from the last step, which was never done here. The step before it
        is removed, and with the first one the owner's file comes, only once it is done: so a clone of the
        database, made before that, finds that it is not alone."""
        last = self.begun[-1] if self.begun else None
        there = set(listed)
        if last is None or last not in there or self.done >= last.number:
            return False
        return there == {last} if self.done else has_owner

    def next(self, listed: Iterable[Step], run: str) -> Step:
        """Returns the step that comes after all others."""
        return Step(max((it.number for it in (*listed, *self.begun)), default=0) + 1, run)

    def begin(self, step: Step, there: Sequence[Step] = ()) -> Lineage:
        """Returns the lineage with a step begun. `there`: its own in the store, which stay known."""
        others = [it for it in self.begun if it not in there]
        return Lineage((*sorted({*there, *others[-MOST_BEGUN:]}), step), self.done)

    def finish(self, step: Step) -> Lineage:
        """Returns the lineage once a step's object is in the store."""
        return Lineage(self.begun, step.number)


def lineage_prefix(policy: str) -> str:
    """Returns the prefix of the keys of all steps."""
    return f"{policy}/meta/lineage/"


def step_key(policy: str, step: Step) -> str:
    """Returns the key of a step's object."""
    return f"{lineage_prefix(policy)}{step.number:0{DIGITS}d}-{step.run}.json"


def step_of(policy: str, key: str) -> Step | None:
    """Returns the step that a key is of; None where no run has put such an object."""
    match = _KEY.fullmatch(key.removeprefix(lineage_prefix(policy)))
    return Step(int(match[1]), match[2]) if match else None


OWNER = "owner"
_FIELDS = ("owner", "deployment", "lineage", "marker", "adopting")


@dataclass(frozen=True)
class BindingRecord:
    """The binding as the database has recorded it. `owner`: the random id that the archive knows it by.
    `marker`: of the store that the policy has used; `known`: of the store that any policy has used at this
    URL. `adopting`: an adoption that has not ended. `time`: the server's, where there was a record."""

    owner: str | None = None
    deployment: Deployment | None = None
    lineage: Lineage = field(default_factory=Lineage)
    marker: str | None = None
    known: str | None = None
    adopting: Document | None = None
    time: datetime | None = None


def read_record(receipts: Receipts, url: str | None, session: ClientSession | None = None) -> BindingRecord:
    """Returns what the database has recorded of a policy and of the store at a URL, with one query."""
    own = receipts.identity(OWNER)
    of_store = Document(policy="", name=record_name(url or ""))
    wanted = {**dict.fromkeys(_FIELDS, 1), "time": "$$NOW"}
    collection = receipts.collection.with_options(codec_options=CODEC)
    found = {
        it["_id"]["name"]: it
        for it in collection.find({"_id": {"$in": [own, of_store]}}, wanted, session=session)
    }
    mine, store = found.get(OWNER, {}), found.get(of_store["name"], {})
    with reading(OWNER):
        told = mine.get("deployment")
        return BindingRecord(
            mine.get("owner"),
            None if told is None else Deployment.of(told),
            Lineage.of(mine.get("lineage")),
            mine.get("marker"),
            store.get("marker"),
            mine.get("adopting"),
            mine.get("time"),
        )


@dataclass(frozen=True)
class OwnerFile:
    """The file `meta/owner.json`. `deployment`: None where it was written before there was more than an
    owner. `text`: what it says, for people."""

    owner: str
    deployment: Deployment | None
    text: str

    @classmethod
    def of(cls, data: bytes, place: str) -> OwnerFile:
        """Returns what the bytes of the file say. Raises HaltedError where they are no such file's."""
        try:
            told = json.loads(data)
            deployment = Deployment.of(told["deployment"]) if "deployment" in told else None
            name = deployment.name if deployment else f"database {told['database']}"
            by = f", written by {told['user']} on {told['host']} at {told['at']}" if "at" in told else ""
            return cls(str(told["owner"]), deployment, f"{name}{by}"[:400])
        except (ValueError, RecursionError, TypeError, KeyError):
            raise HaltedError(
                f"{place} does not say whose archive this is: {data[:80]!r}. Nothing was changed. Restore it "
                "from a backup; or, if this database alone archives here, take it over: bucketwise adopt "
                "--reason TEXT"
            ) from None
