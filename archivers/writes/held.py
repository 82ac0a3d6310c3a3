"""Which buckets holds cover."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bucketwise.archivers.format.manifest import Manifest
from bucketwise.buckets.decoding.decode import Decoded
from bucketwise.buckets.fields.selectors import selected, selector_query
from bucketwise.buckets.fields.times import as_ms
from bucketwise.buckets.source import Source
from bucketwise.config.errors import BucketwiseError
from bucketwise.config.policies import Policy
from bucketwise.rollups.holds import Hold


def covered(decoded: Decoded, policy: Policy, holds: Iterable[Hold]) -> dict[int, Hold]:
    """Returns which buckets of a batch these holds cover: index in the batch -> the first such hold.

    A bucket is covered where it holds a reading in the range, and a reading of the series. A series field of
    the hold that the policy no longer has matches any value. Buckets that break their model are left out,
    since nothing moves or deletes them."""
    found: dict[int, Hold] = {}
    for hold in holds:
        selectors = hold.selectors(policy.series_names)
        chosen = [selected(decoded.columns.series, policy, it) for it in selectors]
        of_series = decoded.columns.holds(np.logical_or.reduce(chosen))
        mine = of_series & decoded.touching(hold.within.start_ms, hold.within.end_ms)
        for i in decoded.units[np.flatnonzero(mine)].tolist():
            found.setdefault(i, hold)
    return found


def may_cover(hold: Hold, manifest: Manifest, policy: Policy) -> bool:
    """Returns whether a hold may cover a bucket of a commit."""
    return hold.touches(as_ms(manifest.first), as_ms(manifest.last) + 1) and manifest.may_hold(
        policy, *hold.selectors(policy.series_names)
    )


def holds_any(source: Source, hold: Hold) -> bool:
    """Returns whether a query for what a hold covers finds a bucket in a collection."""
    selectors = hold.selectors(source.policy.series_names)
    query = selector_query(source.policy, *selectors) or None
    return any(len(it) > 0 for it in source.batches(hold.within.start_ms, hold.within.end_ms, query))


def check_none_frozen(decoded: Decoded, policy: Policy, holds: Iterable[Hold]) -> None:
    """Raises BucketwiseError where one of these holds covers a bucket, since it was placed during the run."""
    if frozen := covered(decoded, policy, holds):
        name = next(iter(frozen.values())).name
        raise BucketwiseError(
            f"policy {policy.name}: hold {name} was placed while the run worked, and freezes {len(frozen)} "
            "buckets that it was about to delete. They were left as they are. Run again"
        )
