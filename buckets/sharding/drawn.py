"""Documents drawn at random: their sizes, when they arrived, and their values for shard keys."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Docs, as_queried
from bucketwise.buckets.bson.types import ARRAY, NULL, OBJECT_ID, decode_value, first_at
from bucketwise.buckets.fields.times import NO_TIME
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.shape import split
from bucketwise.buckets.sharding.keys import ShardKey, part_of
from bucketwise.config.policies import Policy

#: The field of a drawn document with the size of the whole document.
SIZE = "_bytes"
#: `_id`s tell when documents arrived if they span this share of what the times span: else all came at once.
_MIN_SPREAD = 0.5


@dataclass(frozen=True)
class KeyColumn:
    """The values of a field in all documents. `raws`: type and bytes; empty where there is no value."""

    raws: list[bytes]
    has_arrays: bool

    def parts(self, *, is_hashed: bool) -> list[bytes]:
        """Returns each value as it is part of a key."""
        return self._hashed if is_hashed else self._plain

    @cached_property
    def _plain(self) -> list[bytes]:
        return [part_of(it, is_hashed=False) for it in self.raws]

    @cached_property
    def _hashed(self) -> list[bytes]:
        return [part_of(it, is_hashed=True) for it in self.raws]

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """Returns the rank of each value among the distinct ones, (n,), in MongoDB's order."""
        return numbered(self._plain)

    @cached_property
    def single(self) -> float:
        """Returns the share of documents whose value no other has."""
        return float((np.bincount(self.numbers) == 1).sum()) / len(self.raws)

    @property
    def missing(self) -> float:
        """Returns the share of documents that have nothing there, or null."""
        return sum(it[:1] in (b"", bytes([NULL])) for it in self.raws) / max(1, len(self.raws))


class DrawnDocuments:
    """n documents. `documents` and `data`: how many the collection has, and their bytes; by the sample where
    None."""

    def __init__(
        self, docs: Docs, policy: Policy, paths: Sequence[str], documents: int, data: float | None
    ) -> None:
        sizes = [first_at(document, (SIZE,)) for document in docs]
        self.sizes = np.array([decode_value(it[0], it[1:]) for it in sizes], dtype=np.int64)
        self.documents = documents
        self.data = documents * float(self.sizes.mean()) if data is None else data
        model = model_of(policy)
        self.time_field = model.first_field
        wanted = dict.fromkeys((*paths, *model.own_form.fields(self.time_field), "_id"))
        self.columns = {path: _column(docs, path) for path in wanted}
        self.form = model.own_form
        times = [self.form.milliseconds(self.form.value_in(it, self.time_field)) for it in docs]
        self.times = np.array([NO_TIME if it is None else it for it in times], dtype=np.int64)
        self.arrival_by, self.arrived = self._arrival()

    def __len__(self) -> int:
        return len(self.sizes)

    def keys(self, key: ShardKey) -> list[bytes]:
        """Returns the key of each document, as bytes that sort as MongoDB sorts them."""
        parts = [self.columns[path].parts(is_hashed=is_hashed) for path, is_hashed in key.fields]
        return list(map(b"".join, zip(*parts, strict=True)))

    @cached_property
    def arrival_correlations(self) -> dict[str, float]:
        """Returns the rank correlation of each field with the order of arrival."""
        return {path: rank_correlation(it.numbers, self.arrived) for path, it in self.columns.items()}

    def value(self, path: str, row: int) -> Any:
        """Returns the value of a document's field, as pymongo gives it."""
        return as_queried(self.columns[path].raws[row])

    def _arrival(self) -> tuple[str, NDArray[np.int64]]:
        ids = self.columns["_id"].raws
        if all(it[:1] == bytes([OBJECT_ID]) for it in ids):
            created = np.array([struct.unpack_from(">I", it, 1)[0] for it in ids], dtype=np.int64) * 1000
            times = self.times[self.times != NO_TIME]
            if len(times) and np.ptp(created) >= _MIN_SPREAD * np.ptp(times):
                return "_id", created
        return self.time_field, self.times


def _column(docs: Docs, path: str) -> KeyColumn:
    parts = split(path)
    prefixes = [parts[:depth] for depth in range(1, len(parts) + 1)]
    arrays = any(first_at(document, prefix)[:1] == bytes([ARRAY]) for document in docs for prefix in prefixes)
    return KeyColumn([first_at(document, parts) for document in docs], arrays)


def numbered(values: Sequence[bytes]) -> NDArray[np.int64]:
    """Returns the place of each value among the distinct ones, in their order."""
    places = {value: place for place, value in enumerate(sorted(set(values)))}
    return np.array([places[it] for it in values], dtype=np.int64)


def rank_correlation(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """Returns Spearman's rank correlation, from -1 to 1; 0 where either is all the same."""
    if len(one) < 2 or not np.ptp(one) or not np.ptp(other):
        return 0.0
    return float(np.corrcoef(_ranks(one), _ranks(other))[0, 1])


def _ranks(values: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns the rank of each value; equal ones share the middle of theirs."""
    _, numbers, counts = np.unique(values, return_inverse=True, return_counts=True)
    middles = np.cumsum(counts) - (counts - 1) / 2
    return np.asarray(middles[numbers], dtype=np.float64)
