"""Asks MongoDB for a collection: its sizes, how its indexes are used, and the cache that they need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import bson
import numpy as np
from bson.binary import Binary
from numpy.typing import NDArray
from pymongo.database import Database
from pymongo.errors import ExecutionTimeout, OperationFailure

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.bson.types import DECODED
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.times import as_text
from bucketwise.buckets.health import (
    Arrival,
    Finding,
    Write,
    applied,
    has_readings,
    header_projection,
    share,
    writes,
)
from bucketwise.buckets.inferring.fields import quoted
from bucketwise.buckets.models import model_of
from bucketwise.config.policies import Policy
from bucketwise.jobs.core.subject import Subject
from bucketwise.jobs.output.text import size

Document = dict[str, Any]

#: Milliseconds: measurements of a native time-series collection are counted one by one; of more buckets than
#: these, only those in so many of them.
_LONGEST, _BUCKETS = 10_000, 1_000
_HOT_DAYS = 30


@dataclass(frozen=True)
class CollectionStats:
    """The size of a collection. Bytes; None: the server does not tell."""

    documents: int | None
    data_bytes: int
    storage_bytes: int
    index_bytes: int
    indexes: dict[str, int] = field(default_factory=dict)
    cache_bytes: int | None = None


def collection_stats(subject: Subject) -> CollectionStats:
    """Asks for the sizes of a collection. Raises PyMongoError."""
    database, name = subject.database, subject.policy.collection
    native = subject.kind == "timeseries"
    stats = database.command("collStats", f"system.buckets.{name}" if native else name)
    return CollectionStats(
        measurements(database, subject.policy) if native else stats.get("count"),
        stats["size"],
        stats["storageSize"],
        stats["totalIndexSize"],
        dict(stats["indexSizes"]),
        _cache(subject),
    )


def measurements(database: Database[Document], policy: Policy) -> int | None:
    """Returns how many documents there are; of a native time-series collection measurements, where there are
    many buckets about. None where that takes too long."""
    collection, buckets = database[policy.collection], database[f"system.buckets.{policy.collection}"]
    held = {
        "$ifNull": ["$control.count", {"$size": {"$objectToArray": f"$data.{model_of(policy).first_field}"}}]
    }
    group: Document = {"$group": {"_id": None, "each": {"$avg": held}}}
    try:
        count = buckets.estimated_document_count()
        if count > _BUCKETS:
            sample: Document = {"$sample": {"size": _BUCKETS}}
            (found,) = buckets.aggregate([sample, group], maxTimeMS=_LONGEST)
            return round(count * float(found["each"]))
    except OperationFailure:  # no right to look into buckets, or too slow
        pass
    try:
        return collection.estimated_document_count(maxTimeMS=_LONGEST)
    except ExecutionTimeout:
        return None


def _cache(subject: Subject) -> int | None:
    try:
        status = subject.database.client.admin.command("serverStatus")
        return int(status["wiredTiger"]["cache"]["maximum bytes configured"])
    except (OperationFailure, KeyError):  # no right to ask, or another storage engine
        return None


def of_indexes(subject: Subject, stats: CollectionStats) -> Iterator[Finding]:
    """Yields which indexes nothing needs, and which are missing."""
    policy = subject.policy
    if subject.kind == "timeseries":
        return
    indexes = subject.source.indexes
    uses = _uses(subject)
    model = model_of(policy)
    needed = set(model.indexed_fields)
    for index in indexes:
        name, keys = index["name"], list(index["key"].items())
        if keys == [("_id", 1)]:
            continue
        taken = stats.indexes.get(name, 0)
        longer = [
            it["name"] for it in indexes if it is not index and list(it["key"].items())[: len(keys)] == keys
        ]
        cost = (
            f"{size(taken)}, {share(taken, stats.index_bytes)} of all indexes, and an entry written each time"
        )
        drop = f"db.getCollection({quoted(policy.collection)}).dropIndex({quoted(name)})"
        has_duty = index.get("unique") or "expireAfterSeconds" in index
        if longer and not has_duty:
            message = f"the index {name} is the beginning of {longer[0]}, which serves for it"
            yield Finding("index-redundant", keys[0][0], message, cost, drop)
        elif uses.get(name, (1, ""))[0] == 0 and not has_duty and not needed & {field for field, _ in keys}:
            message = f"no query has used the index {name} on this server since {uses[name][1]}"
            yield Finding(
                "index-unused", keys[0][0], message, cost, f"look at the other servers too, then {drop}"
            )
    yield from _missing(subject, stats)


def _uses(subject: Subject) -> dict[str, tuple[int, str]]:
    try:
        found = subject.source.collection.aggregate([{"$indexStats": {}}])
        return {it["name"]: (it["accesses"]["ops"], as_text(it["accesses"]["since"])) for it in found}
    except OperationFailure:  # no right to ask
        return {}


def _missing(subject: Subject, stats: CollectionStats) -> Iterator[Finding]:
    policy, indexes = subject.policy, subject.source.indexes
    model = model_of(policy)
    wanted: dict[tuple[str, ...], str] = {(it,): "a range of time" for it in model.indexed_fields}
    series = policy.stored_series.values()
    if series and not policy.sample_series and not any(it.startswith("_id") for it in series):
        wanted[(*series, *model.indexed_fields[-1:])] = "one series"
    held = [tuple(it["key"]) for it in indexes]
    for fields, what in wanted.items():
        single = len(fields) == 1
        if (
            subject.source.comparison.has_index(fields[0])
            if single
            else any(_finds(it, fields) for it in held)
        ):
            continue
        keys = ", ".join(f"{quoted(it)}: 1" for it in fields)
        yield Finding(
            "index-missing",
            fields[0],
            f"no index finds {what}: {{{keys}}}",
            f"each such query reads all {size(stats.data_bytes)}",
            f"db.getCollection({quoted(policy.collection)}).createIndex({{{keys}}})",
        )


def _finds(held: tuple[str, ...], fields: tuple[str, ...]) -> bool:
    """Returns whether an index begins with series fields and then has the last time. `fields`: all of
    these."""
    *series, time = fields
    before = held[: held.index(time)] if time in held else ()
    return bool(before) and set(before) <= set(series)


def working_set(stats: CollectionStats, hot: float) -> Iterator[Finding]:
    """Yields whether what is in use fits into the cache. `hot`: the share of the data that is."""
    used = stats.index_bytes + hot * stats.data_bytes
    if stats.cache_bytes is None or used <= stats.cache_bytes:
        return
    yield Finding(
        "working-set",
        None,
        f"indexes and the data in use, {share(hot, 1)} of all, take {size(round(used))}, and the cache is "
        f"{size(stats.cache_bytes)}",
        f"{size(round(used - stats.cache_bytes))} are read from disk again and again",
        "archive what is older (`archive.after`), or take a model with fewer documents and index entries",
    )


def hot_share(policy: Policy, covered: tuple[int, int] | None) -> float:
    """Returns which share of the time that is covered is in use: the policy's `after`, or 30 days. `covered`:
    first and last, in milliseconds."""
    after = policy.archive.after if policy.archive else None
    hot = after.total_seconds() * 1000 if after else _HOT_DAYS * 86_400_000
    length = covered[1] - covered[0] if covered else 0
    return min(1.0, hot / length) if length else 1.0


#: Newest entries that are read, of any collection.
ENTRIES = 100_000
#: So many writes and bytes of what is found there are taken. Milliseconds.
_WRITES, _BYTES = 1_000, 16_000_000
_LONGEST_READ = 10_000
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
    how: Document = {"hint": {"$natural": -1}, "maxTimeMS": _LONGEST_READ}
    try:
        seen = next(iter(oplog.aggregate([*newest, summed], **how)), None)
        if seen is None:
            return _unknown("there is no oplog: the server is not in a replica set, or is a mongos")
        pipeline = [*newest, {"$match": _matching(of)}, {"$limit": _WRITES}]
        found = _first_writes(oplog.aggregate_raw_batches(pipeline, **how), of)
    except ExecutionTimeout:
        return _unknown(f"the oplog could not be read within {_LONGEST_READ // 1000} s")
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


def _first_writes(batches: Iterable[Any], of: Any) -> list[Write]:
    """Returns the first writes to a collection in raw batches of entries of the oplog, as many as are taken.
    `of`: its UUID."""
    taken: list[Write] = []
    size = 0
    for data in batches:
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
