"""Looks for the overflow of a collection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pymongo.collection import Collection

from buckets.bson.cursor import find_raw
from buckets.bson.raw import Docs
from buckets.inferring.fields import Fields, decoded
from buckets.inferring.guess import Guess, with_overflow
from buckets.inferring.notes import quoted
from buckets.inferring.overflow import overflows, references

Document = dict[str, Any]
#: Buckets that are looked up by the references to them.
_REFERRED = 50


def find_overflow(
    buckets: Collection[Document], found: Guess, sample: Docs, others: Iterable[tuple[str, Docs]]
) -> Guess:
    """Returns the guess with its overflow, if one of the other collections holds that."""
    for name, docs in others:
        extra = Fields.of(decoded(docs))
        for ref_field, ids in references(extra).items():
            query = {"_id": {"$in": ids[:_REFERRED]}}
            referred = Docs.concat([Docs.none(), *find_raw(buckets, query, limit=_REFERRED, is_ahead=False)])
            if 2 * len(referred) > len(ids[:_REFERRED]):  # the others may be gone
                seen = _fitting(found, name, ref_field, docs, referred, sample)
                if seen is not None:
                    return seen
    return found


def _fitting(
    found: Guess, name: str, ref_field: str, docs: Docs, referred: Docs, sample: Docs
) -> Guess | None:
    """Returns the guess with the overflow that fits the buckets which are referred to."""
    held = set(referred)
    others = Fields.of(decoded(it for it in sample if it not in held))
    extra = Fields.of(decoded(docs))
    for overflow in overflows(name, ref_field, extra, Fields.of(decoded(referred)), others):
        if seen := with_overflow(found, overflow, referred, docs, sample):
            text = (
                f"{len(referred):,} buckets with {quoted(overflow.flag_field)} are referred to by "
                f"{quoted(ref_field)} in {quoted(name)}"
            )
            seen.notes.say("overflow", text)
            return seen
    return None
