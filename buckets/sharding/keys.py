"""Shard keys: as people name them, as bytes that sort as MongoDB sorts, and candidates for one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bucketwise.buckets.bson.types import NULL
from bucketwise.buckets.fields.ids import sort_key
from bucketwise.buckets.inferring.fields import Document, Fields, hints, is_number, is_text
from bucketwise.buckets.models import model_of
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
