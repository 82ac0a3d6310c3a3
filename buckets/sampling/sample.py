"""Samples a few documents of a collection, however large: as a policy reads it, or before one is known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, cast

import numpy as np
from pymongo import ASCENDING, DESCENDING
from pymongo.collection import Collection
from pymongo.errors import ExecutionTimeout

from bucketwise.buckets.bson.cursor import First, find_raw
from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.models.overflow import flagged_buckets
from bucketwise.buckets.source import Source

Document = dict[str, Any]
#: Of each kind so many buckets, and so many bytes: some of the oldest, of the newest, from the middle, and of
#: those that MongoDB finds first.
_BUCKETS, _BYTES = 250, 4_000_000
#: So many of them that have overflow: of one that outgrew its document there may be any amount.
_OVERFLOWING = 10


def sample(source: Source) -> Batch:
    """Returns at most some 1,000 buckets and 16 MB, each once. It takes a few commands, none of which looks
    at more than it gives."""
    seen: set[bytes] = set()
    parts = [_unseen(it, seen) for it in _parts(source)]
    return Batch.concat([source.with_overflow(_few_flagged(it, source)) for it in parts if len(it)])


def _parts(source: Source) -> Iterator[Docs]:
    yield _some(source, {}, None)
    if _is_in_order(source):
        yield from _by_time(source)
    elif _kind(source) == "collection":
        yield _some(source, {}, [("$natural", DESCENDING)])


def _kind(source: Source) -> str:
    return next((it["type"] for it in source.listed if it["name"] == source.collection.name), "")


def _is_in_order(source: Source) -> bool:
    """Returns whether MongoDB finds buckets in the order of time without looking at all of them."""
    kind = _kind(source)
    if kind != "collection" or not source.model.own_times:
        return kind == "timeseries"
    return source.is_sorted and source.comparison.has_index(source.last_field)


def _by_time(source: Source) -> Iterator[Docs]:
    edges = []
    for direction in (ASCENDING, DESCENDING):
        found = [_some(source, it, [(source.last_field, direction)]) for it in source.rough.timed()]
        edges += [source.time_of(it[0]) for it in found if len(it)]
        yield from found
    if edges:
        for query in source.rough.timed((min(edges) + max(edges)) // 2):
            yield _some(source, query, [(source.last_field, ASCENDING)])


def _some(source: Source, query: Document, order: list[tuple[str, int]] | None) -> Docs:
    """Returns what one command gives, cut off where it is large."""
    first = First(_BUCKETS, order, source.comparison.of())
    found = find_raw(source.collection, query, first=first, reads_ahead=False)
    parts, size = [Docs.none()], 0
    with closing(found):  # type: ignore[type-var]
        for docs in found:
            parts.append(docs)
            size += docs.size
            if size >= _BYTES:
                break
    docs = Docs.concat(parts)
    fitting = int(np.searchsorted(docs.offsets, _BYTES, side="right")) - 1
    return docs.slice(0, min(len(docs), max(1, fitting)))


def _unseen(docs: Docs, seen: set[bytes]) -> Docs:
    new = [i for i, document in enumerate(docs) if document not in seen]
    seen.update(docs)
    return docs.take(new)


def _few_flagged(docs: Docs, source: Source) -> Docs:
    if source.overflow is None:
        return docs
    return docs.take(np.setdiff1d(np.arange(len(docs)), flagged_buckets(docs, source.policy)[_OVERFLOWING:]))


#: Of each kind so many documents, and about so many bytes: those that MongoDB finds first, the last ones, and
#: some at random.
_FEW_DOCUMENTS, _FEW_BYTES = 100, 1_000_000
#: Milliseconds. Some that are at random are found by a walk over all, where a collection is oddly stored.
_LONGEST = 10_000


def some_documents(collection: Collection[Document], kind: str) -> Docs:
    """Returns at most 300 documents, each once. `kind`: as listCollections names it. It takes three commands,
    however large the collection is."""
    seen: dict[bytes, None] = {}
    for part in _few_parts(collection, kind):
        seen |= dict.fromkeys(part)
    return Docs.of(list(seen))


def _few_parts(collection: Collection[Document], kind: str) -> Iterator[list[bytes]]:
    yield _first(find_raw(collection, {}, first=First(_FEW_DOCUMENTS), reads_ahead=False))
    if kind == "collection":
        last = find_raw(
            collection, {}, first=First(_FEW_DOCUMENTS, [("$natural", DESCENDING)]), reads_ahead=False
        )
        yield _first(last)
    sample: list[Document] = [{"$sample": {"size": _FEW_DOCUMENTS}}]
    try:
        with collection.aggregate_raw_batches(sample, maxTimeMS=_LONGEST) as found:
            yield _first(Docs.split(cast(bytes, data)) for data in found)
    except ExecutionTimeout:
        return


def _first(found: Iterator[Docs]) -> list[bytes]:
    """Returns the documents up to about _FEW_BYTES."""
    taken: list[bytes] = []
    size = 0
    with closing(found):  # type: ignore[type-var]
        for docs in found:
            for document in docs:
                taken.append(document)
                size += len(document)
                if size >= _FEW_BYTES:
                    return taken
    return taken
