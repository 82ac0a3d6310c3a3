"""Older versions of a bucket, restored as documents of their own."""

from __future__ import annotations

import hashlib

from buckets.bson.raw import Batch
from buckets.bson.types import DOCUMENT, INT32, elements
from buckets.versions.overlay import Typed, document_of, number, text


def sha256_of(bucket: Batch) -> str:
    """Returns the SHA-256 of a bucket's bytes, followed by those of its overflow."""
    return hashlib.sha256(bucket.unit(0)).hexdigest()


def set_aside(bucket: Batch, version: int) -> list[bytes]:
    """Returns the documents of an older version under `_id`s of their own, otherwise unchanged."""
    identity = bucket.main.raw_id(0)
    facts = {"version": number(INT32, float(version)), "sha256": text(sha256_of(bucket))}
    main = _renamed(bucket.main[0], {"_id": identity, **facts})
    extra = [
        _renamed(it, {"_id": bucket.extra.raw_id(i), "of": identity, **facts})
        for i, it in enumerate(bucket.extra)
    ]
    return [main, *extra]


def _renamed(document: bytes, identity: dict[str, Typed]) -> bytes:
    """Returns the document with another `_id`, and no other bit changed."""
    for start, value, end in elements(document):
        if document[start + 1 : value] == b"_id\0":
            named = b"%c_id\0" % DOCUMENT + document_of(identity)
            body = document[4:start] + named + document[end:]
            return (len(body) + 4).to_bytes(4, "little") + body
    raise AssertionError("every archived document has an _id")
