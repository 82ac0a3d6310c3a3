"""Compares shard keys on a sample of a collection."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from bson import json_util
from bson.errors import BSONError
from pymongo import DESCENDING
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import ExecutionTimeout, OperationFailure, PyMongoError
from rich.console import RenderableType
from rich.text import Text

from bucketwise.buckets.bson.raw import Docs
from bucketwise.buckets.fields.selectors import EXTENDED_JSON
from bucketwise.buckets.fields.times import as_date, as_ms
from bucketwise.buckets.inferring.fields import decoded
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.timeseries import timeseries_options
from bucketwise.buckets.sampling.fit import fit_of
from bucketwise.buckets.sampling.sample import sample
from bucketwise.buckets.sharding.commands import sharding, tiering
from bucketwise.buckets.sharding.keys import (
    SIZE,
    DrawnDocuments,
    Query,
    ShardKey,
    candidates,
    parse_keys,
    usual_queries,
)
from bucketwise.buckets.sharding.study import RANGE_BYTES, Rule, Study, refusals, remarks
from bucketwise.buckets.source import Source
from bucketwise.config.errors import UsageError
from bucketwise.config.policies import Policy
from bucketwise.jobs.advise.server import measurements
from bucketwise.jobs.core.call import Call
from bucketwise.jobs.core.connect import APPLICATION
from bucketwise.jobs.core.subject import subject_of
from bucketwise.jobs.output.grid import Grid
from bucketwise.jobs.output.report import Report
from bucketwise.jobs.output.text import printable

Document = dict[str, Any]
Body = dict[str, Any]

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


#: Documents that are read to find the fields.
_TELLING = 200
#: The hot zone has this part of what a policy keeps; without an archive, so much.
_HOT_PART, _HOT = 4, timedelta(days=30)
_DAY = timedelta(days=1)

#: Fields of the JSON that a key has only if MongoDB takes it.
_NUMBERS = (
    "pattern", "cardinality", "most_frequent", "monotonic", "rank_correlation", "hottest_share",
    "targeted_share", "migrations", "jumbo",
)  # fmt: skip


def shard_keys_of(
    call: Call, name: str, keys: str | None, shards: int, queries: Path | None, readings: float | None
) -> Report:
    """Compares shard keys for a collection: those that are named, in their order, then candidates, the best
    first. `keys` and `queries` as given; `readings`: how many there are to be in the simulation. Raises
    UsageError and PyMongoError."""
    named = parse_keys(keys) if keys is not None else []
    given = queries_of(queries) if queries is not None else []
    with call.database() as database:
        policy = subject_of(call, database, name).policy
        names = _shard_names(database, shards)
        body = _compared(call, Source(database, policy), names, readings, named, given)
    body = {"collection": name, "model": model_of(policy).name, **body}
    return Report(call.command, call.now, [], shard_tables(body), extra=body)


def _compared(
    call: Call,
    source: Source,
    names: list[str],
    wanted: float | None,
    named: list[ShardKey],
    given: list[Query],
) -> Body:
    database, policy = source.collection.database, source.policy
    with call.progress.step(f"{policy.collection}: shard keys"):
        some = sample(source)
        keys = [*named, *candidates(policy, decoded(list(some.main)[:_TELLING]))]
        native = timeseries_options(database, policy.collection)
        taken = [it for it in dict.fromkeys(keys) if it in named or not _is_refused(it, policy, native)]
        time = model_of(policy).first_field
        drawn = draw(database, policy, [*policy.series_fields, *(p for it in taken for p in it.paths)], time)
        queries, origin = _queries(database, policy, drawn, given)
        readings = drawn.documents * (fit_of(some, policy).readings_a_bucket or 1)
        if native:  # its documents are MongoDB's own buckets
            readings = measurements(database, policy) or readings
        wanted = wanted or readings
        place = _Comparison(policy, drawn, queries, names, call, native)
        found = []
        for key in taken:
            call.stop.check()
            found.append(place.body(key, wanted / readings) | {"named": key in named})
    best = sorted(found[len(named) :], key=lambda it: -it["score"])
    return {
        "shard_keys": [*found[: len(named)], *best],
        "sharding": {
            "shards": len(names),
            "documents": drawn.documents,
            "sampled": len(drawn),
            "readings": round(wanted),
            "bytes": round(drawn.data * wanted / readings),
            "range_bytes": RANGE_BYTES,
            "arrival": drawn.arrival_by,
            "queries": origin,
        },
    }


def _is_refused(key: ShardKey, policy: Policy, native: Body | None) -> bool:
    return any(it.severity == "error" for it in refusals(key, policy, native))


def _queries(
    database: Database[Body], policy: Policy, drawn: DrawnDocuments, given: list[Query]
) -> tuple[list[Query], str]:
    """Returns the queries, and where they are from."""
    if given:
        return given, "file"
    if found := profiled(database, policy.collection):
        return found, "profiler"
    return usual_queries(policy, drawn), "usual"


def _shard_names(database: Database[Body], count: int) -> list[str]:
    """Returns the names of the cluster's shards, if it is one and tells; invented ones for the rest."""
    try:
        found = [str(it["_id"]) for it in database.client["config"]["shards"].find({}, {"_id": 1})]
    except PyMongoError:
        found = []
    invented = (f"shard{number:02}" for number in range(count + len(found)))
    return [*found, *(it for it in invented if it not in found)][:count]


