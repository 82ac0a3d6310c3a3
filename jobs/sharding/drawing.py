"""Reads the input of a comparison of shard keys: some documents, the size of the collection, and queries."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from bson import json_util
from bson.errors import BSONError
from pymongo import DESCENDING
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import ExecutionTimeout, OperationFailure

from bucketwise.buckets.bson.raw import Docs
from bucketwise.buckets.fields.selectors import EXTENDED_JSON
from bucketwise.buckets.sharding.drawn import SIZE, DrawnDocuments
from bucketwise.buckets.sharding.queries import Query
from bucketwise.config.errors import UsageError
from bucketwise.config.policies import Policy
from bucketwise.jobs.advising.server import measurements
from bucketwise.jobs.connect import APPLICATION

Document = dict[str, Any]
#: Documents that are drawn. Of a collection with fewer than twenty times as many, MongoDB reads all for it.
_DOCUMENTS, _FEW = 10_000, 200_000
_BYTES = 32_000_000
#: Milliseconds.
_LONGEST = 20_000
_QUERIES = 1000
_FILTER_KEYS = ("filter", "query", "q")


def draw(database: Database[Document], policy: Policy, paths: Sequence[str], time: str) -> DrawnDocuments:
    """Returns documents of a collection, at random, with what they hold at these paths. Raises UsageError
    where there are none, or they can't be drawn in time."""
    name = policy.collection
    stats = _stats(database, policy)
    documents = int(stats.get("count") or stats.get("timeseries", {}).get("bucketCount") or 0)
    wanted = {*(it for it in paths if "*" not in it), time, "_id"}
    kept = [it for it in wanted if not any(it.startswith(f"{other}.") for other in wanted)]
    project: Document = {"$project": {**dict.fromkeys(kept, 1), SIZE: {"$bsonSize": "$$ROOT"}}}
    sample: Document = {"$sample": {"size": _DOCUMENTS}}
    stages = [project, sample] if documents < _FEW else [sample, project]
    try:
        docs = _drawn(database[name], stages)
    except ExecutionTimeout as error:
        raise UsageError(
            f"{name}: no sample could be drawn within {_LONGEST // 1000} s. Try again when the server has "
            "less load, or on a copy of some of the documents"
        ) from error
    if not len(docs):
        raise UsageError(f"{name}: it is empty, so there is nothing to look at")
    wanted_paths = [it for it in paths if "*" not in it]
    return DrawnDocuments(docs, policy, wanted_paths, max(documents, len(docs)), stats.get("size"))


def _stats(database: Database[Document], policy: Policy) -> Document:
    """Returns MongoDB's statistics of a collection; only its count where the user has no right to more."""
    try:
        return database.command("collStats", policy.collection)
    except OperationFailure:
        return {"count": measurements(database, policy)}


def _drawn(collection: Collection[Document], stages: list[Document]) -> Docs:
    parts, size = [Docs.none()], 0
    with collection.aggregate_raw_batches(stages, maxTimeMS=_LONGEST) as found:
        for data in found:
            parts.append(Docs.split(cast(bytes, data)))
            size += parts[-1].size
            if size >= _BYTES:
                break
    return Docs.concat(parts)


def profiled(database: Database[Document], collection: str) -> list[Query]:
    """Returns the last queries of a collection from the profiler; none where it is off, or may not be
    read."""
    query = {"ns": f"{database.name}.{collection}", "appName": {"$ne": APPLICATION}}
    try:
        found = list(database["system.profile"].find(query, sort=[("$natural", DESCENDING)], limit=_QUERIES))
    except (OperationFailure, BSONError):
        return []
    return [query for entry in found for query in _filters_of(entry.get("command", {}))]


def _filters_of(command: Mapping[str, Any]) -> Iterator[Query]:
    queries = [command[name] for name in _FILTER_KEYS if name in command]
    pipeline = command.get("pipeline")
    if isinstance(pipeline, list) and pipeline and "$match" in pipeline[0]:
        queries.append(pipeline[0]["$match"])
    yield from (it for it in queries if isinstance(it, Mapping))


def queries_of(path: Path) -> list[Query]:
    """Returns the filters in a file: a JSON array of them, or one a line. Raises UsageError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"--queries {path}: {why}. Name a file of JSON filters") from error
    if text.lstrip().startswith("["):
        found = _loaded(text, f"--queries {path}")
    else:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        found = [_loaded(line, f"--queries {path}, line {number}") for number, line in lines]
    for number, query in enumerate(found, 1):
        if not isinstance(query, dict):
            raise UsageError(
                f"--queries {path}, filter {number}: it is not an object. Write a filter as for find()"
            )
    if not found:
        raise UsageError(f"--queries {path}: it holds no filter. Write one a line, as for find()")
    return cast(list[Query], found)


def _loaded(text: str, where: str) -> Any:
    try:
        return json_util.loads(text, json_options=EXTENDED_JSON)
    except json.JSONDecodeError as error:
        raise UsageError(f"{where}: not valid JSON: {error.msg} at character {error.pos}") from error
    except (BSONError, TypeError, ValueError, KeyError, OverflowError, RecursionError) as error:
        raise UsageError(f"{where}: not valid Extended JSON: {error}") from error
