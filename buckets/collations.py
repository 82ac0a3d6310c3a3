"""Indexes whose collation takes texts for equal, or sorts them, otherwise than their bytes do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from bson.regex import Regex
from pymongo.collation import Collation
from pymongo.errors import OperationFailure

from bucketwise.buckets.bson.cursor import SIMPLE
from bucketwise.buckets.bson.types import STRING, first_at
from bucketwise.buckets.models.model import BucketModel

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