@dataclass(frozen=True)
class _Comparison:
    policy: Policy
    drawn: DrawnDocuments
    queries: list[Query]
    names: list[str]
    call: Call
    native: Body | None

    def body(self, key: ShardKey, growth: float) -> Body:
        """Returns the JSON of one key."""
        rules = refusals(key, self.policy, self.native)
        study = Study(self.drawn, key, len(self.names), growth)
        if all(it.severity != "error" for it in rules):
            rules += remarks(study, self.policy)
        if any(it.severity == "error" for it in rules):
            return _refused(key, rules)
        placed, targeted = study.placed, study.targeted(self.queries)
        pattern, reason = study.pattern
        return {
            "key": key.document,
            "pattern": pattern,
            "reason": reason,
            "cardinality": len(study.counts),
            "most_frequent": study.most_frequent,
            "monotonic": study.is_monotonic,
            "rank_correlation": study.correlation,
            "hottest_share": placed.hottest,
            "targeted_share": targeted,
            "migrations": placed.migrations,
            "jumbo": placed.jumbo,
            "shards": [
                {"shard": name, "writes": writes, "bytes": round(data)}
                for name, writes, data in zip(
                    self.names,
                    (placed.writes.sum(axis=0) / placed.writes.sum()).tolist(),
                    placed.data[-1].tolist(),
                    strict=True,
                )
            ],
            "over_time": _over_time(study),
            "score": 0.0 if placed.jumbo else targeted / (placed.hottest * len(self.names)),
            "rules": [it._asdict() for it in rules],
            "commands": self._commands(study),
        }

    def _commands(self, study: Study) -> list[str]:
        is_native = self.native is not None
        namespace = f"{self.call.settings.mongodb.database}.{self.policy.collection}"
        commands = sharding(study, namespace, self.names, is_native=is_native)
        if is_native:
            return commands
        after = self.policy.archive.after if self.policy.archive else None
        hot = max(_DAY, after / _HOT_PART if after else _HOT)
        hot_from = as_ms(self.call.now - hot)
        return commands + tiering(study.key, self.drawn, namespace, self.names, hot_from, hot / _DAY)


def _over_time(study: Study) -> list[Body]:
    """Returns for each window when it begins, each shard's share of the writes, and its bytes at the end."""
    placed, arrived = study.placed, study.drawn.arrived
    totals = placed.writes.sum(axis=1, keepdims=True)
    return [
        {"from": as_date(int(arrived[rows[0]])), "writes": writes, "bytes": [round(it) for it in data]}
        for rows, writes, data in zip(
            study.windows, (placed.writes / totals).tolist(), placed.data.tolist(), strict=True
        )
    ]


def _refused(key: ShardKey, rules: list[Rule]) -> Body:
    """Returns the JSON of a key that MongoDB does not take."""
    refusal = next(it.message for it in rules if it.severity == "error")
    return {
        "key": key.document,
        "reason": f"MongoDB rejects this key: {refusal}",
        **dict.fromkeys(_NUMBERS),
        "shards": [],
        "over_time": [],
        "score": 0.0,
        "rules": [it._asdict() for it in rules],
        "commands": [],
    }


_COLUMNS = ("key", "pattern", "values", "hottest shard", "one shard answers", "migrations", "jumbo")


def shard_tables(body: Body) -> list[RenderableType]:
    """Returns a table of the keys, then of each named key, and of the best candidate, the rest."""
    of = body["sharding"]
    table = Grid(_title(of), _COLUMNS)
    for it in body["shard_keys"]:
        table.add_row(Text(_key(it), style="bold" if it["named"] else ""), *_row(it))
    shown: list[RenderableType] = [table]
    named = [it for it in body["shard_keys"] if it["named"]]
    best = [it for it in body["shard_keys"] if not it["named"]][:1]
    for it in (*named, *best):
        shown.append(Text(f"{_key(it)}: {printable(it['reason'])}"))
        shown += [Text(f"  {rule['severity']}: {printable(rule['message'])}") for rule in it["rules"]]
        shown += [Text(f"  {printable(command)}", style="dim") for command in it["commands"]]
    return shown


def _title(of: Body) -> str:
    titles = {"usual": "the usual queries", "file": "queries of the file", "profiler": "profiled queries"}
    return (
        f"Shard keys: {of['readings']:,} readings on {of['shards']} shards, by {of['sampled']:,} documents, "
        f"in the order of {printable(of['arrival'])}, and {titles[of['queries']]}"
    )


def _key(it: Body) -> str:
    return printable("{ " + ", ".join(f"{path}: {how}" for path, how in it["key"].items()) + " }")


def _row(it: Body) -> list[str]:
    if it["pattern"] is None:
        return ["refused", "", "", "", "", ""]
    shares = [f"{it[name]:.0%}" for name in ("hottest_share", "targeted_share")]
    counts = [f"{it[name]:,}" for name in ("cardinality", "migrations", "jumbo")]
    return [it["pattern"], counts[0], *shares, *counts[1:]]
