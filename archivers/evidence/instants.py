"""Which buckets of a batch cover an instant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from bucketwise.archivers.evidence.kind import Located
from bucketwise.archivers.versions.history import one_of
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.selectors import Selector, selector_query
from bucketwise.buckets.models.asked import is_of_series
from bucketwise.buckets.models.covered import covered_span
from bucketwise.buckets.models.slots import length_ms
from bucketwise.buckets.source import Source
from bucketwise.config.policies import Policy


def covering_in(source: Source, at_ms: int, selector: Selector) -> Iterator[Located]:
    """Yields the buckets of a collection that cover an instant, of some series."""
    query = selector_query(source.policy, selector)
    return covering(source.policy, source.batches(at_ms, at_ms + 1, query), at_ms, selector)


def covering(policy: Policy, batches: Iterable[Batch], at_ms: int, selector: Selector) -> Iterator[Located]:
    """Yields the buckets that cover an instant by their fields, and that may be of the series asked for."""
    for batch in batches:
        for i in _near(policy, batch, at_ms):
            document = batch.main[i]
            span = covered_span(policy, document)
            if span and span[0] <= at_ms < span[1] and is_of_series(policy, document, selector):
                yield Located(policy, one_of(batch, i))


def _near(policy: Policy, batch: Batch, at_ms: int) -> list[int]:
    """Returns the buckets of a batch that may cover the instant, by their times: a commit may hold many
    others."""
    if policy.model == "samples":  # whose fields may name more time than they have readings in
        return list(range(len(batch)))
    decoded = decode(batch, policy)
    first, last = decoded.spans().T
    reach = length_ms(policy) if policy.model == "slots" else 0
    far = decoded.units[(first > at_ms + reach) | (last < at_ms - reach)]
    near: list[int] = np.setdiff1d(np.arange(len(batch)), far).tolist()
    return near
