"""Receipts: records of commits and deletes, in MongoDB beside the data, written in the transaction that
deletes.

Offline, there is one for each commit, written after its manifest. `live` tells which buckets of the commit no
run has deleted yet: only those may be deleted, and only for those is a live document with the same `_id` a
newer version. Elsewhere it is another bucket, and the archive keeps both. A dropped commit keeps its seal
there, which tells it from an unknown one.

Online, there is one for each batch of moved buckets; `ids` are those whose originals no run has deleted yet.
Its state is "copied". For later versions of archived buckets it is "merging" before they are merged, and
"merged" until their windows are rolled up again."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import chain
from typing import Any

import bson
import numpy as np
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions
from numpy.typing import NDArray
from pymongo import ASCENDING, DESCENDING, IndexModel, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.database import Database

from bucketwise.archivers.format.manifest import DamagedError, Manifest
from bucketwise.archivers.format.names import Commit, commit_at, files_digest
from bucketwise.buckets.bson.raw import LOSSLESS, Docs, without_uuid
from bucketwise.buckets.bson.types import DECODED
from bucketwise.config.errors import HaltedError
from bucketwise.config.tables import COLD
from bucketwise.rollups.context import majority

COLLECTION = "bucketwise_receipts"
REMEDY = f"Restore {COLLECTION} from a backup, or find out who changed it"
Document = dict[str, Any]
Shape = dict[str, type]
#: What records must have to be used at all, by their names.
_NAMED: dict[str, Shape] = {
    "heads": {"sequence": int, "commits": list},
    "last": {"sequence": int, "sha256": str},
    "moved": {"files": list},
    "collections": {"held": Mapping},
    "begun": {"seals": list},
    "owner": {"owner": str},
}
#: Those of registered commits. What they say is held against manifests.
_OF_COMMIT: Shape = {
    "state": str, "sequence": int, "seal": str, "live": bytes, "days": list,
    "first": datetime, "last": datetime, "copied": datetime, "first_day": int, "kin": str,
    "buckets": int, "readings": int, "bytes": int, "documents_bytes": int,
}  # fmt: skip


def record_fault(name: str, what: str, collection: str = COLLECTION) -> DamagedError:
    """Returns the error for a record that is not as it was written."""
    remedy = REMEDY.replace(COLLECTION, collection)
    return DamagedError("record-differs", f"{collection}, {name}", what, remedy)


@contextmanager
def reading(name: str, collection: str = COLLECTION) -> Iterator[None]:
    """Raises DamagedError where what is read of a record does not have its form."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError):
        what = "it does not have the form of such a record"
        raise record_fault(name, what, collection) from None


def shaped(record: Document, *, left_out: frozenset[str] = frozenset()) -> Document:
    """Returns a record. Raises DamagedError where it does not have the form of such a record. `left_out`:
    what was not asked for."""
    name = str(record["_id"]["name"])
    shape = _NAMED.get(name, {})
    if shape and record.get("kind") != name:
        raise record_fault(name, f"its kind is {record.get('kind')!r}")
    if record.get("kind") == "offline" and "seal" in record:
        shape = _OF_COMMIT
    for key, kind in shape.items():
        if key not in left_out and not isinstance(record.get(key), kind):
            raise record_fault(name, f"{key} is missing, or no such value")
    if shape is _OF_COMMIT and record["state"] in ("replaced", "held") and "replaced_by" not in record:
        raise record_fault(name, "it does not say what has replaced the commit")
    return record


@dataclass(frozen=True)
class RunIdentity:
    """A run as its records name it. `now_given`: the instant of `--now`; None where it was the present."""

    run: str
    host: str
    user: str
    version: str
    now_given: datetime | None = None

    @property
    def body(self) -> dict[str, Any]:
        """Returns the fields of a record that name the run."""
        return asdict(self)


