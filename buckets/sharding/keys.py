"""Shard keys: as people name them, and as bytes that sort as MongoDB sorts their values."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from bucketwise.buckets.bson.types import NULL
from bucketwise.buckets.fields.ids import sort_key
from bucketwise.config.checks.names import field_fault
from bucketwise.config.errors import UsageError

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
