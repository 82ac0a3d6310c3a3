"""Keeps the versions of buckets that an online archive holds merged, each as it was, in a collection of their
own.

A document holds the bytes of a bucket, or of one of its overflow documents, and their SHA-256. They are
written, and read back, before anything is merged.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from bson.raw_bson import RawBSONDocument
from pymongo import ASCENDING, DeleteMany, UpdateMany
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.database import Database

from bucketwise.archivers.format.manifest import DamagedError
from bucketwise.archivers.records.copies import VersionBeside
from bucketwise.archivers.writes import MAX_BUCKETS, insert_raw, make_packed, same_id
from bucketwise.buckets.bson.cursor import ids_query
from bucketwise.buckets.bson.raw import LOSSLESS, Batch, Docs
from bucketwise.buckets.bson.types import BINARY, BOOL, DOCUMENT, INT32
from bucketwise.buckets.fields.selectors import extended_json
from bucketwise.buckets.versions.readings import Typed, document_of, lacks, number, text
from bucketwise.config.policies import Policy

Document = dict[str, Any]
#: Documents can't be much larger, and this one holds another.
MAX_BYTES = 16_000_000
#: Versions that are looked at together.
_PAGE = 200


class KeptVersion(NamedTuple):
    """One version of a bucket."""

    version: int
    bucket: Batch  # of one
    by: str  # the receipt of its copy
    is_superseded: bool = False  # neither it nor any before it still counts


def counting(versions: Sequence[KeptVersion]) -> list[KeptVersion]:
    """Returns the versions of one bucket that are in what is archived."""
    last = max((i for i, it in enumerate(versions) if it.is_superseded), default=-1)
    return list(versions[last + 1 :])


class KeptVersions:
    """The kept versions of one policy."""

    def __init__(self, database: Database[Document], policy: Policy) -> None:
        assert policy.archive_collections is not None
        self.name = policy.archive_collections.versions
        self._database = database
        self._policy = policy
        self._collection: Collection[Any] = database.get_collection(self.name, codec_options=LOSSLESS)

    def make(self) -> None:
        """Creates the collection, with zstd blocks and the index that finds all versions of a bucket."""
        make_packed(self._database, self.name)
        self._collection.create_index([("_id._id", ASCENDING)])

    def of(self, ids: Sequence[Any], session: ClientSession | None = None) -> dict[bytes, list[KeptVersion]]:
        """Returns the versions of the buckets with these `_id`s, by `same_id`, in their order. Raises
        DamagedError where one is not as it was written."""
        parts: dict[bytes, list[RawBSONDocument]] = {}
        for at in range(0, len(ids), MAX_BUCKETS):
            query = {"_id._id": {"$in": list(ids[at : at + MAX_BUCKETS])}}
            for found in self._collection.find(query, session=session).sort("_id"):
                if (fault := self._fault(found)) is not None:
                    raise fault
                name = same_id(Docs.of([bytes(found["_id"].raw)]).raw_id(0))
                parts.setdefault(name, []).append(found)
        return {name: list(_versions(found)) for name, found in parts.items()}

    def put(
        self,
        name: str,
        entries: Sequence[tuple[int, Batch]],
        session: ClientSession,
        *,
        is_superseded: bool = False,
    ) -> None:
        """Writes these buckets as versions of these numbers; `name`: the receipt of their copies."""
        facts = {"superseded": bytes([BOOL, 1])} if is_superseded else {}
        documents = [it for version, bucket in entries for it in _documents(name, version, bucket, facts)]
        insert_raw(self._database, self.name, Docs.of(documents), session)

    def drop(self, ids: Sequence[Any], session: ClientSession, by: str) -> None:
        """Deletes the versions of these buckets that count, and were copied under one receipt."""
        mine = {"_id._id": {"$in": list(ids)}, "by": by, "superseded": None}
        self._collection.delete_many(mine, session=session)

    def clear(self, ids: Sequence[Any], session: ClientSession) -> None:
        """Deletes all versions of these buckets."""
        self._collection.delete_many({"_id._id": {"$in": list(ids)}}, session=session)

    def retire(self, newer: Batch, session: ClientSession) -> list[Batch]:
        """Replaces the versions of these buckets that count by the buckets themselves: versions that they
        contain whole are deleted, and the rest are superseded. Returns these."""
        versions = self.of(newer.main.ids, session)
        writes: list[UpdateMany | DeleteMany] = []
        superseded: list[Batch] = []
        for i, raw_id in enumerate(newer.main.raw_ids):
            for it in counting(versions.get(same_id(raw_id), [])):
                mine = {"_id._id": newer.main.decode_id(i), "_id.version": it.version}
                if lacks(self._policy, it.bucket, newer.slice(i, i + 1))[0]:
                    writes.append(UpdateMany(mine, {"$set": {"superseded": True}}))
                    superseded.append(it.bucket)
                else:
                    writes.append(DeleteMany(mine))
        if writes:
            self._collection.bulk_write(writes, session=session)
        return superseded

    def all(self) -> Iterator[tuple[list[bytes], KeptVersion]]:
        """Yields all versions of all buckets, each with the `_id`s of its documents in the collection."""
        found = self._collection.find().sort("_id")
        for _, parts in itertools.groupby(found, key=_version_of):
            some = list(parts)
            yield [bytes(it["_id"].raw) for it in some], next(_versions(some))

    def erase(self, identities: Sequence[bytes], session: ClientSession) -> None:
        """Deletes documents by the BSON of their `_id`s."""
        raw = [bytes([DOCUMENT]) + it for it in identities]
        self._collection.delete_many(ids_query(raw), session=session)

    def pages(self) -> Iterator[tuple[list[DamagedError], dict[bytes, list[KeptVersion]]]]:
        """Yields all versions by `same_id`, some at a time; before them, an error for each document that is
        not as it was written, whose version is left out."""
        found = itertools.groupby(self._collection.find().sort("_id"), key=_version_of)
        while some := [list(parts) for _, parts in itertools.islice(found, _PAGE)]:
            faults, sound = list[DamagedError](), dict[bytes, list[KeptVersion]]()
            for parts in some:
                if damaged := [fault for it in parts if (fault := self._fault(it)) is not None]:
                    faults += damaged
                    continue
                name = same_id(_version_of(parts[0])[0])
                sound.setdefault(name, []).extend(_versions(parts))
            yield faults, sound

    def _fault(self, found: RawBSONDocument) -> DamagedError | None:
        if found["sha256"] == hashlib.sha256(found["document"]).hexdigest():
            return None
        bucket = extended_json(Docs.of([bytes(found["_id"].raw)]).legible_id(0))
        place = f"{self.name}, version {found['_id']['version']} of _id {bucket}"
        what = "it was changed: its SHA-256 differs"
        return DamagedError("version-differs", place, what, "Restore it from a backup of the collection")


def beside(kept: Mapping[bytes, Sequence[KeptVersion]]) -> list[VersionBeside]:
    """Returns these versions, given by `same_id`, as receipts are asked for them."""
    return [
        VersionBeside(name, it.version, it.bucket, it.is_superseded)
        for name, some in kept.items()
        for it in some
    ]


def _version_of(found: RawBSONDocument) -> tuple[bytes, int]:
    return Docs.of([bytes(found["_id"].raw)]).raw_id(0), int(found["_id"]["version"])


def _versions(found: Iterable[RawBSONDocument]) -> Iterator[KeptVersion]:
    for version, parts in itertools.groupby(found, key=lambda it: int(it["_id"]["version"])):
        main, *extra = parts
        owner = np.zeros(len(extra), dtype=np.int32)
        documents = Docs.of([bytes(main["document"])]), Docs.of([bytes(it["document"]) for it in extra])
        yield KeptVersion(version, Batch(*documents, owner), str(main["by"]), bool(main.get("superseded")))


def _documents(by: str, version: int, bucket: Batch, facts: dict[str, Typed]) -> Iterator[bytes]:
    """Yields the bucket's own document, then its overflow."""
    for part, document in enumerate([bucket.main[0], *bucket.extra]):
        identity = {
            "_id": bucket.main.raw_id(0),
            "version": number(INT32, float(version)),
            "part": number(INT32, float(part)),
        }
        yield document_of(
            {
                "_id": bytes([DOCUMENT]) + document_of(identity),
                "by": text(by),
                "sha256": text(hashlib.sha256(document).hexdigest()),
                **facts,
                "document": bytes([BINARY]) + len(document).to_bytes(4, "little") + b"\0" + document,
            }
        )


def is_too_large(bucket: Batch) -> bool:
    """Returns whether a document of the bucket does not fit into another."""
    return any(len(document) > MAX_BYTES for document in (*bucket.main, *bucket.extra))
