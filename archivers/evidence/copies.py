"""Finds buckets wherever they lie: in the source, and in the archive with all their versions.

Only a commit's files tell which `_id`s it holds. So an `_id` is looked for in the commits of the days that it
may lie in; where these are not known, in all commits, if they are few.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from bson.objectid import ObjectId

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.format.archive import OfflineArchive
from bucketwise.archivers.records.receipts import live_of
from bucketwise.archivers.versions.history import History, OfflineHistories, OnlineHistories, Version, one_of
from bucketwise.archivers.writes.delete import name_of, same_id
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.decoding.decode import decode
from bucketwise.buckets.fields.selectors import Selector, selector_query
from bucketwise.buckets.fields.times import DAY_MS, FIRST_MS, LAST_MS, as_ms
from bucketwise.buckets.models.asked import is_of_series
from bucketwise.buckets.models.covered import covered_span
from bucketwise.buckets.models.slots import length_ms
from bucketwise.config.policies import Policy

#: Commits that are read for an `_id` whose day is not known.
MOST_COMMITS = 32
#: Buckets that are explained for one instant.
MOST_BUCKETS = 100
Span = tuple[int, int]  # [start, end) in milliseconds


class Copy(NamedTuple):
    """A version of a bucket in an archive."""

    version: Version
    may_be_live: bool  # no run has deleted its original
    copied: datetime | None  # the grace counts from then; None: not known


@dataclass
class FoundBucket:
    """One bucket: as it is live, and as it was archived, the oldest version first."""

    raw_id: bytes
    live: Batch | None = None
    copies: list[Copy] = field(default_factory=list)

    @property
    def latest(self) -> tuple[Batch, Policy | None]:
        """Returns the bucket as it is now, and the policy it was archived by, where it is not live."""
        if self.live is not None:
            return self.live, None
        version = self.copies[-1].version
        return version.bucket, version.policy


class Searched(NamedTuple):
    """How many commits were read to find an `_id`, of how many there are."""

    read: int
    commits: int


class BucketFinder:
    """Finds the buckets of one policy."""

    def __init__(self, context: ArchiveContext) -> None:
        self._context = context
        self._policy = context.policy
        self._source = context.source
        self._offline: OfflineArchive | None = context.offline()
        self.searched: Searched | None = None

    def by_id(self, identity: Any, at_ms: int | None) -> list[FoundBucket]:
        """Returns the bucket with this `_id`, or none. `at_ms`: on the UTC day of this instant."""
        name = name_of(identity)
        live = [one_of(it, i) for it in self._source.by_ids([identity]) for i in range(len(it))][:1]
        if live:
            return self._with_copies(live, self._policy)
        if (online := self._context.online()) is not None:
            archived = [one_of(it, 0) for it in online.by_ids([identity]) if len(it)]
            return self._with_copies(archived[:1], self._policy)
        hit = self._search(name, list(_spans(identity, at_ms)), is_bound=at_ms is not None)
        return [] if hit is None else self._with_copies([hit[0]], hit[1])

    def at(self, at_ms: int, selector: Selector) -> list[FoundBucket]:
        """Returns the buckets that cover an instant, of some series: the first hundred."""
        found: dict[Policy, dict[bytes, Batch]] = {}
        for policy, bucket in islice(self._covering(at_ms, selector), 4 * MOST_BUCKETS):
            name = same_id(bucket.main.raw_id(0))
            if not any(name in some for some in found.values()):
                found.setdefault(policy, {})[name] = bucket
        located = [
            it for policy, some in found.items() for it in self._with_copies(list(some.values()), policy)
        ]
        return located[:MOST_BUCKETS]

    def _search(self, name: bytes, spans: list[Span], *, is_bound: bool) -> tuple[Batch, Policy] | None:
        """Searches the commits of these spans; then all commits, if they are few and no day was given."""
        if (archive := self._offline) is None:
            return None
        there = archive.within(FIRST_MS, LAST_MS + 1)
        if not is_bound and len(there) <= MOST_COMMITS:
            spans = [*spans, (FIRST_MS, LAST_MS + 1)]
        read: set[str] = set()
        for span in spans:
            for manifest in archive.manifests(*span):
                if manifest.commit in read:
                    continue
                read.add(manifest.commit)
                for held in archive.sections(manifest):
                    for i, raw_id in enumerate(held.batch.main.raw_ids):
                        if same_id(raw_id) == name:
                            return one_of(held.batch, i), manifest.archived_policy
        self.searched = Searched(len(read), len(there))
        return None

    def _covering(self, at_ms: int, selector: Selector) -> Iterator[tuple[Policy, Batch]]:
        query, policy = selector_query(self._policy, selector), self._policy
        sources = [self._source, self._context.online()]
        for source in (it for it in sources if it is not None):
            for batch in source.batches(at_ms, at_ms + 1, query):
                yield from ((policy, it) for it in _those_at(policy, batch, at_ms, selector))
        if self._offline is not None:
            reach = length_ms(policy) if policy.model == "slots" else 1
            manifests = self._offline.manifests(at_ms - reach + 1, at_ms + reach)
            for manifest in manifests:
                then, which = manifest.archived_policy, manifest.sections_with(policy, [selector])
                for held in self._offline.sections(manifest, which):
                    yield from ((then, it) for it in _those_at(then, held.batch, at_ms, selector))

    def _with_copies(self, buckets: list[Batch], policy: Policy) -> list[FoundBucket]:
        """Returns each bucket with its live document, and its versions in the archive."""
        found = {same_id(it.main.raw_id(0)): FoundBucket(it.main.raw_id(0)) for it in buckets}
        if not found:
            return []
        whole = Batch.concat(buckets)
        for batch in self._source.by_raw_ids([it.raw_id for it in found.values()]):
            for i, raw_id in enumerate(batch.main.raw_ids):
                found[same_id(raw_id)].live = one_of(batch, i)
        existing = [it.live.main[0] for it in found.values() if it.live is not None]
        if self._offline is not None:
            histories = OfflineHistories(self._offline).of(whole, policy, existing)
            for name, history in histories.items():
                found[name].copies = list(self._offline_copies(history))
        elif self._policy.archive_collections is not None:
            online = OnlineHistories(self._context.database, policy).of(whole, policy, [])
            waiting = self._context.receipts.copied(whole.main.ids)
            for name, history in online.items():
                found[name].copies = list(_online_copies(history, waiting))
        return [it for it in found.values() if it.live is not None or it.copies]

    def _offline_copies(self, history: History) -> Iterator[Copy]:
        for version in history.versions:
            manifest = version.commit
            assert manifest is not None
            receipt = self._context.receipts.get(manifest.commit)
            live = not version.is_superseded and live_of(receipt, manifest.buckets)[version.position]
            yield Copy(version, bool(live), manifest.newest.created)


def _online_copies(history: History, waiting: dict[bytes, datetime]) -> Iterator[Copy]:
    """Yields the copies in an online archive. It holds the versions merged: that copy comes last."""
    merged = history.merged
    for version in history.versions:
        raw_id = version.bucket.main.raw_id(0)
        yield Copy(version, raw_id in waiting, waiting.get(raw_id))
    if merged is not None and merged.unit(0) != history.last.bucket.unit(0):
        yield Copy(history.last._replace(bucket=merged), may_be_live=False, copied=None)


def _spans(identity: Any, at_ms: int | None) -> Iterator[Span]:
    """Yields the days in which a bucket may lie: the day that was given; else that of its ObjectId, and those
    beside it."""
    if at_ms is not None:
        yield at_ms // DAY_MS * DAY_MS, (at_ms // DAY_MS + 1) * DAY_MS
    elif isinstance(identity, ObjectId):
        day = as_ms(identity.generation_time.astimezone(UTC)) // DAY_MS
        yield (day - 1) * DAY_MS, (day + 2) * DAY_MS


def _those_at(policy: Policy, batch: Batch, at_ms: int, selector: Selector) -> Iterator[Batch]:
    """Yields the buckets that cover an instant by their fields, and that may be of the series asked for."""
    for i in _near_instant(policy, batch, at_ms):
        document = batch.main[i]
        span = covered_span(policy, document)
        if span and span[0] <= at_ms < span[1] and is_of_series(policy, document, selector):
            yield one_of(batch, i)


def _near_instant(policy: Policy, batch: Batch, at_ms: int) -> list[int]:
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
