"""Shard keys: as people name them, as bytes that sort as MongoDB sorts, candidates for one, and documents
drawn at random with their values for them.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import bson
import numpy as np
from bson.codec_options import CodecOptions
from bson.errors import BSONError
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Docs, as_queried
from bucketwise.buckets.bson.types import ARRAY, NULL, OBJECT_ID, decode_value, first_at
from bucketwise.buckets.fields.ids import sort_key
from bucketwise.buckets.fields.times import NO_TIME
from bucketwise.buckets.inferring.fields import Document, Fields, hints, is_number, is_text
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.shape import split
from bucketwise.config.checks.names import field_fault
from bucketwise.config.errors import UsageError
from bucketwise.config.policies import Policy

#: Stands before a hash, as the rank of its type stands before any other value. No key has a part above it.
_HASH, ABOVE = b"\x04", b"\xff"
_HASH_BYTES = 8


@dataclass(frozen=True)
class ShardKey:
    """The fields of a shard key in their order; of each whether it is hashed."""

    fields: tuple[tuple[str, bool], ...]

    @classmethod
    def of(cls, *paths: str, hashed: str | None = None) -> ShardKey:
        """Returns the key of these fields, in ascending order but for the one that is hashed."""
        return cls(tuple((path, path == hashed) for path in paths))

    @property
    def document(self) -> dict[str, int | str]:
        """Returns the key as `sh.shardCollection` takes it."""
        return {path: "hashed" if is_hashed else 1 for path, is_hashed in self.fields}

    @property
    def paths(self) -> list[str]:
        """Returns the dotted names of the fields, in their order."""
        return [path for path, _ in self.fields]

    @property
    def is_hashed_first(self) -> bool:
        """Returns whether the first field is hashed."""
        return self.fields[0][1]


def parse_keys(text: str) -> list[ShardKey]:
    """Returns the keys of a text such as `symbol,d;_id:hashed`. Raises UsageError."""
    keys = [_parse(part.strip(), text) for part in text.split(";") if part.strip()]
    if not keys:
        raise UsageError(f"--shard-keys {text}: it names no field. Write fields as in symbol,d;_id:hashed")
    return list(dict.fromkeys(keys))


def _parse(part: str, text: str) -> ShardKey:
    fields = []
    for name in part.split(","):
        path, _, how = name.strip().rpartition(":")
        if how not in ("1", "hashed") or not path:
            path, how = name.strip(), "1"
        if fault := field_fault(path):
            raise UsageError(f"--shard-keys {text}: {path}: {fault.message}; {fault.remedy}")
        fields.append((path, how == "hashed"))
    if len({path for path, _ in fields}) < len(fields):
        raise UsageError(f"--shard-keys {text}: {part} names a field twice. Name each once")
    return ShardKey(tuple(fields))


def part_of(raw: bytes, *, is_hashed: bool) -> bytes:
    """Returns the bytes of one value, given by its type and bytes (none: null). A hash is not MongoDB's own,
    and as even as that."""
    key = sort_key(raw[0], raw[1:]) if raw else sort_key(NULL, b"")
    return _HASH + hashlib.blake2b(key, digest_size=_HASH_BYTES).digest() if is_hashed else key


def hash_bound(number: int, of: int) -> bytes:
    """Returns the lower end of a slice of all hashes, cut into slices of one size."""
    return _HASH + ((number << 8 * _HASH_BYTES) // of).to_bytes(_HASH_BYTES, "big")


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PLACES = _set(
    "location place region country state city site zone area plant building floor room datacenter dc rack "
    "store branch gateway tenant customer account org group"
)
#: Fields beside those of the policy that are looked at, of each kind.
_FURTHER = 2
#: Documents that share a value of a coarse time.
_COARSE = 5


def candidates(policy: Policy, documents: Sequence[Document]) -> list[ShardKey]:
    """Returns keys of the series fields, the time, `_id`, places by name and coarse times. `documents`: some
    of the collection."""
    model = model_of(policy)
    fields = model.shard_fields
    found = dict.fromkeys(_keys(policy, documents) if fields is None else _native(*fields))
    if model.own_times:
        return list(found)
    return [it for it in found if model.first_field not in it.paths]  # an array, which no shard key has


def _native(*fields: str) -> Iterator[ShardKey]:
    """Yields keys of a native time-series collection: its metaField, or a field in it, and its timeField
    last."""
    *series, time = fields
    if series:
        yield ShardKey.of(*series)
        yield ShardKey.of(series[0], hashed=series[0])
        yield ShardKey.of(*series, time)
    yield ShardKey.of(time)


def _keys(policy: Policy, documents: Sequence[Document]) -> Iterator[ShardKey]:
    model = model_of(policy)
    time = model.first_field
    series = [it for it in policy.series_fields if "*" not in it]
    fields = Fields.of(documents).in_most()
    used = {*policy.series_fields, *policy.value_fields, *model.kept_fields, time, "_id"}
    further = {path: held for path, held in fields.items() if path not in used}
    places = [it for it, held in further.items() if hints(it, _PLACES) and all(map(is_text, held))][:_FURTHER]
    coarse = [it for it, held in further.items() if _is_coarse(held)][:_FURTHER]
    if series:
        yield ShardKey.of(*series, time)
        yield ShardKey.of(*series)
        yield ShardKey.of(time, *series)
        yield ShardKey.of(series[0], hashed=series[0])
        yield ShardKey.of(*series, time, hashed=series[0])
    for place in places:
        yield ShardKey.of(place)
        yield ShardKey.of(place, time)
    for field in coarse:
        yield ShardKey.of(field, *(series or ["_id"]))
    for path in (time, "_id"):
        yield ShardKey.of(path)
        yield ShardKey.of(path, hashed=path)


def _is_coarse(held: Sequence[object]) -> bool:
    """Returns whether a field holds days, months or the like: dates or whole numbers that many documents
    share."""
    times = [it for it in held if hasattr(it, "utcoffset") or (is_number(it) and float(str(it)).is_integer())]
    return len(times) == len(held) and 1 < len(set(times)) * _COARSE <= len(held)


#: The field of a drawn document with the size of the whole document.
SIZE = "_bytes"
#: `_id`s tell when documents arrived if they span this share of what the times span: else all came at once.
_MIN_SPREAD = 0.5


@dataclass(frozen=True)
class KeyColumn:
    """The values of a field in all documents. `raws`: type and bytes; empty where there is no value."""

    raws: list[bytes]
    has_arrays: bool

    def parts(self, *, is_hashed: bool) -> list[bytes]:
        """Returns each value as it is part of a key."""
        return self._hashed if is_hashed else self._plain

    @cached_property
    def _plain(self) -> list[bytes]:
        return [part_of(it, is_hashed=False) for it in self.raws]

    @cached_property
    def _hashed(self) -> list[bytes]:
        return [part_of(it, is_hashed=True) for it in self.raws]

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """Returns the rank of each value among the distinct ones, (n,), in MongoDB's order."""
        return numbered(self._plain)

    @cached_property
    def single(self) -> float:
        """Returns the share of documents whose value no other has."""
        return float((np.bincount(self.numbers) == 1).sum()) / len(self.raws)

    @property
    def missing(self) -> float:
        """Returns the share of documents that have nothing there, or null."""
        return sum(it[:1] in (b"", bytes([NULL])) for it in self.raws) / max(1, len(self.raws))


