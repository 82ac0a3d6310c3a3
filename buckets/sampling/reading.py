"""Sampled documents as a policy reads them, or would read them if one of its keys were another."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.bson.types import first_at
from bucketwise.buckets.columns import Series
from bucketwise.buckets.decoding.decode import Decoded, decode
from bucketwise.buckets.fields.selectors import series_query
from bucketwise.buckets.fields.times import NO_TIME
from bucketwise.buckets.models import model_of
from bucketwise.buckets.models.shape import split
from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy


class Doubt(NamedTuple):
    """Evidence that a policy reads its documents' times other than they are meant."""

    code: str  # of the finding
    reason: str
    remedy: str


@dataclass(frozen=True)
class AsRead:
    """Sampled documents, n of them, as a policy reads them; b of them are sound. `source`: the collection
    that they are a sample of; None: they are all there are."""

    batch: Batch
    policy: Policy
    source: Source | None = None

    def under(self, **keys: Any) -> AsRead:
        """Returns the same documents as they are read with other keys."""
        return AsRead(self.batch, self.policy.model_copy(update=keys))

    @cached_property
    def is_whole(self) -> bool:
        """Returns whether these are all documents of the collection."""
        return self.source is None or len(self.batch) >= self.source.count()

    def found(self, start_ms: int, end_ms: int, series: Series) -> list[AsRead] | None:
        """Returns the buckets of a series in the collection that may hold a reading in [start, end); None
        where no index finds them."""
        source = self.source
        if source is None or not source.comparison.has_index(source.last_field) or self.policy.sample_series:
            return None
        batches = source.batches(start_ms, end_ms, series_query(self.policy, series))
        return [AsRead(it, self.policy) for it in batches if len(it)]

    @cached_property
    def decoded(self) -> Decoded:
        """Returns the sound ones as columns."""
        return decode(self.batch, self.policy)

    @property
    def times(self) -> NDArray[np.int64]:
        """Returns the times of all readings, milliseconds."""
        return self.decoded.columns.time

    @cached_property
    def is_sound(self) -> NDArray[np.bool_]:
        """Returns which documents keep to the model, (n,)."""
        found = np.zeros(len(self.batch), dtype=np.bool_)
        found[self.decoded.units] = True
        return found

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Returns when documents start by their own field, (n,), milliseconds; NO_TIME where it is none."""
        model = model_of(self.policy)
        form, field = model.own_form, model.first_field
        told = (form.milliseconds(form.value_in(document, field)) for document in self.batch.main)
        return np.array([NO_TIME if it is None else it for it in told], dtype=np.int64)

    @cached_property
    def series(self) -> NDArray[np.int64]:
        """Returns numbers that tell the series of documents apart, (n,): of broken ones by their bytes. Where
        samples tell their own, each document is apart."""
        if self.policy.sample_series:
            return np.arange(len(self.batch))
        paths = [split(it) for it in self.policy.stored_series.values()]
        raw = [tuple(first_at(document, it) for it in paths) for document in self.batch.main]
        units, of_sound = self.decoded.units.tolist(), self.decoded.columns.bucket_series.tolist()
        numbers = {raw[unit]: number for unit, number in zip(units, of_sound, strict=True)}
        known = len(self.decoded.columns.series)
        return np.array([numbers.setdefault(it, known + len(numbers)) for it in raw], dtype=np.int64)

    @cached_property
    def next_starts(self) -> NDArray[np.int64]:
        """Returns when the next document of the same series starts, (n,); NO_TIME where the sample has
        none."""
        found = np.full(len(self.batch), NO_TIME, dtype=np.int64)
        rows = np.flatnonzero(self.starts != NO_TIME)
        pairs = np.column_stack([self.series[rows], self.starts[rows]])
        distinct, place = np.unique(pairs, axis=0, return_inverse=True)
        later = np.full(len(distinct), NO_TIME, dtype=np.int64)
        same = np.flatnonzero(np.diff(distinct[:, 0]) == 0)
        later[same] = distinct[same + 1, 1]
        found[rows] = later[place.reshape(-1)]
        return found
