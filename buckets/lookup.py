"""Finds documents by their `_id`s."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pymongo.client_session import ClientSession
from pymongo.collection import Collection

from bucketwise.buckets.bson.cursor import find_raw, id_range_query, ids_query
from bucketwise.buckets.bson.raw import Docs
from bucketwise.buckets.fields.selectors import extended_json
from bucketwise.config.errors import HaltedError

Document = dict[str, Any]


def find_by_ids(
    collection: Collection[Document],
    raw_ids: Sequence[bytes],
    session: ClientSession | None = None,
    *,
    are_unique: bool = True,
) -> Iterator[Docs]:
    """Yields the documents of a collection with these `_id`s. Raises HaltedError where they `are_unique` and
    two documents have one: MongoDB keeps them unique only inside each shard.

    ObjectIds that were made one after another lie together: reading from the first to the last is faster than
    looking each up. Where there is more in between, each is looked up after all."""
    found = _found_by_ids(collection, raw_ids, session)
    return _each_once(found, collection.name) if are_unique else iter(found)


def _found_by_ids(
    collection: Collection[Document], raw_ids: Sequence[bytes], session: ClientSession | None
) -> Iterable[Docs]:
    span = id_range_query(raw_ids)
    if span is not None:
        found = Docs.concat([Docs.none(), *find_raw(collection, span, session, limit=len(raw_ids) + 1)])
        if len(found) <= len(raw_ids):
            wanted = set(raw_ids)
            return [found.take([i for i, raw_id in enumerate(found.raw_ids) if raw_id in wanted])]
    return find_raw(collection, ids_query(raw_ids), session)


def _each_once(found: Iterable[Docs], collection: str) -> Iterator[Docs]:
    """Gives the documents on. By its `_id`, one of two would be copied or deleted in place of the other."""
    seen: set[bytes] = set()
    for docs in found:
        for i, raw_id in enumerate(docs.raw_ids):
            if raw_id in seen:
                raise HaltedError(
                    f"{collection}: two documents have the _id {extended_json(docs.decode_id(i))}, on "
                    "different shards. Nothing was deleted. Give one of them another _id, and run again"
                )
            seen.add(raw_id)
        yield docs
