"""Indexes whose collation takes texts for equal, or sorts them, otherwise than their bytes do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import bson
from bson.regex import Regex
from pymongo.client_session import ClientSession
from pymongo.collation import Collation
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from bucketwise.buckets.bson.cursor import SIMPLE, First, find_raw, id_range_query, ids_query
from bucketwise.buckets.bson.raw import LOSSLESS, Docs
from bucketwise.buckets.bson.types import ARRAY, CODE, DOCUMENT, STRING, SYMBOL, elements, first_at
from bucketwise.buckets.fields.ids import sort_key
from bucketwise.buckets.fields.selectors import extended_json
from bucketwise.buckets.models.model import BucketModel
from bucketwise.config.errors import HaltedError

Document = dict[str, Any]
#: Whether a document, as BSON, meets a query.
Test = Callable[[bytes], bool]


class Comparison:
    """By which collations queries for a policy's buckets compare texts. It is the simple one, by their bytes,
    unless an index takes another one alone: that one where it finds the same times; of series it may find
    others as well, which are left out of what comes back."""

    def __init__(self, model: BucketModel[Any], indexes: Callable[[], list[Document]]) -> None:
        """`indexes`: asks for those of the collection."""
        self._model, self._indexes = model, indexes

    def of(self, also: Document | None = None) -> Collation | Document:
        """Returns the collation of a query for times that an answer is exact for. `also`: what else it asks
        for."""
        return SIMPLE if holds_text(also) or not self._time_fields else self._own or SIMPLE

    def reading(self, also: Document | None) -> tuple[Collation | Document, Test | None]:
        """Returns the collation of a query that reads buckets, and what tells which of them are meant; None
        where all are."""
        if not holds_text(also):
            return self.of(), None
        is_meant = byte_test(also or {}) if self._own else None
        return (self._own or SIMPLE, is_meant) if is_meant else (SIMPLE, None)

    def has_index(self, field: str) -> bool:
        """Returns whether queries have an index that gives all buckets in the order of this field."""
        is_text = field in self._time_fields
        return any(not is_text or it.get("collation") == self._own for it in leading(self._indexes(), field))

    @cached_property
    def _time_fields(self) -> list[str]:
        """Returns the fields of indexes that find times in texts."""
        model = self._model
        fields = [
            (field, model.own_form) for field in map(model.own_form.indexed, model.indexed_fields[::-1])
        ]
        fields += [(it, model.reading_form) for it in (model.sample_index,) if it]
        return [field for field, form in fields if form.has_texts]

    @cached_property
    def _own(self) -> Document | None:
        """Returns the collation of the only indexes that find texts. Asks for them once. None: the simple
        one, or one under which texts of times do not sort as they do by their bytes; also where the user may
        not ask, since by the simple one all is found."""
        forms = (self._model.own_form, self._model.reading_form)
        try:
            indexes = self._indexes()
        except OperationFailure:
            return None
        for field in (*self._time_fields, *self._model.policy.stored_series.values()):
            if found := [it.get("collation") for it in leading(indexes, field)]:
                alike = (it for it in found if it and all(form.sorts_under(it) for form in forms))
                return None if None in found else next(alike, None)
        return None


def leading(indexes: Iterable[Mapping[str, Any]], field: str) -> list[Mapping[str, Any]]:
    """Returns those of a collection's indexes that give all documents in the order of this field."""
    return [it for it in indexes if next(iter(it["key"])) == field and _is_whole(it)]


def _is_whole(index: Mapping[str, Any]) -> bool:
    usable = not index.get("hidden") and "partialFilterExpression" not in index
    return usable and next(iter(index["key"].values())) in (1, -1) and not index.get("sparse")


def byte_test(query: Document) -> Test | None:
    """Returns what tells whether the texts of a document are those that a query names, byte for byte: with
    any collation the server finds these, and maybe others. None where the query compares texts in another
    way, so that it might miss some."""
    return _joined(all, [_test(name, asked) for name, asked in query.items()])


def _joined(how: Callable[[Iterable[bool]], bool], tests: list[Test | None]) -> Test | None:
    known = [it for it in tests if it is not None]
    return (lambda document: how(it(document) for it in known)) if len(known) == len(tests) else None


def _test(name: str, asked: Any) -> Test | None:
    if not holds_text(asked):
        return lambda _: True
    if name in ("$and", "$or"):
        return _joined(all if name == "$and" else any, [byte_test(it) for it in asked])
    values = [asked]
    if isinstance(asked, Mapping) and len(asked) == 1:
        values = asked.get("$in", [asked.get("$eq")])
    texts = {it.encode() for it in values if isinstance(it, str)}
    if name.startswith("$") or not texts or any(isinstance(it, Mapping | list | Regex) for it in values):
        return None
    path = tuple(name.split("."))

    def is_named(document: bytes) -> bool:
        found = first_at(document, path)
        return found[:1] != bytes([STRING]) or found[5:-1] in texts

    return is_named


def holds_text(value: Any) -> bool:
    """Returns whether a query, or a part of it, has a text to compare with."""
    if isinstance(value, Mapping):
        return any(map(holds_text, value.values()))
    return any(map(holds_text, value)) if isinstance(value, list) else isinstance(value, str)


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
