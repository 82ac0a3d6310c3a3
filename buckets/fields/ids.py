"""`_id`s as bytes that sort as MongoDB sorts them, so that "the lower `_id`" is a comparison of bytes.

No key is the beginning of another, and zero bytes at the end of a key mean nothing: keys of different
`_id`s stay different, and in order, in numpy's byte strings, which drop such zeros.
"""

from __future__ import annotations

import struct
import sys
from decimal import Context, Decimal
from typing import Any

import numpy as np
from bson.decimal128 import Decimal128
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import LONGEST_ID
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
    TYPE_NAMES,
    UNDEFINED,
    decode_value,
    extent,
)
from bucketwise.buckets.layouts.layout import Bytes2D, Element, Group, read_holes

#: MongoDB's order of types; types that it compares with one another share a rank. 0 ends a document.
_RANKS = {
    MIN_KEY: 1, UNDEFINED: 2, NULL: 3, DOUBLE: 4, INT32: 4, INT64: 4, DECIMAL128: 4, STRING: 5, SYMBOL: 5,
    DOCUMENT: 6, ARRAY: 7, BINARY: 8, OBJECT_ID: 9, BOOL: 10, DATE: 11, TIMESTAMP: 12, REGEX: 13,
    DB_POINTER: 14, CODE: 15, CODE_WITH_SCOPE: 16, MAX_KEY: 17,
}  # fmt: skip
_DTYPES = {DOUBLE: "<f8", INT32: "<i4", INT64: "<i8"}
#: The driver has no type for these that goes back to the server unchanged.
_UNQUERIED = (DB_POINTER, CODE_WITH_SCOPE)
_ASCII = 128  # has so many characters: bytes below are UTF-8
_SIGN, _ALL = 1 << 63, (1 << 64) - 1
_EXACT = Context(prec=10_000)  # the difference of any decimal and any double fits


def sort_key(kind: int, value: bytes) -> bytes:
    """Returns bytes that sort as MongoDB sorts the value."""
    return _RANKS[kind].to_bytes() + _body(kind, value)


def _body(kind: int, value: bytes) -> bytes:
    if kind == OBJECT_ID:  # first, since most `_id`s are
        return value
    if kind == DECIMAL128 or kind in _DTYPES:
        return _number(decode_value(kind, value))
    if kind in (STRING, SYMBOL, CODE):
        return _text(value[4:-1])
    if kind in (DOCUMENT, ARRAY):
        return _document(value)
    if kind == BINARY:
        return value[3::-1] + value[4:]
    if kind == DATE:
        return struct.pack(">Q", struct.unpack("<q", value)[0] + _SIGN)
    if kind == TIMESTAMP:
        return value[::-1]
    return value


def _text(text: bytes) -> bytes:
    """Returns text as sorting bytes: a zero byte inside sorts after the end, before all other bytes."""
    return text.replace(b"\0", b"\0\xff") + b"\0\0"


def _document(value: bytes) -> bytes:
    """Returns a document as sorting bytes, field by field: type, then name, then value."""
    parts, position = [], 4
    while position < len(value) - 1:
        kind, start = value[position], value.index(0, position + 1) + 1
        end = start + extent(value, kind, start)[0]
        parts += [bytes([_RANKS[kind]]), value[position + 1 : start], _body(kind, value[start:end])]
        position = end
    return b"".join([*parts, b"\0"])


def _number(number: Any) -> bytes:
    """Returns the bits of the nearest double in sorting order, then what the number has beyond that
    double."""
    exact = number.to_decimal() if isinstance(number, Decimal128) else Decimal(number)
    if exact.is_nan():
        return bytes(8) + _remainder_key(Decimal(0))  # the least number
    nearest, difference = float(exact) + 0.0, Decimal(0)  # -0.0 and 0.0 are one
    if exact.is_finite():
        nearest = min(max(nearest, -sys.float_info.max), sys.float_info.max)
        difference = _EXACT.subtract(exact, Decimal(nearest))
    bits: int = struct.unpack(">Q", struct.pack(">d", nearest))[0]
    return struct.pack(">Q", bits ^ (_ALL if bits & _SIGN else _SIGN)) + _remainder_key(difference)


