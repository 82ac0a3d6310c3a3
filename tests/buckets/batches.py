"""Buckets as the code under test takes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bucketwise.buckets.bson.raw import Batch, Docs
from tests.buckets.oracle import Bucket


def batch_of(buckets: Sequence[Bucket]) -> Batch:
    extras = [(i, extra) for i, bucket in enumerate(buckets) for extra in bucket.extras]
    return Batch(
        Docs.of([bucket.main for bucket in buckets]),
        Docs.of([extra for _, extra in extras]),
        np.array([owner for owner, _ in extras], dtype=np.int32),
    )
