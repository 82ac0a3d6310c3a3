"""The overflow (the outlier pattern): a flagged bucket has more samples in documents that refer to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from pymongo.collection import Collection

from bucketwise.buckets.bson.raw import Batch, Docs
from bucketwise.buckets.bson.types import ARRAY, BOOL, DOUBLE, INT32, INT64, TYPE_NAMES, elements, first_at
from bucketwise.buckets.fields.ids import sort_key, sort_keys
from bucketwise.buckets.layouts.groups import group_by_layout
from bucketwise.buckets.layouts.layout import Group, read_holes
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.shape import Breach, find, split
from bucketwise.config.policies import Policy

Document = dict[str, Any]
_FLAGS = {BOOL: "u1", INT32: "<i4", INT64: "<i8", DOUBLE: "<f8"}


def flagged(group: Group, policy: Policy) -> NDArray[np.bool_]:
    """Returns which documents of a group have overflow according to their flag: it is true, or a number
    other than 0."""
    none = np.zeros(len(group.members), dtype=np.bool_)
    if policy.overflow is None:
        return none
    element = find(group.layout, split(policy.overflow.flag_field))
    if element is None:
        return none
    if element.type not in _FLAGS:
        reason = f"{TYPE_NAMES[element.type]} stands where true or false is needed"
        raise Breach(policy.overflow.flag_field, reason)
    values = read_holes(group.matrix, np.array([element.hole]), _FLAGS[element.type])
    return np.asarray(values[:, 0] != 0)


def flagged_buckets(main: Docs, policy: Policy) -> NDArray[np.int64]:
    """Returns the indices of all flagged documents."""
    flags = np.zeros(len(main), dtype=np.bool_)
    for group in group_by_layout(main, model_of(policy).union_rules):
        with suppress(Breach):  # decoding reports it
            flags[group.members] = flagged(group, policy)
    return np.flatnonzero(flags)


def attach(main: Docs, extra: Docs, policy: Policy) -> Batch:
    """Joins buckets and overflow documents by the overflow's `ref_field`. Overflow of no bucket here is left
    out; that of one bucket is put in `_id` order."""
    assert policy.overflow is not None
    model, place = model_of(policy), dict[bytes, int]()
    for group in group_by_layout(main, model.union_rules):
        keys = sort_keys(group, group.layout.get(("_id",)))
        place.update(zip(keys.tolist(), group.members.tolist(), strict=True))
    owners: list[tuple[int, bytes, int]] = []
    for group in group_by_layout(extra, model.overflow_union_rules):
        reference = group.layout.get(split(policy.overflow.ref_field))
        if reference is None:
            continue
        ids = sort_keys(group, group.layout.get(("_id",))).tolist()
        references = sort_keys(group, reference).tolist()
        for own, to, member in zip(ids, references, group.members.tolist(), strict=True):
            if to in place:
                owners.append((place[to], own, member))
    owners.sort()
    return Batch(
        main,
        extra.take([member for _, _, member in owners]),
        np.array([owner for owner, _, _ in owners], dtype=np.int32),
    )


def orphan_ids(
    buckets: Collection[Document], overflow: Collection[Document], ref_field: str
) -> Iterator[Any]:
    """Yields the `_id`s of the overflow documents that refer to no bucket that is there."""
    owner: Document = {
        "from": buckets.name,
        "localField": ref_field,
        "foreignField": "_id",
        "pipeline": [{"$project": {"_id": 1}}],
        "as": "owner",
    }
    # Those that may be compared otherwise by a collation come with what was found.
    may_differ = {"owner._id": {"$type": ["string", "object"]}}
    chosen = {"$match": {"$or": [{"owner": []}, may_differ]}}
    project = {"$project": {"owner": 1, "named": f"${ref_field}"}}
    for data in overflow.aggregate_raw_batches([{"$lookup": owner}, chosen, project]):
        documents = Docs.split(cast(bytes, data))
        yield from (documents.decode_id(i) for i, it in enumerate(documents) if not _is_owned(it))


def _is_owned(document: bytes) -> bool:
    """Returns whether one of the owners that were found of an overflow document is named by it, byte for
    byte."""
    owners = first_at(document, ("owner",))[1:]
    named = first_at(document, ("named",))
    ids = {
        sort_key(it[0], it[1:])
        for it in (first_at(owners[value:end], ("_id",)) for _, value, end in elements(owners))
    }
    if named[:1] == bytes([ARRAY]):  # any element of it may be the owner's
        inside = named[1:]
        return any(sort_key(inside[at], inside[value:end]) in ids for at, value, end in elements(inside))
    return bool(ids) and sort_key(named[0], named[1:]) in ids
