"""Finds documents by their `_id`s: each once, and those of just these bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import bson
from pymongo.client_session import ClientSession
from pymongo.collection import Collection

from bucketwise.buckets.bson.cursor import First, find_raw, id_range_query, ids_query
from bucketwise.buckets.bson.raw import LOSSLESS, Docs
from bucketwise.buckets.bson.types import ARRAY, CODE, DOCUMENT, STRING, SYMBOL, elements, first_at
from bucketwise.buckets.fields.ids import sort_key
from bucketwise.buckets.fields.selectors import extended_json
from bucketwise.config.errors import HaltedError

Document = dict[str, Any]
#: The types of `_id`s that are text, or may hold it.
_MAY_HOLD_TEXT = frozenset(bytes([it]) for it in (STRING, SYMBOL, CODE, DOCUMENT, ARRAY))


def find_ids(
    collection: Collection[Any],
    query: Mapping[str, Any],
    session: ClientSession | None = None,
    fields: Document | None = None,
) -> Iterator[Docs]:
    """Yields the documents whose `_id`s a query names by `$in`, whatever the collation of the collection.
    `fields`: has to leave `_id` in."""
    return map(_Wanted(query).of, find_raw(collection, query, session, fields))


class _Wanted:
    """The `_id`s that a query names, by their bytes: a collation may take other texts for equal."""

    def __init__(self, query: Mapping[str, Any]) -> None:
        self._query = query

    def of(self, found: Docs) -> Docs:
        """Returns those of the documents that were asked for."""
        may_differ = [i for i, raw in enumerate(found.raw_ids) if raw[:1] in _MAY_HOLD_TEXT]
        others = {i for i in may_differ if self._key(found.raw_id(i)) not in self._named}
        return found.take([i for i in range(len(found)) if i not in others]) if others else found

    @staticmethod
    def _key(raw_id: bytes) -> bytes:
        return sort_key(raw_id[0], raw_id[1:])

    @cached_property
    def _named(self) -> set[bytes]:
        query = bson.encode(self._query, codec_options=LOSSLESS)
        array = first_at(query, ("_id", "$in"))[1:]
        return {sort_key(array[start], array[value:end]) for start, value, end in elements(array)}


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
        found = Docs.concat(
            [Docs.none(), *find_raw(collection, span, session, first=First(len(raw_ids) + 1))]
        )
        if len(found) <= len(raw_ids):
            wanted = set(raw_ids)
            return [found.take([i for i, raw_id in enumerate(found.raw_ids) if raw_id in wanted])]
    return find_ids(collection, ids_query(raw_ids), session)


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
