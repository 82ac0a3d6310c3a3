"""BSON values as bytes: their types, how long they are, and one value decoded."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import bson
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import InvalidBSON

# BSON type codes (bsonspec.org, version 1.1)
DOUBLE, STRING, DOCUMENT, ARRAY, BINARY, UNDEFINED, OBJECT_ID, BOOL, DATE, NULL = range(1, 11)
REGEX, DB_POINTER, CODE, SYMBOL, CODE_WITH_SCOPE, INT32, TIMESTAMP, INT64, DECIMAL128 = range(11, 20)
MIN_KEY, MAX_KEY = 255, 127

#: Types of values that stand for nothing.
NOTHING = (NULL, UNDEFINED)

#: For messages.
TYPE_NAMES = {
    DOUBLE: "a double", STRING: "a string", DOCUMENT: "a document", ARRAY: "an array", BINARY: "binary data",
    UNDEFINED: "undefined", OBJECT_ID: "an ObjectId", BOOL: "a bool", DATE: "a date", NULL: "null",
    REGEX: "a regular expression", DB_POINTER: "a DBPointer", CODE: "code", SYMBOL: "a symbol",
    CODE_WITH_SCOPE: "code", INT32: "an int", TIMESTAMP: "a timestamp", INT64: "a long",
    DECIMAL128: "a decimal", MIN_KEY: "MinKey", MAX_KEY: "MaxKey",
}  # fmt: skip

FIXED = {
    DOUBLE: 8, UNDEFINED: 0, OBJECT_ID: 12, BOOL: 1, DATE: 8, NULL: 0, INT32: 4, TIMESTAMP: 8, INT64: 8,
    DECIMAL128: 16, MIN_KEY: 0, MAX_KEY: 0,
}  # fmt: skip
_INT = struct.Struct("<i")

#: Documents as dicts: times are aware, and those that Python can't hold stay DatetimeMS.
DECODED: CodecOptions[dict[str, Any]] = CodecOptions(
    tz_aware=True, uuid_representation=4, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
#: Binary data that claims to be a UUID may be of any length.
_LEGIBLE = DECODED.with_options(
    unicode_decode_error_handler="backslashreplace", uuid_representation=UuidRepresentation.UNSPECIFIED
)


def extent(document: bytes, kind: int, start: int) -> tuple[int, int, int]:
    """Returns the size of a value, and the offset and width of its hole."""
    fixed = FIXED.get(kind)
    if fixed is not None:
        return fixed, start, fixed
    if kind == REGEX:
        return document.index(0, document.index(0, start) + 1) + 1 - start, start, 0
    length = _INT.unpack_from(document, start)[0]
    if not 0 <= length <= len(document) - start:
        raise ValueError(f"no BSON: a value of {length:,} bytes does not lie inside its document")
    if kind in (STRING, CODE, SYMBOL):
        return 4 + length, start + 4, length - 1
    if kind == BINARY:
        return 5 + length, start + 5, length
    if kind == DB_POINTER:
        return 4 + length + 12, start, 0
    if kind in (DOCUMENT, ARRAY, CODE_WITH_SCOPE):
        return length, start, 0
    raise ValueError(f"no BSON type has the code {kind}")


def elements(document: bytes) -> Iterator[tuple[int, int, int]]:
    """Yields the top-level fields of a document: where each starts (with its type), its value, and its
    end."""
    position, end, index = 4, len(document) - 1, document.index
    while position < end:
        value = index(0, position + 1) + 1
        size = FIXED.get(document[position])
        if size is None:
            size = extent(document, document[position], value)[0]
        yield position, value, value + size
        position = value + size


def decode_value(kind: int, value: bytes, *, legible: bool = False) -> Any:
    """Returns one BSON value as pymongo gives it. Raises InvalidBSON for a string that is not UTF-8, and for
    a UUID that is none; with `legible`, gives odd bytes as escapes and binary data as it is."""
    body = bytes([kind]) + b"v\0" + value + b"\0"
    document = _INT.pack(len(body) + 4) + body
    try:
        return bson.decode(document, DECODED)["v"]
    except InvalidBSON:
        if not legible:
            raise
        return bson.decode(document, _LEGIBLE)["v"]


def first_at(document: bytes, path: Sequence[str]) -> bytes:
    """Returns the type and bytes of the value at a path, as `sort_key` takes them; empty where there is none.
    If a name is repeated, the first field counts, as in MongoDB's queries."""
    name = path[0].encode() + b"\0"
    for start, value, end in elements(document):
        if document[start + 1 : value] == name:
            if len(path) == 1:
                return document[start : start + 1] + document[value:end]
            return first_at(document[value:end], path[1:]) if document[start] == DOCUMENT else b""
    return b""
