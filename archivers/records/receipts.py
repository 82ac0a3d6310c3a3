"""Receipts: the record of each delete, in MongoDB beside the data, written in the transaction that deletes.

Offline there is one a commit, written after its manifest. Its `live` says which of the commit's buckets no
run has deleted yet: only those may be deleted, and only of those can a document with the same `_id` be a
newer version. Where another one stands, it is another bucket: the archive keeps both.

A commit that was dropped keeps its seal there, which tells it from one that nobody knows yet.

Online there is one a batch of moved buckets; `ids` are those whose originals no run has deleted yet. Its
state is "copied". Of later versions of archived buckets it is "merging" before they are merged into these,
and "merged" until their windows are rolled up again.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import bson
import numpy as np
from bson.codec_options import CodecOptions, DatetimeConversion
from numpy.typing import NDArray
from pymongo import ASCENDING, IndexModel, ReturnDocument, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.database import Database

from buckets.bson.raw import LOSSLESS, Docs
from rollups.guarded import majority

COLLECTION = "bucketwise_receipts"
_PAGE = 1000
#: States of online receipts: later versions of archived buckets were copied; were merged into these.
MERGING, MERGED = "merging", "merged"

Document = dict[str, Any]
#: Documents as plain ones: for what the suite alone writes.
CODEC: CodecOptions[Document] = CodecOptions(
    tz_aware=True, uuid_representation=4, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


class Receipts:
    """The receipts of one policy."""

    def __init__(self, database: Database[Document], policy: str) -> None:
        self.policy = policy
        # Raw, so that an `_id` that is a document is the same again.
        self.collection: Collection[Document] = database.get_collection(
            COLLECTION, codec_options=LOSSLESS, write_concern=majority(database)
        )

    def prepare(self) -> None:
        """The indexes that find an online copy by its `_id`, and the few receipts that a run asks for among
        those of deletes."""
        kinds = [("_id.policy", ASCENDING), ("kind", ASCENDING), ("state", ASCENDING)]
        times = [("_id.policy", ASCENDING), ("kind", ASCENDING), ("last", ASCENDING)]
        copies = [("_id.policy", ASCENDING), ("ids", ASCENDING)]
        few = IndexModel(copies, partialFilterExpression={"state": "copied"})
        self.collection.create_indexes([IndexModel(kinds), IndexModel(times), few])

    def identity(self, name: str) -> Document:
        return {"policy": self.policy, "name": name}

    def get(self, name: str, session: ClientSession | None = None) -> Document | None:
        return self.get_all([name], session).get(name)

    def get_all(self, names: Iterable[str], session: ClientSession | None = None) -> dict[str, Document]:
        """Of these few: those that are there."""
        wanted = {"$in": [self.identity(name) for name in names]}
        found = self.collection.find({"_id": wanted}, session=session)
        return {document["_id"]["name"]: document for document in found}

    def update(
        self, name: str, update: Document | list[Document], session: ClientSession | None = None
    ) -> None:
        self.collection.update_one({"_id": self.identity(name)}, update, upsert=True, session=session)

    def updating(self, name: str, update: Document | list[Document]) -> UpdateOne:
        """The same, for several in one command."""
        return UpdateOne({"_id": self.identity(name)}, update, upsert=True)

    def bury(self, name: str) -> None:
        """Of a commit that was dropped only its seal stays: it must not come back."""
        gone = dict.fromkeys(("state", "live", "collection", "parts", "documents_sha256", "deleted"), "")
        self.collection.update_one(
            {"_id": self.identity(name), "kind": "offline"}, {"$set": {"kind": "dropped"}, "$unset": gone}
        )

    def dropped(self) -> dict[str, str]:
        """The commits that were dropped, and their seals."""
        return self._seals({"_id.policy": self.policy, "kind": "dropped"})

    def seal(self, name: str) -> str | None:
        """Of an offline commit: the seal of its manifest. None for one that is not registered."""
        return self.seals([name]).get(name)

    def seals(self, names: Iterable[str]) -> dict[str, str]:
        """Of these offline commits: those that are registered, and the seals of their manifests."""
        wanted = [self.identity(name) for name in names]
        found: dict[str, str] = {}
        for at in range(0, len(wanted), _PAGE):
            found |= self._seals({"_id": {"$in": wanted[at : at + _PAGE]}, "kind": "offline"})
        return found

    def all_seals(self) -> dict[str, str]:
        return self._seals({"_id.policy": self.policy, "kind": "offline"})

    def _seals(self, query: Document) -> dict[str, str]:
        found = self.collection.find({**query, "seal": {"$exists": True}}, {"seal": 1})
        return {document["_id"]["name"]: document["seal"] for document in found}

    def in_state(self, state: str, kind: str) -> Iterator[Document]:
        query = {"_id.policy": self.policy, "state": state, "kind": kind}
        yield from self.collection.find(query, {"live": 0}).sort("_id")

    def policies(self) -> dict[str, str]:
        """The texts of the policy as receipts of deletes name them, by their SHA-256."""
        found = self.collection.find({"_id.policy": self.policy, "kind": "policy"})
        return {document["_id"]["name"].removeprefix("policy-"): document["text"] for document in found}

    def owner(self) -> str:
        """Tells this database from others that may archive to the same place: random, made once."""
        found = self.collection.find_one_and_update(
            {"_id": self.identity("owner")},
            {"$setOnInsert": {"kind": "owner", "owner": uuid.uuid4().hex}},
            upsert=True,
            return_document=ReturnDocument.AFTER,
        )
        assert found is not None
        return str(found["owner"])

    def other_kind(self, to: str) -> str | None:
        """The archive, "offline" or "online", that this policy has written to though it is not `to`."""
        others = [kind for kind in ("offline", "online") if kind != to]
        found = self.collection.find_one({"_id.policy": self.policy, "kind": {"$in": others}}, {"kind": 1})
        return None if found is None else str(found["kind"])

    def commits(self) -> Iterator[str]:
        """The offline commits that must be there, by their receipts."""
        for found in self.collection.find(self._standing, {"_id": 1}):
            yield found["_id"]["name"]

    def parts(self) -> Iterator[str]:
        """The keys of their parts."""
        for found in self.collection.find(self._standing, {"parts": 1}):
            yield from found.get("parts", ())  # restored before it was registered: none yet

    @property
    def _standing(self) -> Document:
        return {"_id.policy": self.policy, "kind": "offline", "state": {"$in": ["open", "closed"]}}

    def live(self, name: str, buckets: int, session: ClientSession | None = None) -> NDArray[np.bool_]:
        """Of an offline commit's buckets: which may be live as it holds them. Without a receipt: all."""
        found = self.get(name, session)
        if found is None or "live" not in found:
            return np.ones(buckets, dtype=np.bool_)
        bits = np.frombuffer(zlib.decompress(found["live"]), dtype=np.uint8)
        return np.unpackbits(bits, count=buckets).astype(np.bool_)

    def set_live(
        self,
        name: str,
        live: NDArray[np.bool_],
        facts: Document,
        session: ClientSession,
        deleted: int = 0,
        also: Sequence[UpdateOne] = (),
    ) -> None:
        """`deleted` is how many went just now, or were found gone. `also` goes with it, in one command."""
        state = "open" if live.any() else "closed"
        bits = zlib.compress(np.packbits(live).tobytes())
        update = {
            "$set": {**facts, "kind": "offline", "state": state, "live": bits},
            "$inc": {"deleted": deleted},
        }
        self.collection.bulk_write([self.updating(name, update), *also], session=session)

    def copied(self, ids: Sequence[Any], session: ClientSession | None = None) -> dict[bytes, datetime]:
        """Of these `_id`s: those of online copies whose originals no run has deleted, as `Docs.raw_id` gives
        them, and when the copies were made."""
        return {name: when for name, (_, when) in self.open(ids, "copied", session).items()}

    def open(
        self, ids: Sequence[Any], state: str, session: ClientSession | None = None
    ) -> dict[bytes, tuple[str, datetime]]:
        """Returns of these `_id`s those that online receipts in a state name, as `Docs.raw_id` gives them,
        each with the name of the receipt and the time of the copies."""
        found: dict[bytes, tuple[str, datetime]] = {}
        for at in range(0, len(ids), _PAGE):
            wanted = {"$in": list(ids[at : at + _PAGE])}
            query = {"_id.policy": self.policy, "kind": "online", "state": state, "ids": wanted}
            for receipt in self.collection.find(query, {"ids": 1, "copied": 1}, session=session):
                named = Docs.of([bson.encode({"_id": it}, codec_options=LOSSLESS) for it in receipt["ids"]])
                told = receipt["_id"]["name"], receipt["copied"]
                found.update((named.raw_id(i), told) for i in range(len(named)))
        return found

    def pull(self, ids: Sequence[Any], session: ClientSession, state: str = "copied") -> None:
        """These online copies are nobody's business any more; a receipt without any is closed."""
        mine = {"_id.policy": self.policy, "state": state}
        self.collection.update_many(
            {**mine, "ids": {"$in": list(ids)}}, {"$pullAll": {"ids": list(ids)}}, session=session
        )
        self.collection.update_many(
            {**mine, "ids": []}, {"$set": {"state": "closed"}, "$unset": {"ids": ""}}, session=session
        )
