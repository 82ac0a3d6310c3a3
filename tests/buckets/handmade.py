"""BSON written by hand: what no driver writes (undefined, symbols, NaN payloads, a field twice) included."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

from bson.decimal128 import Decimal128

from bucketwise.buckets.bson.types import (
    ARRAY,
    BINARY,
    BOOL,
    CODE,
    CODE_WITH_SCOPE,
    DATE,
    DB_POINTER,
    DECIMAL128,
    DOCUMENT,
    DOUBLE,
    INT32,
    INT64,
    MAX_KEY,
    MIN_KEY,
    NULL,
    OBJECT_ID,
    REGEX,
    STRING,
    SYMBOL,
    TIMESTAMP,
    UNDEFINED,
)

#: A type code and the value's bytes.
Value = tuple[int, bytes]
Field = tuple[str, Value]

null: Value = (NULL, b"")
undefined: Value = (UNDEFINED, b"")
min_key: Value = (MIN_KEY, b"")
max_key: Value = (MAX_KEY, b"")


def document(*fields: Field) -> bytes:
    body = b"".join(bytes([kind]) + name.encode() + b"\0" + value for name, (kind, value) in fields)
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def sub(*fields: Field) -> Value:
    return DOCUMENT, document(*fields)


def array(*values: Value) -> Value:
    return ARRAY, document(*((str(i), value) for i, value in enumerate(values)))


def double(number: float) -> Value:
    return DOUBLE, struct.pack("<d", number)


def bits(pattern: int) -> Value:
    """A double by its bits."""
    return DOUBLE, struct.pack("<Q", pattern)


def int32(number: int) -> Value:
    return INT32, struct.pack("<i", number)


def int64(number: int) -> Value:
    return INT64, struct.pack("<q", number)


def decimal(text: str) -> Value:
    return DECIMAL128, Decimal128(text).bid


def date(ms: int) -> Value:
    return DATE, struct.pack("<q", ms)


def day(text: str) -> Value:
    """A date by its ISO 8601 text, in UTC."""
    return date(round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000))


def text(content: str | bytes) -> Value:
    return STRING, _string(content)


def symbol(content: str) -> Value:
    return SYMBOL, _string(content)


def code(content: str) -> Value:
    return CODE, _string(content)


def code_with_scope(content: str, *scope: Field) -> Value:
    body = _string(content) + document(*scope)
    return CODE_WITH_SCOPE, struct.pack("<i", len(body) + 4) + body


def db_pointer(collection: str, object_id: bytes) -> Value:
    return DB_POINTER, _string(collection) + object_id


def regex(pattern: str, options: str = "") -> Value:
    return REGEX, pattern.encode() + b"\0" + options.encode() + b"\0"


def binary(data: bytes, subtype: int = 0) -> Value:
    if subtype == 2:  # the old form tells the length twice
        data = struct.pack("<i", len(data)) + data
    return BINARY, struct.pack("<iB", len(data), subtype) + data


def boolean(truth: bool) -> Value:
    return BOOL, bytes([truth])


def object_id(data: bytes) -> Value:
    return OBJECT_ID, data


def timestamp(seconds: int, increment: int) -> Value:
    return TIMESTAMP, struct.pack("<II", increment, seconds)


def _string(content: str | bytes) -> bytes:
    data = content if isinstance(content, bytes) else content.encode()
    return struct.pack("<i", len(data) + 1) + data + b"\0"
