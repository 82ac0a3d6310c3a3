"""Finds out from the oplog when readings were written, for collections whose `_id`s do not tell."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import bson
import numpy as np
from bson.binary import Binary
from numpy.typing import NDArray
from pymongo.errors import ExecutionTimeout, OperationFailure

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.bson.types import DECODED
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.times import as_text
from bucketwise.buckets.health.arrivals import Write, applied, has_readings, header_projection, writes
from bucketwise.buckets.health.late import Arrival
from bucketwise.config.policies import Policy
from bucketwise.jobs.core.subject import Subject

Document = dict[str, Any]

#: Newest entries that are read, of any collection.
ENTRIES = 100_000


#: So many writes and bytes of what is found there are taken. Milliseconds.
_WRITES, _BYTES, _LONGEST = 1_000, 16_000_000, 10_000


_UNAUTHORIZED = 13


def by_oplog(subject: Subject, policy: Policy) -> Arrival:
    """Looks at the newest entries of the oplog. Where it can't, the basis says why."""
    if subject.kind == "timeseries":
        return _unknown("the oplog tells of a native time series in MongoDB's own buckets")
    (listed,) = subject.database.list_collections(filter={"name": policy.collection})
    uuid = listed["info"]["uuid"]
    of = uuid if isinstance(uuid, UUID) else Binary.as_uuid(uuid)
    oplog = subject.database.client["local"].get_collection("oplog.rs", codec_options=DECODED)
    newest: list[Document] = [{"$limit": ENTRIES}]
    summed: Document = {"$group": {"_id": None, "entries": {"$sum": 1}, "since": {"$min": "$wall"}}}
    how: Document = {"hint": {"$natural": -1}, "maxTimeMS": _LONGEST}
    try:
        seen = next(iter(oplog.aggregate([*newest, summed], **how)), None)
        if seen is None:
            return _unknown("there is no oplog: the server is not in a replica set, or is a mongos")
        pipeline = [*newest, {"$match": _matching(of)}, {"$limit": _WRITES}]
        found = _writes(oplog.aggregate_raw_batches(pipeline, **how), of)
    except ExecutionTimeout:
        return _unknown(f"the oplog could not be read within {_LONGEST // 1000} s")
    except OperationFailure as error:
        said = (error.details or {}).get("errmsg", error)
        reason = "the user may not read it" if error.code == _UNAUTHORIZED else said
        return _unknown(f"the oplog was not read: {reason}")
    since = f"{seen['entries']:,} entries of the oplog, back to {as_text(seen['since'])}"
    late = _late(subject, policy, [it for it in found if has_readings(it, policy)])
    return Arrival(late, "oplog", f"by the newest {since}")


def _unknown(reason: str) -> Arrival:
    return Arrival(np.zeros(0), None, reason)


def _matching(of: Any) -> Document:
    """Inserts and updates, also those of transactions; not what migrations move."""
    single = {"ui": of, "op": {"$in": ["i", "u"]}, "fromMigrate": {"$ne": True}}
    return {"$or": [single, {"op": "c", "o.applyOps.ui": of}]}


def _writes(found: Iterable[Any], of: Any) -> list[Write]:
    taken: list[Write] = []
    size = 0
    for data in found:
        for entry in Docs.split(data):
            document: Document = bson.decode(entry, DECODED)
            taken += writes(document, of)
            size += len(entry)
            if len(taken) >= _WRITES or size >= _BYTES:
                return taken[:_WRITES]
    return taken


def _late(subject: Subject, policy: Policy, found: list[Write]) -> NDArray[np.float64]:
    """Returns by how much each write came after its last reading. Of an update only what it wrote is taken
    for a bucket."""
    part: Document = {"count_field": None, "sum_fields": {}, "end_field": None, "overflow": None}
    policy = policy.model_copy(update=part)
    ids = [it.identity for it in found if it.identity is not None]
    heads = subject.source.collection.find({"_id": {"$in": ids}}, header_projection(policy)) if ids else ()
    by_id = {_key(it["_id"]): it for it in heads}
    there = [it for it in found if it.identity is None or _key(it.identity) in by_id]
    whole = (
        it.fields if it.identity is None else applied(by_id[_key(it.identity)], it.fields) for it in there
    )
    documents = [bson.encode(it, codec_options=DECODED) for it in whole]
    decoded = decode(Batch.of(Docs.of(documents)), policy)
    at = np.array([it.at_ms for it in there], dtype=np.float64)
    return (at[decoded.units] - decoded.last)[decoded.columns.filled]


def _key(identity: Any) -> bytes:
    return bson.encode({"": identity}, codec_options=DECODED)