#: For what only reads.
NO_RUN = RunIdentity("", "", "", "")
_PAGE = 1000
_LIVE = frozenset({"live"})
#: States of online receipts: later versions of archived buckets were copied; were merged with these.
MERGING, MERGED = "merging", "merged"
#: States of an offline commit that another one has taken over: it is dropped next; or it stays in the store
#: while a hold covers it.
REPLACED, HELD = "replaced", "held"
#: State of the record of a dropped commit in which nothing was left, while what has left it may lie beside
#: the archive; and kind of the receipt which says so.
EMPTIED = "emptied"
#: Kind of the document that puts a UTC day of an online archive under a tombstone.
TOMBSTONE = "tombstone"

#: Fields of an offline commit's receipt, until the commit is dropped.
_OF_COMMITS = (
    "state", "live", "collection", "parts", "documents_sha256", "deleted", "days", "first", "last",
    "first_day", "committed", "compacted", "drilled", "buckets", "readings", "bytes", "documents_bytes",
    "kin", "copied", "known", "files",
    "replaced_at", "tombstone", "ended", "next_move", "stored", "unerased",
)  # fmt: skip
#: Those of them that stay as long as what has left the commit may lie beside the archive.
_OF_EMPTIED = frozenset({*_OF_COMMIT, "collection", "parts", "documents_sha256", "committed", "tombstone"})
#: Binary data among `_id`s stays as it is: it may claim to be a UUID, and be of any length.
AS_QUERIED: CodecOptions[Document] = LOSSLESS.with_options(uuid_representation=UuidRepresentation.UNSPECIFIED)
#: Documents as dicts: for those that only the suite writes.
CODEC = DECODED
#: The name of the first store, by which receipts tell the storage class of a commit's parts there.
FIRST = "first"
#: What the receipt of a commit has that may hold what was erased, since it could not be read then: the
#: erasures, each with a key, the hash of its request under that key, the reason and the time.
UNERASED = "unerased"
#: The query for commits of which no summary can be made from their buckets: these have to be thawed before
#: the first store gives them, or may hold what was erased.
UNSUMMARISABLE: Document = {
    "$or": [{f"stored.{FIRST}": {"$in": list(COLD)}}, {f"{UNERASED}.0": {"$exists": True}}]
}


def is_cold(receipt: Mapping[str, Any]) -> bool:
    """Returns whether the parts of a commit have to be thawed before the first store gives them, as its
    receipt tells."""
    return receipt.get("stored", {}).get(FIRST) in COLD


