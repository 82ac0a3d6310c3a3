"""Overflow by its references: documents of another collection that name flagged buckets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from bson.binary import Binary
from bson.objectid import ObjectId

from bucketwise.buckets.inferring.fields import Fields, non_null
from bucketwise.buckets.inferring.words import FLAG, hints
from bucketwise.config.policies import Overflow

#: Types that the `_id` of a bucket may have. A query would take a regular expression for a pattern.
_REFERENCE_TYPES = (str, int, ObjectId, Binary)
#: Fields that are tried.
_MAX_FIELDS = 10


def references(fields: Fields) -> dict[str, list[Any]]:
    """Returns the fields that may refer to buckets, with what they hold, each once. Documents without
    anything that could hold samples refer to none."""
    if not fields.several:
        return {}
    found = {
        path: list({repr(it): it for it in held}.values())
        for path, held in fields.in_most().items()
        if path != "_id" and all(isinstance(it, _REFERENCE_TYPES) for it in held)
    }
    return dict(islice(found.items(), _MAX_FIELDS))


def overflows(
    collection: str, ref_field: str, extra: Fields, referred: Fields, others: Fields
) -> Iterator[Overflow]:
    """Yields possible overflows. `referred`: buckets that `extra` refers to; `others`: those that it may not
    refer to."""
    for flag in _flags(referred, others):
        for samples in _most_first(extra):
            if samples != ref_field:
                yield Overflow(
                    flag_field=flag, collection=collection, ref_field=ref_field, samples_field=samples
                )


def _flags(referred: Fields, others: Fields) -> Sequence[str]:
    """Returns the fields that are true in all buckets that are referred to, and not in most others."""
    found = [
        path
        for path, held in referred.in_most().items()
        if all(it is True or it == 1 for it in held) and _is_rare(path, others)
    ]
    return sorted(found, key=lambda it: (not isinstance(referred.single[it][0], bool), not hints(it, FLAG)))


def _is_rare(path: str, others: Fields) -> bool:
    held = non_null(others.single.get(path, ()))
    return not others.documents or sum(map(bool, held)) < len(others.documents)


def _most_first(extra: Fields) -> list[str]:
    return sorted(extra.several, key=lambda it: len(non_null(extra.several[it])), reverse=True)
