"""What the server and the driver take for themselves. Each is an action: see `bench.measuring`, which gives
it the memory settings of the program, so that no bound is too low."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, cast

from bson.raw_bson import RawBSONDocument

from bench.testbed import Testbed
from bucketwise.buckets.bson.cursor import ids_query
from bucketwise.buckets.bson.raw import LOSSLESS, Docs

_DELETED_AT_ONCE = 1000
_INSERTED_AT_ONCE = 1000


def drain(testbed: Testbed) -> None:
    """Reads raw batches, as the server sends them."""
    assert sum(len(batch) for batch in testbed.source.find_raw_batches({}))


def drain_and_delete(testbed: Testbed) -> None:
    """Reads raw batches once, then deletes all documents by the `_id`s in them, without a guard."""
    batches = (Docs.split(cast(bytes, data)) for data in testbed.copy.find_raw_batches({}))
    ids = [raw_id for batch in batches for raw_id in batch.raw_ids]
    for at in range(0, len(ids), _DELETED_AT_ONCE):
        testbed.copy.delete_many(ids_query(ids[at : at + _DELETED_AT_ONCE]))


def insert(testbed: Testbed) -> None:
    """Inserts the same raw documents into a new collection."""
    raw = testbed.source.with_options(codec_options=LOSSLESS)
    found: Iterator[Any] = iter(raw.find({}))
    target = testbed.database["inserted"]
    while part := list(itertools.islice(found, _INSERTED_AT_ONCE)):
        assert isinstance(part[0], RawBSONDocument)
        target.insert_many(part, ordered=False)
