"""Finds buckets wherever they lie: in the source, and in the archive with all their versions."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from bucketwise.archivers.context import ArchiveContext
from bucketwise.archivers.evidence.instants import covering_in
from bucketwise.archivers.evidence.kind import Copy, Evidence, Located, Searched
from bucketwise.archivers.versions.history import one_of
from bucketwise.archivers.writes.delete import same_id
from bucketwise.buckets.bson.raw import Batch
from bucketwise.buckets.fields.selectors import Selector
from bucketwise.config.policies import Policy

#: Buckets that are explained for one instant.
MOST_BUCKETS = 100


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


class BucketFinder:
    """Finds the buckets of one policy."""

    def __init__(self, context: ArchiveContext, archived: Evidence) -> None:
        self._source, self._archived = context.source, archived
        self.searched: Searched | None = None

    def by_id(self, identity: Any, at_ms: int | None) -> list[FoundBucket]:
        """Returns the bucket with this `_id`, or none. `at_ms`: on the UTC day of this instant."""
        live = [one_of(it, i) for it in self._source.by_ids([identity]) for i in range(len(it))]
        if live:
            return self._with_copies(live[:1], self._source.policy)
        found = self._archived.find(identity, at_ms)
        if isinstance(found, Located):
            return self._with_copies([found.bucket], found.policy)
        self.searched = found
        return []

    def at(self, at_ms: int, selector: Selector) -> list[FoundBucket]:
        """Returns the buckets that cover an instant, of some series: the first hundred."""
        found: dict[Policy, dict[bytes, Batch]] = {}
        there = chain(covering_in(self._source, at_ms, selector), self._archived.covering(at_ms, selector))
        for policy, bucket in islice(there, 4 * MOST_BUCKETS):
            name = same_id(bucket.main.raw_id(0))
            if not any(name in some for some in found.values()):
                found.setdefault(policy, {})[name] = bucket
        located = [
            it for policy, some in found.items() for it in self._with_copies(list(some.values()), policy)
        ]
        return located[:MOST_BUCKETS]

    def _with_copies(self, buckets: list[Batch], policy: Policy) -> list[FoundBucket]:
        """Returns each bucket with its live document, and its versions in the archive."""
        found = {same_id(it.main.raw_id(0)): FoundBucket(it.main.raw_id(0)) for it in buckets}
        for batch in self._source.by_raw_ids([it.raw_id for it in found.values()]):
            for i, raw_id in enumerate(batch.main.raw_ids):
                found[same_id(raw_id)].live = one_of(batch, i)
        live = [it.live.main[0] for it in found.values() if it.live is not None]
        for name, copies in self._archived.copies(Batch.concat(buckets), policy, live).items():
            found[name].copies = copies
        return [it for it in found.values() if it.live is not None or it.copies]
