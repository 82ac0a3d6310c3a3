"""Samples a few documents of a collection of which nothing is known yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, cast

from pymongo import DESCENDING
from pymongo.collection import Collection
from pymongo.errors import ExecutionTimeout

from bucketwise.buckets.bson.cursor import find_raw
from bucketwise.buckets.bson.raw import Docs

Document = dict[str, Any]
#: Of each kind so many documents, and about so many bytes: those that MongoDB finds first, the last ones, and
#: some at random.
_DOCUMENTS, _BYTES = 100, 1_000_000
#: Milliseconds. Some that are at random are found by a walk over all, where a collection is oddly stored.
_LONGEST = 10_000


def some_documents(collection: Collection[Document], kind: str) -> Docs:
    """Returns at most 300 documents, each once. `kind`: as listCollections names it. It takes three commands,
    however large the collection is."""
    seen: dict[bytes, None] = {}
    for part in _parts(collection, kind):
        seen |= dict.fromkeys(part)
    return Docs.of(list(seen))


def _parts(collection: Collection[Document], kind: str) -> Iterator[list[bytes]]:
    yield _first(find_raw(collection, {}, limit=_DOCUMENTS, reads_ahead=False))
    if kind == "collection":
        last = find_raw(collection, {}, sort=[("$natural", DESCENDING)], limit=_DOCUMENTS, reads_ahead=False)
        yield _first(last)
    sample: list[Document] = [{"$sample": {"size": _DOCUMENTS}}]
    try:
        with collection.aggregate_raw_batches(sample, maxTimeMS=_LONGEST) as found:
            yield _first(Docs.split(cast(bytes, data)) for data in found)
    except ExecutionTimeout:
        return


def _first(found: Iterator[Docs]) -> list[bytes]:
    """Returns the documents up to about _BYTES."""
    taken: list[bytes] = []
    size = 0
    with closing(found):  # type: ignore[type-var]
        for docs in found:
            for document in docs:
                taken.append(document)
                size += len(document)
                if size >= _BYTES:
                    return taken
    return taken
