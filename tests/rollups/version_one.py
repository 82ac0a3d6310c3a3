"""Summaries as releases before the slim form wrote them: all keys, and a state of version 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database

from bucketwise.buckets.bson.raw import LOSSLESS
from bucketwise.config.policies import Policy
from bucketwise.rollups.statistics import statistics_of
from bucketwise.rollups.statistics.base import VarintWriter
from bucketwise.rollups.statistics.steps import Steps
from bucketwise.rollups.summaries import documents
from bucketwise.rollups.summaries.targets import target


def decoded(summary: bytes) -> dict[str, Any]:
    found: dict[str, Any] = bson.decode(summary, documents.OPTIONS)
    return found


def as_version_one(policy: Policy, summary: bytes) -> bytes:
    """The same summary; its policy keeps all statistics."""
    state = documents.state_of(decoded(summary), policy)
    document = documents.filled(policy, decoded(summary))
    for name, kinds in statistics_of(policy).items():
        document_of_field: Any = document
        for part in name.split("."):
            document_of_field = document_of_field[part]
        values = state.values[name]
        (_, total, squares, *_), edges, bins = values[:3]
        written = bytearray(b"\x01")
        written += _wide(total) + _wide(squares)
        for edge in edges or ((0, b""), (0, b"")):
            written += _varint(len(edge[1])) + edge[1]
        written += _varint(len(bins))
        before = 0
        for code, count in sorted(bins.items()):
            written += _varint(2 * (code - before) if code >= before else 2 * (before - code) - 1)
            written += _varint(count)
            before = code
        for kind, value in zip(kinds, values, strict=True):
            if isinstance(kind, Steps):  # as they are today
                writer = VarintWriter()
                kind.pack(value, writer, set())
                written += writer.data
        document_of_field["state"] = bytes(written)
    return bson.encode(document, codec_options=documents.OPTIONS)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value % 128 + 128)
        value //= 128
    return bytes([*found, value])


def _wide(value: int) -> bytes:
    zeros = 0
    while value and value % 2 == 0:
        value //= 2
        zeros += 1
    kept = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return _varint(zeros) + _varint(len(kept)) + kept


def age(database: Database[dict[str, Any]], policy: Policy, collections: Sequence[str]) -> None:
    """Has the summaries of these collections be as an earlier release wrote them."""
    for name in collections:
        collection = target(database, name)
        for summary in list(collection.find()):
            older = RawBSONDocument(as_version_one(policy, bytes(summary.raw)), LOSSLESS)
            assert collection.replace_one({"_id": summary["_id"]}, older).modified_count == 1