class Receipts:
    """The receipts of one policy."""

    def __init__(self, database: Database[Document], policy: str) -> None:
        self.policy = policy
        # Raw, so that an `_id` that is a document keeps its bytes.
        self.collection: Collection[Document] = database.get_collection(
            COLLECTION, codec_options=LOSSLESS, write_concern=majority(database)
        )

    def prepare(self) -> None:
        """Creates the indexes that find online copies, and the few receipts that are not of deletes."""
        kinds = [*((it, ASCENDING) for it in ("_id.policy", "kind", "state", "last"))]
        days = [("_id.policy", ASCENDING), ("kind", ASCENDING), ("days", ASCENDING)]
        times = [*((it, ASCENDING) for it in ("_id.policy", "kind", "last", "first"))]
        copies = [("_id.policy", ASCENDING), ("ids", ASCENDING)]
        starts = [("_id.policy", ASCENDING), ("kind", ASCENDING), ("first_day", ASCENDING)]
        times_made = [("_id.policy", ASCENDING), ("committed", ASCENDING)]
        waiting = IndexModel(times_made, partialFilterExpression={"compacted": False})
        few = IndexModel(copies, partialFilterExpression={"state": "copied"})
        numbers = [("_id.policy", ASCENDING), ("sequence", ASCENDING)]
        heads = IndexModel(numbers, partialFilterExpression={"heads": {"$exists": True}})
        lengths = [("_id.policy", ASCENDING), ("tombstone.keep", ASCENDING)]
        tombstones = IndexModel(lengths, partialFilterExpression={"tombstone.keep": {"$exists": True}})
        partial = (few, waiting, heads, tombstones)
        self.collection.create_indexes([*map(IndexModel, (kinds, days, starts, times)), *partial])

    def prepare_rules(self) -> None:
        """Creates the index that finds commits by the rule that keeps them longest."""
        keys = [(it, ASCENDING) for it in ("_id.policy", "kind", "rules.of", "rules.longest", "last")]
        self.collection.create_indexes([IndexModel(keys)])

    def prepare_moves(self) -> None:
        """Creates the index that finds commits whose parts may have to move to another storage class."""
        keys = [("_id.policy", ASCENDING), ("next_move", ASCENDING)]
        partial = {"next_move": {"$exists": True}}
        self.collection.create_indexes([IndexModel(keys, partialFilterExpression=partial)])

    def identity(self, name: str) -> Document:
        """Returns the `_id` of the receipt of that name."""
        return {"policy": self.policy, "name": name}

    def get(self, name: str, session: ClientSession | None = None) -> Document | None:
        """Returns the receipt of that name; None where there is none."""
        return self.get_all([name], session).get(name)

    def get_all(self, names: Iterable[str], session: ClientSession | None = None) -> dict[str, Document]:
        """Returns those of these few receipts that are there, by name."""
        wanted = {"$in": [self.identity(name) for name in names]}
        found = self.collection.find({"_id": wanted}, session=session)
        return {document["_id"]["name"]: shaped(document) for document in found}

    def _named(self, names: Iterable[str]) -> Iterator[Document]:
        """Yields queries that find the receipts of these names, a page each."""
        wanted = [self.identity(name) for name in names]
        for at in range(0, len(wanted), _PAGE):
            yield {"_id": {"$in": wanted[at : at + _PAGE]}}

    def outlines(self, names: Sequence[str]) -> dict[str, Document]:
        """Returns those of these receipts that are there, by name, without what each tells of single buckets
        and parts."""
        some = (self.collection.find(it, {"live": 0, "known": 0}) for it in self._named(names))
        return {
            it["_id"]["name"]: shaped(it, left_out=frozenset({"live"})) for it in chain.from_iterable(some)
        }

    def update(
        self, name: str, update: Document | list[Document], session: ClientSession | None = None
    ) -> None:
        """Applies an update to the receipt of that name, which is made if it is absent."""
        self.collection.update_one({"_id": self.identity(name)}, update, upsert=True, session=session)

    def update_of(self, name: str, update: Document | list[Document]) -> UpdateOne:
        """Returns the update of one receipt, for several in one command."""
        return UpdateOne({"_id": self.identity(name)}, update, upsert=True)

    def mark_dropped(self, name: str) -> None:
        """Reduces the receipt of a dropped commit to what recognizes it: its number and seal, and by which
        one it was replaced. Where nothing was left in it, what tells its end stays until that has come, also
        if a run that had lost its lease marks it again."""
        found = self.get(name) or {}
        if found.get("known"):
            self.drop_fingerprints(name)
        is_emptied = "ended" not in found and found.get("replaced_by", name) is None
        is_told = found.get("kind") == "offline" or found.get("state") == EMPTIED
        self._reduce(name, _OF_EMPTIED if is_emptied and is_told else frozenset())

    def mark_over(self, name: str) -> None:
        """Reduces the receipt of a dropped commit in which nothing was left, and of which nothing lies
        beside the archive."""
        self._reduce(name, frozenset())

    def _reduce(self, name: str, stays: frozenset[str]) -> None:
        now = {"kind": "dropped", **({"state": EMPTIED} if stays else {})}
        self.collection.update_one(
            {"_id": self.identity(name), "kind": {"$in": ["offline", "dropped"]}},
            {"$set": now, "$unset": {it: "" for it in _OF_COMMITS if it not in stays}},
        )

    def files(self, name: str) -> list[str]:
        """Returns the keys of the parts of a commit; none where it was dropped, or replaced."""
        found = self.get(name) or {}
        return list(found.get("parts", ())) if found.get("state") not in (REPLACED, HELD) else []

    def drop_fingerprints(self, name: str) -> None:
        """Removes the fingerprints of a commit's copies. Their documents stay, empty."""
        low, high = (self.identity(f"copies-{name}{end}") for end in ("-", "."))
        gone = dict.fromkeys(("buckets", "ids"), "")
        self.collection.update_many({"_id": {"$gte": low, "$lt": high}}, {"$unset": gone})

    def dropped(self) -> dict[str, str]:
        """Returns the seals of the commits that were dropped, by name."""
        query = {"_id.policy": self.policy, "kind": "dropped"}
        return {it.name: it.seal for it in self._commits(query) if it.seal is not None}

    def seal(self, name: str) -> str | None:
        """Returns the seal of an offline commit's manifest; None where it is not registered."""
        found = self.registered([name]).get(name)
        return None if found is None else found.seal

    def registered(self, names: Iterable[str]) -> dict[str, Commit]:
        """Returns those of these offline commits that are registered, by name."""
        pages = (self._commits({**it, "kind": "offline"}) for it in self._named(names))
        return {it.name: it for it in chain.from_iterable(pages)}

    def all_registered(self) -> dict[str, Commit]:
        """Returns all registered offline commits, by name."""
        query = {"_id.policy": self.policy, "kind": "offline"}
        return {it.name: it for it in self._commits(query)}

    def _commits(self, query: Document, session: ClientSession | None = None) -> Iterator[Commit]:
        whole = {**query, "seal": {"$exists": True}}
        for found in self.collection.find(whole, {"seal": 1, "sequence": 1}, session=session):
            if (commit := commit_of(found)) is None:
                raise HaltedError(
                    f"{COLLECTION}, {found['_id']['name']}: it is the receipt of a commit, and no commit has "
                    "such a name. Nothing was changed. Find out who wrote it, and remove it"
                )
            yield commit

    def replaced(self) -> Iterator[Document]:
        """Yields the receipts of commits that others have taken over, and that are not dropped yet."""
        for state in (REPLACED, HELD):
            yield from self.in_state(state, "offline")

    def in_state(
        self, state: str | Document, kind: str, narrowed: Document | None = None
    ) -> Iterator[Document]:
        """Yields the receipts in a state, or one that matches. Those of offline commits must be registered.
        `narrowed`: a further query."""
        whole = {"seal": {"$exists": True}} if kind == "offline" else {}
        query = {"_id.policy": self.policy, "state": state, "kind": kind, **whole, **(narrowed or {})}
        for found in self._queryable.find(query, {"live": 0}).sort("_id"):
            yield shaped(found, left_out=_LIVE)

    def numbered(self, after: int, query: Document | None = None, most: int = 0) -> Iterator[Document]:
        """Yields the receipts of deletes, and other numbered ones, after this number; at most `most` of them,
        if that is not 0. `query` narrows it."""
        low, high = self.identity(f"delete-{after:010d}"), self.identity("delete.")
        wanted = {"_id": {"$gt": low, "$lt": high}, **(query or {})}
        yield from self.collection.with_options(codec_options=CODEC).find(wanted, limit=most).sort("_id")

    def deleted_from(self) -> dict[str, str]:
        """Returns the commits that receipts of deletes name, and their seals; not those of moved receipts."""
        mine = {"_id.policy": self.policy, "kind": "delete", "held_by.commit": {"$exists": True}}
        groups: list[Document] = [{"$match": mine}, {"$group": {"_id": "$held_by"}}]
        found = (it["_id"] for it in self.collection.aggregate(groups))
        return {it["commit"]: str(it.get("manifest_sha256")) for it in found}

    def gaps(self) -> Iterator[Document]:
        """Yields the receipts which say that others are lost."""
        query = {"_id.policy": self.policy, "kind": "gap"}
        yield from self.collection.with_options(codec_options=CODEC).find(query).sort("_id")

    def remove(self, ids: Sequence[Document], session: ClientSession) -> int:
        """Removes these receipts, which lie in the store. Returns how many there were."""
        return self.collection.delete_many({"_id": {"$in": list(ids)}}, session=session).deleted_count

    def policies(self) -> dict[str, str]:
        """Returns the policy texts that receipts of deletes refer to, by their SHA-256."""
        found = self.collection.find({"_id.policy": self.policy, "kind": "policy"})
        return {it["_id"]["name"].removeprefix("policy-"): str(it.get("text")) for it in found}

    def other_kind(self, to: str) -> str | None:
        """Returns the archive ("offline", "online") that was written to and is not `to`; or None."""
        others = [kind for kind in ("offline", "online") if kind != to]
        found = self.collection.find_one({"_id.policy": self.policy, "kind": {"$in": others}}, {"kind": 1})
        return None if found is None else str(found["kind"])

    def commits(self) -> Iterator[Commit]:
        """Yields the offline commits that must be there, by their receipts."""
        return self._commits(self.is_current)

    def current(self, names: Sequence[str]) -> set[str]:
        """Returns those of these commits that must be there."""
        wanted = {"_id": {"$in": [self.identity(name) for name in names]}}
        return {it.name for it in self._commits({**self.is_current, **wanted})}

    def within(self, first: int, last: int, session: ClientSession | None = None) -> list[Commit]:
        """Returns the commits in `is_current` with readings from day first to last (UTC, since 1970)."""
        days = {"$elemMatch": {"$gte": first, "$lte": last}}
        return sorted(self._commits({**self.is_current, "days": days}, session), key=lambda it: it.sequence)

    def span(self, session: ClientSession | None = None) -> tuple[int, int] | None:
        """Returns the first and last UTC day of the commits that must be there; None where there are none."""
        days: list[int] = []  # from both ends: a run may make the first commit between the two queries
        for order in (ASCENDING, DESCENDING):
            found = self.collection.find(self.is_current, {"days": 1}, session=session).sort("days", order)
            days += [day for it in found.limit(1) for day in it["days"]]
        return (min(days), max(days)) if days else None

    def parts(self) -> Iterator[str]:
        """Yields the keys of the parts of commits that must be there."""
        for found in self.collection.find(self.is_current, {"parts": 1}):
            yield from found["parts"]

    @property
    def _queryable(self) -> Collection[Document]:
        """Returns the collection with `_id`s decoded so that they can be used in queries."""
        return self.collection.with_options(codec_options=AS_QUERIED)

    @property
    def is_current(self) -> Document:
        """Returns the query for current commits, which must be in the store. One without a seal was restored
        before it was registered."""
        whole = {"seal": {"$exists": True}, "state": {"$in": ["open", "closed"]}}
        return {"_id.policy": self.policy, "kind": "offline", **whole}

    def live(self, name: str, buckets: int, session: ClientSession | None = None) -> NDArray[np.bool_]:
        """Returns which buckets of a commit may be live as it holds them, (n,). Without a receipt: all."""
        return live_of(self.get(name, session), buckets)

    def set_live(
        self,
        name: str,
        live: NDArray[np.bool_],
        facts: Document,
        session: ClientSession,
        deleted: int = 0,
        also: Sequence[UpdateOne] = (),
    ) -> None:
        """Records which buckets of a commit are live, which counts, and is not replaced. `deleted`: how many
        went just now, or were found gone. `also`: further updates for the same command."""
        state = "open" if live.any() else "closed"
        bits = zlib.compress(np.packbits(live).tobytes())
        update = {
            "$set": {**facts, "kind": "offline", "state": state, "live": bits},
            "$inc": {"deleted": deleted},
            "$unset": {"replaced_by": "", "replaced_at": ""},
        }
        self.collection.bulk_write([self.update_of(name, update), *also], session=session)

    def copied(self, ids: Sequence[Any], session: ClientSession | None = None) -> dict[bytes, datetime]:
        """Returns those of these `_id`s whose copy's original no run has deleted, and when it was copied."""
        return {name: when for name, (_, when) in self.open(ids, "copied", session).items()}

    def open(
        self, ids: Sequence[Any], state: str, session: ClientSession | None = None
    ) -> dict[bytes, tuple[str, datetime]]:
        """Returns those of these `_id`s that online receipts in a state name, as `Docs.raw_id` gives them,
        each with the name of the receipt and the time of the copies."""
        found: dict[bytes, tuple[str, datetime]] = {}
        for at in range(0, len(ids), _PAGE):
            some = ids[at : at + _PAGE]
            wanted = {"$in": list(map(without_uuid, some))}
            query = {"_id.policy": self.policy, "kind": "online", "state": state, "ids": wanted}
            for receipt in self._queryable.find(query, {"ids": 1, "copied": 1}, session=session):
                named = Docs.of([bson.encode({"_id": it}, codec_options=LOSSLESS) for it in receipt["ids"]])
                entry = receipt["_id"]["name"], receipt["copied"]
                found.update((named.raw_id(i), entry) for i in range(len(named)))
        return found

    def pull(self, ids: Sequence[Any], session: ClientSession, state: str = "copied") -> None:
        """Takes these online copies out of their receipts. A receipt without any left is closed."""
        mine = {"_id.policy": self.policy, "state": state}
        self.collection.update_many(
            {**mine, "ids": {"$in": list(ids)}}, {"$pullAll": {"ids": list(ids)}}, session=session
        )
        self.collection.update_many(
            {**mine, "ids": []},
            {"$set": {"state": "closed"}, "$unset": {"ids": "", "fingerprints": ""}},
            session=session,
        )


