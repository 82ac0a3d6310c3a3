"""Where the buckets of a commit were archived first, which tells the older of two copies."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from bucketwise.archivers.format.manifest import Manifest

#: The number of the commit in the chain, and its fence.
First = tuple[int, int]


def origin_at(manifest: Manifest, position: int) -> First:
    """Returns where the bucket at a position of a commit was archived first."""
    return next(first for first, _, end in _spans(manifest) if position < end)


def origins_in(manifest: Manifest, start: int, end: int) -> set[First]:
    """Returns where the buckets at the positions [start, end) of a commit were archived first."""
    return {first for first, low, high in _spans(manifest) if low < end and high > start}


def _spans(manifest: Manifest) -> Iterator[tuple[First, int, int]]:
    edges = itertools.accumulate((it.buckets for it in manifest.all_origins), initial=0)
    for origin, (start, end) in zip(manifest.all_origins, itertools.pairwise(edges), strict=True):
        yield (origin.sequence, origin.fence), start, end
