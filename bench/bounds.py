"""What the server and the driver take for themselves. Each is an action: see `bench.measuring`, which gives
it the memory settings of the program, so that no bound is too low."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from bson.raw_bson import RawBSONDocument

from bench.place import Place
from buckets.raw import LOSSLESS

_DELETED_AT_ONCE = 1000
_INSERTED_AT_ONCE = 1000


def drain(place: Place) -> None:
    """Raw batches, as the server hands them over."""
    assert sum(len(batch) for batch in place.source.find_raw_batches({}))


def drain_and_delete(place: Place) -> None:
    """Raw batches once, then all documents by `_id`, with nothing that guards it."""
    for _ in place.copy.find_raw_batches({}):
        pass
    ids = [found["_id"] for found in place.copy.find({}, {"_id": 1})]
    for at in range(0, len(ids), _DELETED_AT_ONCE):
        place.copy.delete_many({"_id": {"$in": ids[at : at + _DELETED_AT_ONCE]}})


def insert(place: Place) -> None:
    """The same raw documents into a new collection."""
    raw = place.source.with_options(codec_options=LOSSLESS)
    found: Iterator[Any] = iter(raw.find({}))
    target = place.database["inserted"]
    while part := list(itertools.islice(found, _INSERTED_AT_ONCE)):
        assert isinstance(part[0], RawBSONDocument)
        target.insert_many(part, ordered=False)