def commit_of(receipt: Document) -> Commit | None:
    """Returns the commit that a receipt names; None where it is no name of a commit."""
    with reading(receipt["_id"]["name"]):
        return commit_at(receipt["_id"]["name"], int(receipt["sequence"]), str(receipt["seal"]))


def live_of(receipt: Document | None, buckets: int) -> NDArray[np.bool_]:
    """Returns which of a commit's buckets may be live by its receipt; all without one."""
    if receipt is None or "live" not in receipt:
        return np.ones(buckets, dtype=np.bool_)
    try:
        bits = np.frombuffer(zlib.decompress(receipt["live"]), dtype=np.uint8)
    except (zlib.error, TypeError):
        bits = np.zeros(0, dtype=np.uint8)
    if len(bits) != (buckets + 7) // 8:
        raise record_fault(receipt["_id"]["name"], "it does not say which buckets may be live")
    return np.unpackbits(bits, count=buckets).astype(np.bool_)


def facts_of(manifest: Manifest) -> Document:
    """Returns the facts of a commit that its receipt repeats."""
    return {
        "collection": manifest.collection,
        "parts": [part.key for part in manifest.parts],
        "files": files_digest((file.key, file.bytes) for file in manifest.files),
        "documents_sha256": manifest.documents_sha256,
        "sequence": manifest.sequence,
        "seal": manifest.sha256,
        "days": manifest.days,
        "first": manifest.first,
        "last": manifest.last,
        "first_day": manifest.days[0],
        "committed": manifest.created,
        "compacted": len(manifest.replaces) > 1,
        "buckets": manifest.buckets,
        "readings": manifest.readings,
        "bytes": manifest.size,
        "documents_bytes": manifest.documents_bytes,
        "kin": manifest.merge_key,
        "copied": manifest.newest.created,
    }
