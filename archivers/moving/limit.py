"""How many buckets a run would delete, counted before anything is copied or deleted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from bucketwise.archivers.records.receipts import MERGING, live_of
from bucketwise.archivers.report import DeleteLimit
from bucketwise.archivers.run import ArchiveRun
from bucketwise.archivers.writes.delete import MAX_BUCKETS
from bucketwise.rollups.rolling.quarantine import Quarantine, hash_of

Document = dict[str, Any]


def delete_limit(run: ArchiveRun, start_ms: int, end_ms: int) -> DeleteLimit | None:
    """Returns how many of the buckets that end in [start, end) the run would delete, and how many it may;
    None where the policy sets no limit, or deletes nothing. Buckets that will stay for reasons other than
    pins and known quarantine are counted as well."""
    written, name = run.archive.max_delete, run.policy.collection
    if written is None or run.kept:
        return None
    due = run.source.count_ending(start_ms, end_ms) - _staying(run, start_ms, end_ms)
    if run.archive.grace:  # a later run deletes what this one copies
        due = min(due, _copied(run))
    return DeleteLimit(name, written, due, run.source.count())


def _staying(run: ArchiveRun, start_ms: int, end_ms: int) -> int:
    """Returns how many of these buckets stay since they are pinned or quarantined."""
    pages = _pages(run)
    return sum(run.source.count_ending(start_ms, end_ms, {"_id": {"$in": ids}}) for ids in pages if ids)


def _pages(run: ArchiveRun) -> Iterator[list[Any]]:
    """Yields the `_id`s of pinned and of quarantined buckets, each once, some at a time."""
    records = Quarantine(run.database, run.policy, run.now).recorded()
    broken = (it["_id"]["id"] for it in records)
    seen: set[int] = set()
    page: list[Any] = []
    for identity in chain(chain.from_iterable(run.pins.pages()), broken):
        name = hash_of(identity)
        if name not in seen:
            seen.add(name)
            page.append(identity)
        if len(page) == MAX_BUCKETS:
            yield page
            page = []
    yield page


def _copied(run: ArchiveRun) -> int:
    """Returns how many buckets earlier runs copied, whose grace is over and that no run has deleted."""
    receipts = run.receipts
    past_grace = {"copied": {"$lte": run.now - run.archive.grace}}
    states = {"state": {"$in": ["open", "copied", MERGING]}, "kind": {"$in": ["offline", "online"]}}
    ids = {"$size": {"$ifNull": ["$ids", []]}}
    found = receipts.collection.aggregate(
        [
            {"$match": {"_id.policy": receipts.policy, **states, **past_grace}},
            {"$project": {"kind": 1, "live": 1, "buckets": {"$ifNull": ["$buckets", ids]}}},
        ]
    )
    return sum(int(live_of(it, it["buckets"]).sum()) for it in found)
