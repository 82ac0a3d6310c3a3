"""Restores buckets of which the archive holds several versions.

Such a bucket is recognized by the document in its way, which has the same `_id` and is another version of it,
or some versions merged. Only such a document is ever replaced, and the transaction that does so compares it.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pymongo.client_session import ClientSession

from bucketwise.archivers.restoring.options import Mode, Plan, Target, VersionHandling
from bucketwise.archivers.restoring.put import MissingBuckets, PutResult, check_put, existing_in
from bucketwise.archivers.versions.history import (
    Fold,
    Histories,
    History,
    Version,
    folds,
    readings_of,
    some_merged,
)
from bucketwise.archivers.writes import chunks, insert_raw, same_id
from bucketwise.buckets.bson.cursor import ids_query
from bucketwise.buckets.bson.raw import LOSSLESS, Batch, Docs
from bucketwise.buckets.bson.types import DOCUMENT, INT32, elements
from bucketwise.buckets.source import Source
from bucketwise.buckets.versions.readings import Typed, document_of, number, text
from bucketwise.config.policies import Policy
from bucketwise.rollups.context import transaction


class TargetState:
    """The state of the target of some plans, as one transaction sees it."""

    def __init__(self, target: Target, plans: Sequence[Plan], session: ClientSession) -> None:
        self._target = target
        self._plans = plans
        self._session = session
        self.mains = self._there(target.collection, [plan.final.main[0] for plan in plans])
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
        existing = {target.collection: [main for i in indices if (main := self.mains[i]) is not None]}
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
    places = {target.collection: [plan.final.main[0] for plan in plans]}
    places[target.aside] = places.get(target.aside, []) + aside
    if target.policy.overflow is not None:
        places[target.policy.overflow.collection] = [it for plan in plans for it in plan.final.extra]
    return [(collection, Docs.of(documents)) for collection, documents in places.items()]


#: Buckets, and bytes of them, that wait for their other versions to be looked up together.
MAX_WAITING, MAX_WAITING_BYTES = 10_000, 16 << 20
IN_THE_WAY = "another document has the same _id, and was left unchanged. Restore into a new collection"


@dataclass
class RestoreReport:
    """The buckets in the target, whether this restore put it there or an earlier one; of a dry run, those
    that it would put."""

    buckets: int = 0
    readings: int = 0
    overflow: int = 0  # overflow documents
    pinned: int = 0  # of the buckets
    versions: int = 0  # older ones of these buckets: merged, left out, or put elsewhere
    missing: list[MissingBuckets] = field(default_factory=list)  # which the archive could not give
    bytes: int = 0  # of a dry run: of BSON
    commits: int = 0  # of a dry run: those that hold any of them


@dataclass
class Blocked:
    """Buckets that were not restored: how many, and why the first of each reason was not."""

    count: int = 0
    first: dict[str, Any] = field(default_factory=dict)  # reason -> `_id`

    def add(self, identity: Any, reason: str) -> None:
        """Counts a bucket that was not restored. Keeps its `_id` if it is the first with that reason."""
        self.count += 1
        self.first.setdefault(reason, identity)


@dataclass(eq=False)
class VersionSettler:
    """Gathers buckets that were blocked, and settles them some at a time.

    `counted` returns which versions in the target were counted when they were put there. Into `report` goes
    what settling adds to the target, beyond those."""

    target: Target
    histories: Histories
    counted: Callable[[Sequence[Version]], list[bool]]
    report: RestoreReport
    blocked: Blocked = field(default_factory=Blocked)
    _waiting: list[tuple[Batch, Policy]] = field(default_factory=list)
    _buckets: int = 0  # of those that wait
    _bytes: int = 0
    _settled: set[int] = field(default_factory=set)  # hashes of versions, and of their `_id`s: 8 bytes each

    def add(self, blocked: Batch, policy: Policy) -> None:
        """Adds buckets that were blocked. `policy`: the one under which they were archived."""
        if len(blocked):
            self._waiting.append((blocked, policy))
            self._buckets += len(blocked)
            self._bytes += blocked.size

    def settled(self, batch: Batch) -> list[int]:
        """Returns which buckets of a batch are settled already, with other versions of them."""
        return (
            [i for i, main in enumerate(batch.main) if hash(main) in self._settled] if self._settled else []
        )

    @property
    def is_full(self) -> bool:
        """Returns whether as many buckets wait as are settled together."""
        return self._buckets >= MAX_WAITING or self._bytes >= MAX_WAITING_BYTES

    def settle(self, check: Callable[[], None]) -> None:
        """Restores each bucket from all of its versions."""
        waiting, self._waiting = self._waiting, []
        self._buckets = self._bytes = 0
        for batch, policy in waiting:
            for piece in chunks(batch):
                check()
                self._settle(piece.take(np.setdiff1d(np.arange(len(piece)), self.settled(piece))), policy)

    def _settle(self, piece: Batch, policy: Policy) -> None:
        plans = []
        for name, history, known, fold in self._found(piece, policy):
            plan = plan_of(history, known, fold, self.target.how)
            if isinstance(plan, Plan):
                plans.append(plan)
            else:
                self._block(name, plan)
        if plans:
            self._put(plans)

    def _found(self, piece: Batch, policy: Policy) -> Iterator[tuple[Any, History, list[Batch], Fold]]:
        """Yields the buckets that have several versions: their `_id`s, these, and all that may be replaced.
        The others are blocked."""
        existing = existing_in(self.target.database, self.target.collection, piece.main)
        found = self.histories.of(piece, policy, [it for it in existing if it is not None])
        several: dict[bytes, tuple[Any, History, bytes | None]] = {}
        for i, raw_id in enumerate(piece.main.raw_ids):
            identity, history = piece.main.decode_id(i), found.get(same_id(raw_id))
            if history is not None and len(history.versions) > 1:
                several[same_id(raw_id)] = identity, history, existing[i]
            else:
                self._block(identity, IN_THE_WAY)
        made = folds([history.counting for _, history, _ in several.values()])
        for (identity, history, main), fold in zip(several.values(), made, strict=True):
            known = [*(version.bucket for version in history.versions), *fold.stages]
            known += [history.merged] if history.merged is not None else []
            if main is not None and main not in [it.main[0] for it in known]:
                known += some_merged(history.counting, main)
            yield identity, history, known, fold

    def _block(self, identity: Any, reason: str) -> None:
        self.report.buckets += 1
        self.blocked.add(identity, reason)

    def _put(self, plans: list[Plan]) -> None:
        target = self.target

        def step(session: ClientSession) -> tuple[list[bool], list[bytes | None]]:
            existing = TargetState(target, plans, session)
            fits = [existing.fits(i) for i in range(len(plans))]
            existing.replace([i for i, is_fit in enumerate(fits) if is_fit])
            target.note([plan for plan, is_fit in zip(plans, fits, strict=True) if is_fit], session)
            return fits, existing.mains

        fits, before = transaction(target.database, target.guard, step)
        put = [plan for plan, is_fit in zip(plans, fits, strict=True) if is_fit]
        for collection, documents in documents_of(target, put):
            check_put(
                target.database, PutResult([(collection, documents, list(range(len(documents))))], set())
            )
        self._count(put, [existed for existed, is_fit in zip(before, fits, strict=True) if is_fit])
        for plan, is_fit in zip(plans, fits, strict=True):
            if not is_fit:
                self._block(plan.final.main.decode_id(0), IN_THE_WAY)

    def _count(self, put: list[Plan], existed: list[bytes | None]) -> None:
        final = [Version(plan.final, plan.history.last.policy) for plan in put]
        before = self._counted_before(put, existed)
        known = sum(hash(_name(plan)) in self._settled for plan in put)
        new = [
            it for plan in put for it in plan.history.versions if hash(it.bucket.main[0]) not in self._settled
        ]
        report = self.report
        report.buckets += len(final) - len(before)
        report.readings += readings_of(final) - readings_of(before)
        report.overflow += _overflow_of(final) - _overflow_of(before)
        report.versions += len(new) - (len(put) - known)
        report.pinned += len(final) - len(before) if self.target.is_source else 0
        self._settled |= {hash(it.bucket.main[0]) for it in new} | {hash(_name(plan)) for plan in put}

    def _counted_before(self, put: list[Plan], existed: list[bytes | None]) -> list[Version]:
        """Returns the documents in place of these that are counted already: when they were put, or by an
        earlier settling."""
        settled, fresh = [], []
        for plan, main in zip(put, existed, strict=True):
            if hash(_name(plan)) in self._settled:
                policy = plan.history.last.policy
                settled += [Version(it, policy) for it in plan.known if it.main[0] == main][:1]
            else:
                fresh += [it for it in plan.history.versions if it.bucket.main[0] == main][:1]
        are_counted = self.counted(fresh)
        return settled + [it for it, is_counted in zip(fresh, are_counted, strict=True) if is_counted]


def _name(plan: Plan) -> bytes:
    return same_id(plan.final.main.raw_id(0))


def _overflow_of(versions: Sequence[Version]) -> int:
    return sum(len(version.bucket.extra) for version in versions)


def plan_of(history: History, known: list[Batch], fold: Fold, how: VersionHandling) -> Plan | str:
    """Returns what is to be put for a bucket of several versions, or why nothing can be."""
    last = history.counting.last
    history = _ending_with(last, history) if how.mode == Mode.all else history.counting
    versions = history.versions
    if how.mode != Mode.merged:
        older = versions[:-1] if how.mode == Mode.all else []
        aside = [it for i, version in enumerate(older) for it in _set_aside(version.bucket, i + 1)]
        return Plan(history, history.last.bucket, aside, known)
    if history.merged is not None:
        return Plan(history, history.merged, [], known)
    if fold.fault is not None:
        return (
            f"the archive holds {len(versions)} versions of it that can't be merged: {fold.fault}. "
            "`--versions all` brings them back side by side"
        )
    return Plan(history, fold.stages[-1], [], known)


def _ending_with(last: Version, history: History) -> History:
    """Returns the history with the version that counts at its end: a superseded one may be newer."""
    return history._replace(versions=[*(it for it in history.versions if it is not last), last])


def _set_aside(bucket: Batch, version: int) -> list[bytes]:
    """Returns the documents of an older version under `_id`s of their own, otherwise unchanged."""
    identity, sha256 = bucket.main.raw_id(0), hashlib.sha256(bucket.unit(0)).hexdigest()
    facts = {"version": number(INT32, float(version)), "sha256": text(sha256)}
    main = _renamed(bucket.main[0], {"_id": identity, **facts})
    extra = [
        _renamed(it, {"_id": bucket.extra.raw_id(i), "of": identity, **facts})
        for i, it in enumerate(bucket.extra)
    ]
    return [main, *extra]


def _renamed(document: bytes, identity: dict[str, Typed]) -> bytes:
    """Returns the document with another `_id`, and no other bit changed."""
    for start, value, end in elements(document):
        if document[start + 1 : value] == b"_id\0":
            named = b"%c_id\0" % DOCUMENT + document_of(identity)
            body = document[4:start] + named + document[end:]
            return (len(body) + 4).to_bytes(4, "little") + body
    raise AssertionError("every archived document has an _id")