def _remainder_key(difference: Decimal) -> bytes:
    """Returns signs, exponent and digits of a number; zero is one byte."""
    if not difference:
        return b"\x80"
    digits = "".join(map(str, difference.as_tuple().digits)).rstrip("0").encode()
    above = b"\xc0" + struct.pack(">H", difference.adjusted() + 0x4000) + digits + b"\0"
    return above if difference > 0 else bytes(255 - byte for byte in above)


def sort_keys(group: Group, element: Element | None) -> NDArray[np.bytes_]:
    """Returns the keys of a group's `_id`s (or of fields that refer to one)."""
    if element is None:
        return np.full(len(group.members), b"", dtype="S1")
    if (bodies := _bodies(group, element)) is not None:
        return _strings(_repeated(group, bytes([_RANKS[element.type]])), bodies)
    keys = [sort_key(element.type, group.raw(row, element)) for row in range(len(group.members))]
    return np.array(keys, dtype=np.bytes_)


def _bodies(group: Group, element: Element) -> Bytes2D | None:
    """Returns what `_body` gives of each, all at once; None where they are not alike enough for that."""
    values = group.matrix[:, element.start : element.start + element.size]
    if element.type == OBJECT_ID:
        return values
    if element.type in _DTYPES:
        return _numbers(group, element)
    if group.present is not None:
        return None
    if element.type == DATE:
        return (_holes(group, element, "<u8") ^ _SIGN).astype(">u8").view(np.uint8)
    if element.type == STRING and values[:, 4:-1].all():
        return np.hstack([values[:, 4:-1], _repeated(group, b"\0\0")])
    if element.type == BINARY:
        return np.hstack([values[:, 3::-1], values[:, 4:]])
    return _documents(group, element) if element.type == DOCUMENT else None


def _numbers(group: Group, element: Element) -> Bytes2D | None:
    numbers = _holes(group, element, _DTYPES[element.type])
    if element.type == INT64 and not np.all((numbers >= -(2**53)) & (numbers <= 2**53)):
        return None
    doubles = numbers.astype(np.float64)
    doubles[doubles == 0] = 0.0  # -0.0 and 0.0 are one
    bits = doubles.view(np.uint64)
    bits = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    bits[np.isnan(doubles)] = 0
    return np.hstack([bits.astype(">u8").view(np.uint8), _repeated(group, b"\x80")])


def _documents(group: Group, element: Element) -> Bytes2D | None:
    parts: list[Bytes2D] = []
    end = element.start + 4
    for child in group.layout.children(element.path):
        if (body := _bodies(group, child)) is None:
            return None
        name = group.matrix[:, end + 1 : child.start]
        parts += [_repeated(group, bytes([_RANKS[child.type]])), name, body]
        end = child.start + child.size
    return np.hstack([*parts, _repeated(group, b"\0")])


def _holes(group: Group, element: Element, dtype: str) -> NDArray[Any]:
    return read_holes(group.matrix, np.array([element.hole]), dtype)


def _repeated(group: Group, constant: bytes) -> Bytes2D:
    """Returns the same bytes for each document."""
    return np.tile(np.frombuffer(constant, np.uint8), (len(group.members), 1))


def unnameable(group: Group, element: Element | None) -> tuple[list[int], str]:
    """Returns the rows whose `_id` no query can name, and why not."""
    if element is None:
        return [], ""
    if element.size > LONGEST_ID:
        return list(
            range(len(group.members))
        ), f"it has {element.size:,} bytes, and at most {LONGEST_ID:,} can be"
    if element.type in _UNQUERIED:
        return list(range(len(group.members))), f"{TYPE_NAMES[element.type]} can't be asked for"
    texts = group.matrix[:, element.start + 4 : element.start + element.size]
    if element.type not in (STRING, SYMBOL, CODE) or not (texts >= _ASCII).any():
        return [], ""
    rows = []
    for row in range(len(group.members)):
        try:
            group.raw(row, element)[4:-1].decode()
        except UnicodeDecodeError:
            rows.append(row)
    return rows, "the string is not UTF-8"


def _strings(*parts: Bytes2D) -> NDArray[np.bytes_]:
    """Returns a byte string for each row."""
    rows = np.hstack(parts)
    return rows.view(f"S{rows.shape[1]}").ravel()