class DrawnDocuments:
    """n documents. `documents` and `data`: how many the collection has, and their bytes; by the sample where
    None."""

    def __init__(
        self, docs: Docs, policy: Policy, paths: Sequence[str], documents: int, data: float | None
    ) -> None:
        sizes = [first_at(document, (SIZE,)) for document in docs]
        self.sizes = np.array([decode_value(it[0], it[1:]) for it in sizes], dtype=np.int64)
        self.documents = documents
        self.data = documents * float(self.sizes.mean()) if data is None else data
        model = model_of(policy)
        self.time_field = model.first_field
        wanted = dict.fromkeys((*paths, *model.own_form.fields(self.time_field), "_id"))
        self.columns = {path: _column(docs, path) for path in wanted}
        self.form = model.own_form
        times = [self.form.milliseconds(self.form.value_in(it, self.time_field)) for it in docs]
        self.times = np.array([NO_TIME if it is None else it for it in times], dtype=np.int64)
        self.arrival_by, self.arrived = self._arrival()

    def __len__(self) -> int:
        return len(self.sizes)

    def keys(self, key: ShardKey) -> list[bytes]:
        """Returns the key of each document, as bytes that sort as MongoDB sorts them."""
        parts = [self.columns[path].parts(is_hashed=is_hashed) for path, is_hashed in key.fields]
        return list(map(b"".join, zip(*parts, strict=True)))

    @cached_property
    def arrival_correlations(self) -> dict[str, float]:
        """Returns the rank correlation of each field with the order of arrival."""
        return {path: rank_correlation(it.numbers, self.arrived) for path, it in self.columns.items()}

    def value(self, path: str, row: int) -> Any:
        """Returns the value of a document's field, as pymongo gives it."""
        return as_queried(self.columns[path].raws[row])

    def _arrival(self) -> tuple[str, NDArray[np.int64]]:
        ids = self.columns["_id"].raws
        if all(it[:1] == bytes([OBJECT_ID]) for it in ids):
            created = np.array([struct.unpack_from(">I", it, 1)[0] for it in ids], dtype=np.int64) * 1000
            times = self.times[self.times != NO_TIME]
            if len(times) and np.ptp(created) >= _MIN_SPREAD * np.ptp(times):
                return "_id", created
        return self.time_field, self.times


def _column(docs: Docs, path: str) -> KeyColumn:
    parts = split(path)
    prefixes = [parts[:depth] for depth in range(1, len(parts) + 1)]
    arrays = any(first_at(document, prefix)[:1] == bytes([ARRAY]) for document in docs for prefix in prefixes)
    return KeyColumn([first_at(document, parts) for document in docs], arrays)


def numbered(values: Sequence[bytes]) -> NDArray[np.int64]:
    """Returns the place of each value among the distinct ones, in their order."""
    places = {value: place for place, value in enumerate(sorted(set(values)))}
    return np.array([places[it] for it in values], dtype=np.int64)


def rank_correlation(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """Returns Spearman's rank correlation, from -1 to 1; 0 where either is all the same."""
    if len(one) < 2 or not np.ptp(one) or not np.ptp(other):
        return 0.0
    return float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(values: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns the rank of each value; equal ones share the middle of theirs."""
    _, numbers, counts = np.unique(values, return_inverse=True, return_counts=True)
    middles = np.cumsum(counts) - (counts - 1) / 2
    return np.asarray(middles[numbers], dtype=np.float64)


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
