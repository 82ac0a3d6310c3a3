"""Late arrival: how long after their readings writes came."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from bson import ObjectId
from numpy.typing import NDArray

from bucketwise.buckets.bson.raw import Docs
from bucketwise.buckets.decoding.decode import Decoded
from bucketwise.buckets.health.finding import Finding, share, span
from bucketwise.config.policies import Policy

_SETTLED_MS = 600_000


@dataclass(frozen=True)
class Arrival:
    """The milliseconds from its last reading to each known write. `by`: "_id" or "oplog", None where neither
    tells; `basis`: what was looked at, or why nothing was."""

    late: NDArray[np.float64]
    by: str | None
    basis: str


def arrival_by_ids(main: Docs, decoded: Decoded) -> Arrival | None:
    """Returns how late buckets came by the times in their ObjectIds; None where fewer than half have one."""
    ids = [main.legible_id(int(unit)) for unit in decoded.units]
    written = np.array([it.generation_time.timestamp() if isinstance(it, ObjectId) else np.nan for it in ids])
    late: NDArray[np.float64] = written * 1000 - decoded.last
    known = late[np.isfinite(late)]
    return Arrival(known, "_id", "by the time in their ObjectIds") if 2 * len(known) > len(ids) else None


def late_findings(arrival: Arrival, policy: Policy, scaled: Callable[[float], str]) -> Iterator[Finding]:
    """Yields findings about readings that came later than a roll-up waits. `scaled`: names so many sampled
    buckets."""
    settle = policy.rollup.settle.total_seconds() * 1000 if policy.rollup else _SETTLED_MS
    after = arrival.late[arrival.late > settle]
    if not len(after):
        return
    count, total, longest = len(after), len(arrival.late), span(float(after.max()))
    is_sample = arrival.by == "_id"
    who = scaled(count) if is_sample else f"{count:,} of {total:,} writes"
    came = "were written" if is_sample else "came"
    what = "buckets" if is_sample else "writes"
    usual = span(float(np.median(after)))
    yield Finding(
        "late",
        arrival.by if is_sample else None,
        f"{who} {came} more than {span(settle)} after their last reading: up to {longest}, {arrival.basis}",
        f"the windows of {share(count, total)} of the {what} are rolled up twice: before they came in, and "
        "after",
        f"none for what was imported later; else let rollup.settle be {usual} or more, and rollup.recheck "
        f'more than {longest} where late_data is "scan"',
    )
