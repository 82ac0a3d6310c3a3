"""Merges versions of a bucket: slot by slot, sample by sample, the later version wins.

An application that makes its own `_id`s upserts a late reading after its bucket has gone: the new document is
a later version of the bucket. Versions are merged as BSON, so that what is kept keeps its type and its bits.
The merged bucket is decoded, and must hold what the versions hold: else they are not merged.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Batch, Docs, as_queried
from bucketwise.buckets.bson.types import ARRAY, DATE, INT32, INT64, first_at
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.ids import sort_key
from bucketwise.buckets.fields.times import PER_SECOND
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.shape import split
from bucketwise.buckets.versions.readings import (
    BucketReadings,
    Key,
    Overlay,
    Sample,
    Typed,
    Unmergeable,
    array_of,
    faults_of,
    number,
    samples_of,
    with_field,
)
from bucketwise.config.policies import Policy

#: A writer's sum may differ from ours by rounding.
_SUM_TOLERANCE = 1e-6


class Merged(NamedTuple):
    """n buckets, each made of an older and a newer version."""

    batch: Batch  # where there is a fault, the newer version
    faults: dict[int, str]  # which can't be merged, and why
    hides: NDArray[np.bool_]  # n: whether a reading of the older version no longer counts


class _Bucket(NamedTuple):
    """A bucket, and its overflow in the order of `_id`s."""

    main: bytes
    extra: list[bytes]


def merge(policy: Policy, older: Batch, newer: Batch) -> Merged:
    """Returns the buckets of `newer` laid over those of `older`: the first over the first, and so on."""
    faults: dict[int, str] = {}
    versions = BucketReadings(policy, Batch.concat([older, newer]))
    for i in range(len(newer)):
        if fault := versions.fault(i) or versions.fault(len(older) + i):
            faults[i] = f"a version breaks its model: {fault}"
        elif versions.series(i) != versions.series(len(older) + i):
            faults[i] = "the versions are of different series"
    merger, buckets = _Merger(policy, versions, len(older)), []
    for i in range(len(newer)):
        try:
            buckets.append(merger.bucket(i) if i not in faults else None)
        except Unmergeable as error:
            faults[i] = str(error)
            buckets.append(None)
    return _checked(policy, merger, newer, buckets, faults)


def _checked(
    policy: Policy, merger: _Merger, newer: Batch, buckets: list[_Bucket | None], faults: dict[int, str]
) -> Merged:
    """Returns the merge with totals, and with faults where it is not sound."""
    without_totals = _batch(newer, buckets)
    found = BucketReadings(policy, without_totals)
    for i, bucket in enumerate(buckets):
        if bucket is not None and found.fault(i) is None:
            buckets[i] = bucket._replace(main=merger.with_totals(i, bucket.main, found))
    batch = _batch(newer, buckets)
    decode_faults = faults_of(decode(batch, policy), len(batch)) if merger.has_totals else {}
    for i in range(len(newer)):
        if i not in faults and (fault := found.fault(i) or decode_faults.get(i)):
            faults[i] = f"merged, it breaks its model: {fault}"
        elif i not in faults and sorted(found.keys(i)) != merger.keys(i):
            faults[i] = "merged, it does not hold the readings that its versions hold"
    sound = [None if i in faults else bucket for i, bucket in enumerate(buckets)]
    hides = np.array([i not in faults and merger.hides(i, found) for i in range(len(newer))], dtype=np.bool_)
    return Merged(_batch(newer, sound), faults, hides)


def _batch(newer: Batch, buckets: list[_Bucket | None]) -> Batch:
    """Returns the merged bucket; where there is none, the newer version."""
    whole = [_bucket_at(newer, i) if bucket is None else bucket for i, bucket in enumerate(buckets)]
    owner = [i for i, bucket in enumerate(whole) for _ in bucket.extra]
    extra = list(itertools.chain.from_iterable(bucket.extra for bucket in whole))
    return Batch(Docs.of([it.main for it in whole]), Docs.of(extra), np.array(owner, dtype=np.int32))


def _bucket_at(batch: Batch, index: int) -> _Bucket:
    one = batch.slice(index, index + 1)
    return _Bucket(one.main[0], list(one.extra))


class _Merger:
    """Makes one bucket of two versions: of `versions` the first n are the older ones."""

    def __init__(self, policy: Policy, versions: BucketReadings, size: int) -> None:
        self._policy = policy
        self._model = model_of(policy)
        self._versions = versions
        self._size = size
        self._overlay = Overlay.of(policy)

    def bucket(self, index: int) -> _Bucket:
        """Counts and sums are the newer version's still. Raises Unmergeable."""
        older, newer = (_bucket_at(self._versions.batch, at) for at in (index, self._size + index))
        if not self._model.merges_versions:
            return newer
        main = self._overlay.lay(older.main, newer.main)
        if self._model.array is not None:
            main = self._with_samples(main, older.main, newer.main, index)
        main = self._with_bounds(main, older.main, newer.main)
        return _Bucket(self._with_flag(main, older, newer), _by_id(older.extra, newer.extra))

    @property
    def has_totals(self) -> bool:
        """Returns whether the writer keeps a count or sums."""
        return self._model.count_field is not None or bool(self._model.sums)

    def keys(self, index: int) -> list[Key]:
        """Returns what the merged document has to hold, sorted."""
        older, newer = self._versions.keys(index), self._versions.keys(self._size + index)
        if not self._model.merges_versions:
            return sorted(newer)
        later = set(newer)
        return sorted([*newer, *(key for key in older if key not in later)])

    def hides(self, index: int, found: BucketReadings) -> bool:
        """Returns whether the merged bucket holds less than both versions together."""
        held = [self._versions.count(at, is_own=False) for at in (index, self._size + index)]
        return found.count(index, is_own=False) != sum(held)

    def _with_samples(self, main: bytes, older: bytes, newer: bytes, index: int) -> bytes:
        before, after = self._timed(older, index), self._timed(newer, self._size + index)
        later = {key for key, _ in after}
        joined = [it for it in before if it[0] not in later] + after
        if all(is_sorted(held) for held in (before, after)):
            joined.sort(key=lambda it: it[0][:2])
        for at, path in enumerate(self._model.holders):
            if any(first_at(it, path)[:1] == bytes([ARRAY]) for it in (older, newer)):
                held = array_of([sample[at] for _, sample in joined])
                main = with_field(main, path, bytes([ARRAY]) + held)
        return main

    def _timed(self, document: bytes, index: int) -> list[tuple[Key, Sample]]:
        """Returns the samples, each with its time and series."""
        samples = samples_of(document, self._model.holders)
        return list(zip(self._versions.keys(index), samples, strict=True))

    def _with_bounds(self, main: bytes, older: bytes, newer: bytes) -> bytes:
        """Sets the bounds from the earlier start to the later end, as the newer version writes times."""
        for field, end in self._model.bounds:
            values = [first_at(document, split(field)) for document in (older, newer)]
            before, after = (self._model.covered(*[as_queried(value)] * 2) for value in values)
            if before is None or after is None:
                raise Unmergeable(f"{field}: no time")
            if before[end] > after[end] if end else before[end] < after[end]:
                main = with_field(main, split(field), self._as_type(before[end] - end, *values))
        return main

    def _as_type(self, ms: int, value: Typed, like: Typed) -> Typed:
        if value[0] == like[0]:
            return value
        if like[0] == DATE:
            return bytes([DATE]) + ms.to_bytes(8, "little", signed=True)
        unit = self._model.own_form.unit
        if unit is None:
            raise Unmergeable("the versions' bounds are times of different types")
        scaled = ms * PER_SECOND[unit]
        is_whole = like[0] in (INT32, INT64)
        return number(like[0], float(scaled // 1000) if is_whole else scaled / 1000)

    def _with_flag(self, main: bytes, older: _Bucket, newer: _Bucket) -> bytes:
        """Sets the flag where overflow is left."""
        if self._policy.overflow is None or not older.extra or newer.extra:
            return main
        path = split(self._policy.overflow.flag_field)
        return with_field(main, path, first_at(older.main, path))

    def with_totals(self, index: int, main: bytes, found: BucketReadings) -> bytes:
        """Returns the merged document with its count and sums, over what the versions take them over."""
        if (field := self._model.count_field) is not None:
            is_own = self._counts_own(index, field)
            main = _with_number(main, field, float(found.count(index, is_own=is_own)))
        for name, field in self._model.sums.items():
            is_own = self._sums_own(index, name, field)
            main = _with_number(main, field, found.sum(index, name, is_own=is_own))
        return main

    def _counts_own(self, index: int, field: str) -> bool:
        """Returns whether the versions count their own documents' readings alone."""
        return all(
            _number_at(self._versions.batch.main[at], field) == self._versions.count(at, is_own=True)
            for at in (index, self._size + index)
        )

    def _sums_own(self, index: int, name: str, field: str) -> bool:
        return all(
            math.isclose(
                _number_at(self._versions.batch.main[at], field),
                self._versions.sum(at, name, is_own=True),
                rel_tol=_SUM_TOLERANCE,
                abs_tol=_SUM_TOLERANCE,
            )
            for at in (index, self._size + index)
        )


def is_sorted(timed: list[tuple[Key, Sample]]) -> bool:
    """Returns whether samples lie in the order of time."""
    return all(before[0][:2] <= after[0][:2] for before, after in itertools.pairwise(timed))


def _by_id(older: list[bytes], newer: list[bytes]) -> list[bytes]:
    """Returns documents of both, the newer one where they share an `_id`, in the order of their `_id`s."""
    found: dict[bytes, bytes] = {}
    for document in (*older, *newer):
        raw_id = first_at(document, ("_id",))
        found[sort_key(raw_id[0], raw_id[1:])] = document
    return [found[key] for key in sorted(found)]


def _with_number(main: bytes, field: str, value: float) -> bytes:
    path = split(field)
    return with_field(main, path, number(first_at(main, path)[0], value))


def _number_at(main: bytes, field: str) -> float:
    value = as_queried(first_at(main, split(field)))
    return float(str(value))
