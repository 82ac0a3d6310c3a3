"""Finds which part of a shard key's values a query may match, and so which shards it is sent to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import bson
from bson.codec_options import CodecOptions
from bson.errors import BSONError

from bucketwise.buckets.bson.types import NULL, first_at
from bucketwise.buckets.sharding.drawn import DrawnDocuments
from bucketwise.buckets.sharding.keys import ABOVE, ShardKey, part_of
from bucketwise.config.policies import Policy

Query = Mapping[str, Any]
Span = tuple[bytes, bytes]  # of the bytes of keys: from, and up to
_EVERYTHING: list[Span] = [(b"", ABOVE)]
#: A query with more values in `$in`, of all fields together, is taken to match everything.
_MAX_VALUES = 1000
_EXAMPLES = 20
_DAY_MS = 86_400_000
_CODEC: CodecOptions[dict[str, Any]] = CodecOptions(uuid_representation=4)


def spans(key: ShardKey, query: Query) -> list[Span]:
    """Returns the spans of keys that documents which meet the query may have. What it can't tell, such as
    `$expr` or a regular expression, narrows nothing."""
    conditions: dict[str, list[Any]] = {}
    for branch in _flattened(query, conditions):
        if branch and all(isinstance(it, Mapping) for it in branch):
            rest = [{path: it} for path, found in conditions.items() for it in found]
            return [span for it in branch for span in spans(key, {"$and": [*rest, it]})]
    try:
        return _narrowed(key, conditions)
    except (BSONError, OverflowError, TypeError, ValueError):  # no value that documents could hold
        return _EVERYTHING


def _flattened(query: Query, conditions: dict[str, list[Any]]) -> Iterator[list[Any]]:
    """Gathers the conditions by path; yields the branches of each `$or`."""
    for name, condition in query.items():
        if name == "$and" and isinstance(condition, list):
            for part in condition:
                if isinstance(part, Mapping):
                    yield from _flattened(part, conditions)
        elif name == "$or" and isinstance(condition, list):
            yield condition
        else:
            conditions.setdefault(name, []).append(condition)


def _narrowed(key: ShardKey, conditions: Mapping[str, list[Any]]) -> list[Span]:
    prefixes = [b""]
    for path, is_hashed in key.fields:
        wanted = conditions.get(path, [])
        equal = next((it for it in map(_equal, wanted) if it is not None), None)
        if equal is not None and len(equal) * len(prefixes) <= _MAX_VALUES:
            parts = [part_of(_raw(it), is_hashed=is_hashed) for it in equal]
            prefixes = [before + part for before in prefixes for part in parts]
            continue
        bounds = [] if is_hashed else [it for it in wanted if isinstance(it, Mapping)]
        low, high = _bounds(bounds)
        return [(before + low, before + high) for before in prefixes]
    return [(before, before + ABOVE) for before in prefixes]


def _equal(condition: Any) -> list[Any] | None:
    """Returns the values that a condition allows; None where it does not list them."""
    if not _is_operators(condition):
        return None if isinstance(condition, bson.Regex) or hasattr(condition, "finditer") else [condition]
    if "$eq" in condition:
        return [condition["$eq"]]
    return list(condition["$in"]) if isinstance(condition.get("$in"), list) else None


def _is_operators(condition: Any) -> bool:
    return isinstance(condition, Mapping) and any(name.startswith("$") for name in condition)


def _bounds(conditions: list[Mapping[str, Any]]) -> Span:
    """Returns the bounds of a comparison, which matches values of its own type alone."""
    low, high = b"", ABOVE
    for condition in conditions:
        for name, value in condition.items():
            part = part_of(_raw(value), is_hashed=False) if name in ("$gt", "$gte", "$lt", "$lte") else b""
            if name in ("$gt", "$gte"):
                low, high = max(low, part), min(high, part[:1] + ABOVE)
            elif part:
                low, high = max(low, part[:1]), min(high, part + (ABOVE if name == "$lte" else b""))
    return low, high


def _raw(value: Any) -> bytes:
    return first_at(bson.encode({"v": value}, codec_options=_CODEC), ("v",)) or bytes([NULL])


def usual_queries(policy: Policy, drawn: DrawnDocuments) -> list[Query]:
    """Returns the usual queries of time series, a third each: a day of one series, a day of all, the last
    value of one. Values are those of some of the documents."""
    series = [it for it in policy.series_fields if it in drawn.columns and "*" not in it]
    by_time = drawn.times.argsort(kind="stable")
    ordered = drawn.times[by_time]
    found: list[Query] = []
    for place in range(0, len(drawn), max(1, len(drawn) // _EXAMPLES)):
        row = int(by_time[place])
        next_day = int(ordered.searchsorted(ordered[place] + _DAY_MS))
        series_query = {path: drawn.value(path, row) for path in series}
        day: Query = {"$gte": drawn.value(drawn.time_field, row)}
        if next_day < len(drawn):
            day = {**day, "$lt": drawn.value(drawn.time_field, int(by_time[next_day]))}
        found += [{**series_query, drawn.time_field: day}, {drawn.time_field: day}, series_query]
    return found
