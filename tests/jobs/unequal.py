"""In a process: what is put into a collection has another value than it should."""

from __future__ import annotations

import struct
from importlib import import_module
from typing import Any

from bucketwise.buckets.bson.raw import Docs


def install(module: str, field: str) -> None:
    """`field`: on top of the documents, and a double."""
    it: Any = import_module(module)
    inner = it.insert_raw
    mark = b"\x01" + field.encode() + b"\0"

    def changed(document: bytes) -> bytes:
        at = document.index(mark) + len(mark)
        return document[:at] + struct.pack("<d", -1.0) + document[at + 8 :]

    def insert(database: Any, collection: str, documents: Docs, session: Any = None) -> None:
        inner(database, collection, Docs.of([changed(document) for document in documents]), session)

    it.insert_raw = insert
