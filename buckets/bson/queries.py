"""Queries for documents by their `_id`s, byte for byte."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from bson.raw_bson import RawBSONDocument

from bucketwise.buckets.bson.identities import are_object_ids
from bucketwise.buckets.bson.raw import LOSSLESS

_LENGTH = struct.Struct("<i")


def ids_query(raw_ids: Sequence[bytes]) -> RawBSONDocument:
    """Returns a query for the documents that have these `_id`s, byte for byte. `raw_ids`: as
    `Docs.raw_id` returns them."""
    names = dict.fromkeys(filter(None, raw_ids))
    array = b"".join([b"%c%d\0%b" % (raw[0], place, raw[1:]) for place, raw in enumerate(names)])
    return _query(b"\x04$in\0" + _document(array))


def id_range_query(raw_ids: Sequence[bytes]) -> RawBSONDocument | None:
    """Returns a query for all documents from the least of these `_id`s to the greatest. None if an
    `_id` is not an ObjectId: then others may lie between them."""
    if not raw_ids or not are_object_ids(raw_ids):
        return None
    return _query(b"\x07$gte\0" + min(raw_ids)[1:] + b"\x07$lte\0" + max(raw_ids)[1:])


def _query(condition: bytes) -> RawBSONDocument:
    return RawBSONDocument(_document(b"\x03_id\0" + _document(condition)), LOSSLESS)


def _document(fields: bytes) -> bytes:
    return _LENGTH.pack(len(fields) + 5) + fields + b"\0"
