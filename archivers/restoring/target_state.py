"""What is in the target of a restore, and what may be replaced.

Only a document that the archive holds as well is ever replaced: a version of the bucket, or a merge of some.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pymongo.client_session import ClientSession

from bucketwise.archivers.restoring.put import existing_in
from bucketwise.archivers.restoring.target import Plan, Target
from bucketwise.archivers.writes.delete import same_id
from bucketwise.archivers.writes.inserts import insert_raw
from bucketwise.buckets.bson.queries import ids_query
from bucketwise.buckets.bson.raw import LOSSLESS, Docs
from bucketwise.buckets.source import Source


class TargetState:
    """The state of the target of some plans, as one transaction sees it."""

    def __init__(self, target: Target, plans: Sequence[Plan], session: ClientSession) -> None:
        self._target = target
        self._plans = plans
        self._session = session
        self.mains = self._there(target.to, [plan.final.main[0] for plan in plans])
        self._live = self._units()
        known = [[document for it in plan.known for document in it.extra] for plan in plans]
        overflow = target.policy.overflow
        self._extra = self._each(overflow.collection, known) if overflow else [[] for _ in plans]
        self._aside = self._each(target.aside, [plan.aside for plan in plans])

    def fits(self, index: int) -> bool:
        """Returns whether all that is in the way of a plan is in the archive as well."""
        plan = self._plans[index]
        may_live = plan.known if self._target.is_source else [plan.final]
        live = self._live.get(same_id(plan.final.main.raw_id(0)))
        return (
            self.mains[index] in (None, *(it.main[0] for it in plan.known))
            and live in (None, *(it.unit(0) for it in may_live))
            and set(self._extra[index]) <= {document for it in plan.known for document in it.extra}
            and set(self._aside[index]) <= set(plan.aside)
        )

    def replace(self, indices: Sequence[int]) -> None:
        """Replaces what is in the target by the documents of these plans."""
        target = self._target
        existing = {target.to: [main for i in indices if (main := self.mains[i]) is not None]}
        existing[target.aside] = existing.get(target.aside, []) + [
            it for i in indices for it in self._aside[i]
        ]
        if target.policy.overflow is not None:
            existing[target.policy.overflow.collection] = [it for i in indices for it in self._extra[i]]
        for collection, documents in documents_of(target, [self._plans[i] for i in indices]):
            self._change(collection, existing[collection], list(documents))

    def _change(self, collection: str, existing: list[bytes], wanted: list[bytes]) -> None:
        obsolete, new = set(existing) - set(wanted), set(wanted) - set(existing)
        if obsolete:
            place = self._target.database.get_collection(collection, codec_options=LOSSLESS)
            place.delete_many(ids_query(Docs.of(list(obsolete)).raw_ids), session=self._session)
        fresh = Docs.of([it for it in wanted if it in new])
        insert_raw(self._target.database, collection, fresh, self._session)

    def _there(self, collection: str, documents: list[bytes]) -> list[bytes | None]:
        return existing_in(self._target.database, collection, Docs.of(documents), self._session)

    def _units(self) -> dict[bytes, bytes]:
        """Returns the live buckets where the policy has overflow, since overflow of an old version must not
        join a changed bucket."""
        if self._target.policy.overflow is None:
            return {}
        raw_ids = [plan.final.main.raw_id(0) for plan in self._plans]
        source = Source(self._target.database, self._target.policy, session=self._session)
        return {
            same_id(found.main.raw_id(i)): found.unit(i)
            for found in source.by_raw_ids(raw_ids)
            for i in range(len(found))
        }

    def _each(self, collection: str, groups: list[list[bytes]]) -> list[list[bytes]]:
        """Returns, for each group of documents, those that have their `_id`s there."""
        documents = [it for group in groups for it in group]
        found = iter(self._there(collection, documents) if documents else [])
        there = (itertools.islice(found, len(group)) for group in groups)
        return [list(dict.fromkeys(it for it in some if it is not None)) for some in there]


def documents_of(target: Target, plans: Sequence[Plan]) -> list[tuple[str, Docs]]:
    """Returns the documents that these plans put, by collection."""
    aside = [it for plan in plans for it in plan.aside]
    places = {target.to: [plan.final.main[0] for plan in plans]}
    places[target.aside] = places.get(target.aside, []) + aside
    if target.policy.overflow is not None:
        places[target.policy.overflow.collection] = [it for plan in plans for it in plan.final.extra]
    return [(collection, Docs.of(documents)) for collection, documents in places.items()]
